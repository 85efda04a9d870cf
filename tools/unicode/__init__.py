# SPDX-License-Identifier: Apache-2.0
"""Makes `tokenizer/unicode/data.npz` by asking HF tokenizers, unicodedata2 and regex about every code point.

Run `python -m tools.unicode`, which takes ten minutes, when the pinned version of one of them changes; it says which
arrays changed. `tests/parity/test_unicode_data.py` compares the committed file with the results of its quick parts;
`test_unicode_tables.py`, `test_normalizers.py` and `test_pre_tokenizers.py` compare results of the others with HF's.
"""
