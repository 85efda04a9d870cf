# SPDX-License-Identifier: Apache-2.0
"""Makes `tokenizer/unicode/data.npz` by asking HF tokenizers, unicodedata2 and regex about every code point.

`python -m tools.unicode` runs by hand, for some minutes, when the pinned version of one of them changes. It says which
arrays changed; `tests/parity/test_unicode_data.py` proves the committed file right.
"""
