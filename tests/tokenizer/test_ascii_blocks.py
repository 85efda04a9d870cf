# SPDX-License-Identifier: Apache-2.0
"""Masks of 64 bytes against the scanners that go from byte to byte."""

import itertools

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tokenizer import reference
from tokenizer.kernels import ascii_blocks, scanners
from tokenizer.kernels.ascii_blocks import BLOCK_READS
from tokenizer.kernels.compiling import kernel
from tokenizer.normalizers import BertNormalizer
from tokenizer.pre_tokenizers.scanner_patterns import SCANNERS


@kernel
def _gpt2(data, end, classes):
    return ascii_blocks.gpt2_starts(data, 0), scanners.next_gpt2(data, end, data.size, classes)


@kernel
def _cl100k(data, end, classes):
    return ascii_blocks.cl100k_starts(data, 0), scanners.next_cl100k(data, end, data.size, classes)


@kernel
def _cl100k_ascii(data, end, classes):
    return ascii_blocks.cl100k_starts(data, 0), scanners.next_cl100k_ascii(data, end, data.size, classes)


@kernel
def _cl100k_tiktoken(data, end, classes):
    return ascii_blocks.cl100k_starts(data, 0), scanners.next_cl100k_tiktoken(data, end, data.size, classes)


@kernel
def _cl100k_ruby(data, end, classes):
    return ascii_blocks.cl100k_ruby_starts(data, 0), scanners.next_cl100k_ruby(data, end, data.size, classes)


@kernel
def _qwen2(data, end, classes):
    return ascii_blocks.qwen2_starts(data, 0), scanners.next_qwen2(data, end, data.size, classes)


@kernel
def _qwen2_ascii(data, end, classes):
    return ascii_blocks.qwen2_starts(data, 0), scanners.next_qwen2_ascii(data, end, data.size, classes)


@kernel
def _qwen35(data, end, classes):
    return ascii_blocks.qwen2_starts(data, 0), scanners.next_qwen35(data, end, data.size, classes)


@kernel
def _o200k(data, end, classes):
    return ascii_blocks.o200k_starts(data, 0), scanners.next_o200k(data, end, data.size, classes)


@kernel
def _tekken(data, end, classes):
    return ascii_blocks.tekken_starts(data, 0), scanners.next_tekken(data, end, data.size, classes)


PAIRS = {
    "gpt2": _gpt2,
    "cl100k": _cl100k,
    "cl100k_ascii": _cl100k_ascii,
    "cl100k_tiktoken": _cl100k_tiktoken,
    "cl100k_ruby": _cl100k_ruby,
    "qwen2": _qwen2,
    "qwen2_ascii": _qwen2_ascii,
    "qwen35": _qwen35,
    "o200k": _o200k,
    "tekken": _tekken,
}
# Few characters of every kind, so that every order of kinds comes up.
HOSTILE = st.text(
    alphabet="aabsStTdBEl '' \n\n\r\t\v\x1c\x1f //.,(-0123é\u3000\xa0\x85中\u0301ſ\x00\x7f", min_size=1, max_size=90
)
WORDS = (
    "the", " the", "The", "camelCase", "HTTPServer", "don't", "WE'LL", "'tis", " 12", "12345", "3rd", "(x)", "f(", "):",
    "\n", "\n\n", "    ", "\n        ", "  \n", "\t", "\t\tx", "...", ".foo", "_bar", "//", "/\n/", "\r\n", "naïve",
)  # fmt: skip
WORDY = st.lists(st.sampled_from(WORDS), min_size=1, max_size=40).map("".join)


def starts_in(pair, text, classes):
    """Returns the starts that the mask tells, and those of the scanner."""
    data = np.frombuffer(text.encode(), np.uint8)
    padded = np.zeros(data.size + BLOCK_READS, np.uint8)
    padded[: data.size] = data
    told, stop = pair(padded, 0, classes)
    mask = int(np.uint64(told))
    walked, stop = [0], 0
    while stop < min(data.size, 64):
        stop = pair(padded, stop, classes)[1]
        walked.append(stop)
    # What the padding decides is masked by callers: the last byte's bit, and all beyond.
    room = min(data.size, 65) - 1
    return [k for k in range(min(room, 64)) if mask >> k & 1] or [0], walked


@pytest.mark.parametrize("name", sorted(PAIRS))
@settings(max_examples=400, deadline=None)
@given(text=HOSTILE | WORDY)
@example(text="foo  \n  bar  \n\n  baz")
@example(text="a.b..c ..d .e\n.f")
@example(text="a" * 90)
@example(text=" " * 90)
def test_every_start_told_is_the_next_one_that_the_scanner_finds(name, text):
    told, walked = starts_in(PAIRS[name], text, SCANNERS[name].classes)
    assert told == walked[: len(told)]


@pytest.mark.parametrize("name", sorted(PAIRS))
def test_the_end_of_a_block(name):
    """What is beyond the block may belong to what is before its end, and must not be guessed."""
    blanks = ("", "\n", " \n", "\n ", "\n        ", "   \n\n", " " * 13)
    tails = {
        *map("".join, itertools.product(WORDS, WORDS)),
        *map("".join, itertools.product(blanks, blanks, blanks, "x.")),
    }
    for tail in sorted(tails):
        for n_letters in range(max(63 - len(tail), 0), 65):
            text = "a" * n_letters + tail
            told, walked = starts_in(PAIRS[name], text, SCANNERS[name].classes)
            assert told == walked[: len(told)], text


def test_masks_of_plain_text_tell_almost_all_starts():
    text = "The quick brown fox jumps (again!) over 2 lazy dogs;\n    then sleeps."
    for name, pair in PAIRS.items():
        told, walked = starts_in(pair, text, SCANNERS[name].classes)
        assert len(told) >= sum(start < 62 for start in walked) - 1, name


@kernel
def _bert(data, room, word, words, lower):
    starts, ends, spaces = ascii_blocks.bert_words(data, 0, room)
    ascii_blocks.copy_block(data, 0, np.uint8(0x20 if lower else 0), word)
    words[0], words[1], words[2] = starts, ends, spaces


@settings(max_examples=400, deadline=None)
@given(text=HOSTILE | WORDY, lowercase=st.booleans())
def test_words_of_bert_told_are_those_that_the_reference_finds(text, lowercase):
    data = np.frombuffer(text.encode(), np.uint8)
    padded = np.full(data.size + BLOCK_READS, ord("x"), np.uint8)
    padded[: data.size] = data
    word, masks = np.zeros(80, np.uint8), np.zeros(3, np.uint64)
    _bert(padded, data.size, word, masks, lowercase)
    starts, ends, spaces = ([k for k in range(64) if int(mask) >> k & 1] for mask in masks)
    told = [word[start : end + 1].tobytes() for start, end in zip(starts, ends, strict=False)]
    normalizer = BertNormalizer(lowercase=lowercase, strip_accents=False)
    found = reference.pre_tokenize(reference.normalize(text, normalizer))
    assert told == [each.encode() for each in found][: len(told)]
    assert all(chr(data[k]) in " \t\r\n" for k in spaces)
    # Only what a word may go on with, or the end of the block, keeps it from being told.
    if text.isascii() and text.isprintable() and data.size < 64:
        assert len(told) == len(found)
