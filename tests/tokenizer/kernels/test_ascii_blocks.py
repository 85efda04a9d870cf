# SPDX-License-Identifier: Apache-2.0
"""Masks of 64 bytes against the scanners that go from byte to byte."""

import itertools
import re

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.reference import bert as reference
from tokenmill.tokenizer.compiling.kernel import kernel, made_kernel
from tokenmill.tokenizer.kernels import ascii_blocks, scanning
from tokenmill.tokenizer.kernels.ascii_blocks import BLOCK_READS, no_starts
from tokenmill.tokenizer.kernels.scanners_parts import LETTER, SPACE
from tokenmill.tokenizer.normalizers import BertNormalizer
from tokenmill.tokenizer.pre_tokenizers import tables as pt_tables
from tokenmill.tokenizer.pre_tokenizers.scanner_patterns import SCANNERS
from tokenmill.tokenizer.unicode import data as unicode_data
from tokenmill.tokenizer.unicode import tables as unicode_tables


def _pair(name, parts):
    """Makes a kernel that returns the starts, and where the scanner finds the end of the word at `end`."""
    starts, next_stop = parts.starts, parts.next_stop

    def pair(data, end, classes):
        return starts(data, 0), next_stop(data, end, data.size, classes)

    return made_kernel(f"pair_{name}", pair, starts, next_stop)


def _apart(name, parts):
    """As `_pair`, with the stops too."""
    starts, stops, next_stop = parts.starts, parts.stops, parts.next_stop

    def apart(data, end, classes):
        return starts(data, 0), stops(data, 0), next_stop(data, end, data.size, classes)

    return made_kernel(f"apart_{name}", apart, starts, stops, next_stop)


_WITH_BLOCKS = {name: parts for name, parts in scanning.SCANNERS.items() if parts.starts is not no_starts}
PAIRS = {name: _pair(name, parts) for name, parts in _WITH_BLOCKS.items() if parts.stops is None}
APART = {name: _apart(name, parts) for name, parts in _WITH_BLOCKS.items() if parts.stops is not None}
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
def test_white_space_that_goes_on_beyond_ascii(name):
    blanks = ("", "\n", "\r ", " \n", "\x0b", " \t ")
    after = ("\x85\r", "\u3000x", "\xa0\xa0 \nx", "\u2028", "éa", "中 ")
    for parts in itertools.product(("", "a", "."), blanks, blanks, after, blanks, "x "):
        text = "".join(parts)
        told, walked = starts_in(PAIRS[name], text, SCANNERS[name].classes)
        assert told == walked[: len(told)], text


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


def words_apart(one, text, classes):
    """Returns the words that the masks tell, and those of the scanner; a word begins with the text."""
    data = np.frombuffer(text.encode(), np.uint8)
    padded = np.zeros(data.size + BLOCK_READS, np.uint8)
    padded[: data.size] = data
    starts, stops, _ = one(padded, 0, classes)
    room = min(data.size, 65) - 1
    starts, stops = ([k for k in range(64) if int(np.uint64(mask)) >> k & 1] for mask in (starts, stops))
    told = [k for k in starts if 0 < k < room]
    walked, at = [], 0
    while at < data.size:
        stop = min(one(padded, at, classes)[2], data.size)
        walked.append((at, stop))
        at = stop
        while at < data.size and chr_at(data, at).isspace() and chr_at(data, at) not in "\x1c\x1d\x1e\x1f":
            at += len(chr_at(data, at).encode())
    # Every start that is told ends the word before it, whose end is the next stop.
    return list(zip([0, *told], stops, strict=False))[: len(told)], walked, told


def chr_at(data, at):
    return data[at : at + 4].tobytes().decode("utf-8", "ignore")[:1]


@pytest.mark.parametrize("name", sorted(APART))
@settings(max_examples=400, deadline=None)
@given(text=HOSTILE | WORDY)
@example(text="it's 'll 'tis '' 's's 12'3")
@example(text="a_b __ c-d _e")
@example(text="x" * 70)
@example(text="x" + " " * 70)
def test_words_apart_told_are_those_that_the_scanner_finds(name, text):
    text = text.lstrip(" \n\r\t\v\u3000\xa0\x85") or "x"
    words, walked, told = words_apart(APART[name], text, SCANNERS[name].classes)
    assert words == walked[: len(words)]
    assert told == [start for start, _ in walked[1 : 1 + len(told)]]


def test_masks_of_words_apart_tell_almost_all_of_plain_text():
    text = "The quick brown fox jumps (again!) over 2 lazy dogs;\n    then sleeps."
    for name, one in APART.items():
        words, walked, _ = words_apart(one, text, SCANNERS[name].classes)
        assert len(words) >= sum(start < 62 for start, _ in walked) - 2, name


def test_masks_of_plain_text_tell_almost_all_starts():
    text = "The quick brown fox jumps (again!) over 2 lazy dogs;\n    then sleeps."
    for name, pair in PAIRS.items():
        told, walked = starts_in(pair, text, SCANNERS[name].classes)
        assert len(told) >= sum(start < 62 for start in walked) - 1, name


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
        ("bert/punctuation", pt_tables.bert_classes.__wrapped__),
        ("bert/punctuation", lambda: unicode_tables.bert_tables.__wrapped__(**BertNormalizer().options())),
        ("patterns/whitespace_words", pt_tables.word_classes.__wrapped__),
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


def test_white_space_and_ideographs_that_scanners_do_not_know_are_refused():
    for first, bit, message in ((0x700, SPACE, "begins with byte 0xdc"), (0x5000, LETTER, "several classes")):
        table = np.zeros(0x110000, np.uint8)
        table[first] = bit
        with pytest.raises(ValueError, match=message):
            pt_tables.checked(table)
