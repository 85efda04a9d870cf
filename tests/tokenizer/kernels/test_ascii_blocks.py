# SPDX-License-Identifier: Apache-2.0
"""Masks of 64 bytes against the reference implementation."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.reference import bert as reference
from tokenmill.tokenizer.compiling.kernel import kernel
from tokenmill.tokenizer.kernels import ascii_blocks
from tokenmill.tokenizer.kernels.ascii_blocks import BLOCK_READS
from tokenmill.tokenizer.normalizers import BertNormalizer
from tokenmill.tokenizer.unicode import data as unicode_data
from tokenmill.tokenizer.unicode import tables as unicode_tables

# Few characters of every kind, so that every order of kinds comes up.
HOSTILE = st.text(
    alphabet="aabsStTdBEl '' \n\n\r\t\v\x1c\x1f //.,(-0123é\u3000\xa0\x85中\u0301ſ\x00\x7f", min_size=1, max_size=90
)
WORDS = (
    "the", " the", "The", "camelCase", "HTTPServer", "don't", "WE'LL", "'tis", " 12", "12345", "3rd", "(x)", "f(", "):",
    "\n", "\n\n", "    ", "\n        ", "  \n", "\t", "\t\tx", "...", ".foo", "_bar", "//", "/\n/", "\r\n", "naïve",
)  # fmt: skip
WORDY = st.lists(st.sampled_from(WORDS), min_size=1, max_size=40).map("".join)


@kernel
def _bert(data, room, words, digits_apart):
    words[0], words[1], words[2] = ascii_blocks.bert_words(data, 0, room, digits_apart)


@settings(max_examples=400, deadline=None)
@given(text=HOSTILE | WORDY, isolates=st.booleans())
def test_words_of_bert_told_are_those_that_the_reference_finds(text, isolates):
    data = np.frombuffer(text.encode(), np.uint8)
    padded = np.full(data.size + BLOCK_READS, ord("x"), np.uint8)
    padded[: data.size] = data
    masks = np.zeros(3, np.uint64)
    _bert(padded, data.size, masks, ~np.uint64(0) if isolates else np.uint64(0))
    starts, ends, spaces = ([k for k in range(64) if int(mask) >> k & 1] for mask in masks)
    told = [data[start : end + 1].tobytes() for start, end in zip(starts, ends, strict=False)]
    normalizer = BertNormalizer(lowercase=False, strip_accents=False)
    found = reference.pre_tokenize(reference.normalize(text, normalizer))
    if isolates:
        found = [part for word in found for part in re.findall("[0-9]|[^0-9]+", word)]
    assert told == [each.encode() for each in found][: len(told)]
    assert all(chr(data[k]) in " \t\r\n" for k in spaces)
    # Only what a word may go on with, or the end of the block, keeps it from being told.
    if text.isascii() and text.isprintable() and data.size < 64:
        assert len(told) == len(found)


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("bert/punctuation", lambda: unicode_tables.bert_tables.__wrapped__(**BertNormalizer().options())),
    ],
)
def test_a_table_that_says_something_else_of_ascii_than_the_masks_is_refused(name, make, monkeypatch):
    """One sign less, and a word would have other ids in a text of 300 characters than in one of 10."""

    array = unicode_data.array

    def without_underscore(of):
        runs = array(of)
        if of != name:
            return runs
        kept = [part for a, b in runs.tolist() for part in ((a, min(b, 0x5E)), (max(a, 0x60), b)) if part[0] <= part[1]]
        return np.array(sorted(set(kept)), np.int32)

    monkeypatch.setattr(unicode_data, "array", without_underscore)
    unicode_tables.property_table.cache_clear()
    try:
        with pytest.raises(ValueError, match=r"character '_' is of class .*ascii_blocks"):
            make()
    finally:
        unicode_tables.property_table.cache_clear()
