# SPDX-License-Identifier: Apache-2.0
"""Makes `tokenizer/unicode/data.npz` by asking HF tokenizers, unicodedata2 and regex about every code point.

`python -m tools.unicode` runs by hand, for ten minutes, when the pinned version of one of them changes, and says which
arrays changed. `tests/parity/test_unicode_data.py` compares the committed file with what the quick parts of it say, and
`test_unicode_tables.py`, `test_normalizers.py` and `test_pre_tokenizers.py` what comes of the others with HF's answers.
"""
