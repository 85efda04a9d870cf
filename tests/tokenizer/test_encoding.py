# SPDX-License-Identifier: Apache-2.0
"""`Encoding`: how it is put together, what overflows, and the ways between characters, words and tokens."""

import pickle

import pytest

from tests.reference.tracing import assemble
from tokenmill.tokenizer.encoding import Encoding
from tokenmill.tokenizer.offsets import EncodedToken
from tokenmill.tokenizer.post_processors import PLAIN_LAYOUT, BertProcessing, RobertaProcessing, Truncation

LAYOUT = BertProcessing(("[SEP]", 3), ("[CLS]", 2)).template()
# "unable  to" and "so be it"
TEXT = [EncodedToken(10, "un", (0, 2), 0), EncodedToken(11, "##able", (2, 6), 0), EncodedToken(12, "to", (8, 10), 1)]
PAIR = [EncodedToken(20 + i, t, (3 * i, 3 * i + 2), i) for i, t in enumerate(("so", "be", "it"))]
PAD = (9, 5, "[PAD]")


@pytest.fixture
def pair() -> Encoding:
    return assemble(LAYOUT, [TEXT, PAIR])


def test_layout_of_a_pair(pair: Encoding) -> None:
    assert pair.tokens == ["[CLS]", "un", "##able", "to", "[SEP]", "so", "be", "it", "[SEP]"]
    assert pair.type_ids == [0, 0, 0, 0, 0, 1, 1, 1, 1]
    assert pair.special_tokens_mask == [1, 0, 0, 0, 1, 0, 0, 0, 1]
    assert pair.sequence_ids == [None, 0, 0, 0, None, 1, 1, 1, None]
    assert pair.n_sequences == 2
    assert pair.overflowing == []


def test_from_tokens(pair: Encoding) -> None:
    assert [pair.token_to_sequence(i) for i in (-1, 0, 1, 4, 5, 8, 9)] == [None, None, 0, None, 1, None, None]
    assert [pair.token_to_chars(i) for i in (0, 2, 6, 99)] == [None, (2, 6), (3, 5), None]
    assert [pair.token_to_word(i) for i in (-8, 0, 2, 6, 99)] == [None, None, 0, 1, None]


def test_from_words(pair: Encoding) -> None:
    assert [pair.word_to_tokens(i) for i in range(3)] == [(1, 3), (3, 4), None]
    assert [pair.word_to_tokens(i, 1) for i in range(4)] == [(5, 6), (6, 7), (7, 8), None]
    assert (pair.word_to_chars(0), pair.word_to_chars(2, 1), pair.word_to_chars(2)) == ((0, 6), (6, 8), None)


def test_from_characters(pair: Encoding) -> None:
    assert [pair.char_to_token(i) for i in (0, 2, 5, 6, 8, 10)] == [1, 2, 2, None, 3, None]
    assert [pair.char_to_word(i, 1) for i in (0, 2, 3, 8)] == [0, None, 1, None]


def test_an_empty_text_has_its_place() -> None:
    encoding = assemble(LAYOUT, [[], []])
    assert encoding.n_sequences == 2
    assert encoding.sequence_ranges == {0: (1, 1), 1: (2, 2)}
    assert encoding.char_to_token(0) is None


def test_what_overflows_is_laid_out_too() -> None:
    encoding = assemble(LAYOUT, [PAIR], Truncation(4, stride=1))
    encoding.pad(5, "right", *PAD)
    assert encoding.tokens == ["[CLS]", "so", "be", "[SEP]", "[PAD]"]
    (part,) = encoding.overflowing
    assert part.tokens == ["[CLS]", "be", "it", "[SEP]", "[PAD]"]
    assert (part.offsets[1], part.word_to_tokens(1), part.attention_mask) == ((3, 5), (1, 2), [1, 1, 1, 1, 0])


def test_parts_of_a_pair_are_combined() -> None:
    encoding = assemble(PLAIN_LAYOUT, [TEXT, PAIR], Truncation(4))
    assert encoding.ids == [10, 11, 20, 21]
    assert [part.ids for part in encoding.overflowing] == [[12, 20, 21], [12, 22], [10, 11, 22]]
    assert [[p.ids for p in part.overflowing] for part in encoding.overflowing] == [[[12, 22]], [], [[12, 22]]]


def test_parts_of_a_long_pair_are_made_when_asked_for() -> None:
    long = [EncodedToken(i, "x", (i, i + 1), i) for i in range(5000)]
    encoding = assemble(PLAIN_LAYOUT, [long, long], Truncation(2))  # 25 million parts
    assert encoding.ids == [0, 0]


def test_an_encoding_survives_pickling_with_what_overflows() -> None:
    encoding = pickle.loads(pickle.dumps(assemble(LAYOUT, [PAIR], Truncation(4))))
    assert [part.ids for part in encoding.overflowing] == [[2, 22, 3]]


def test_truncation_from_the_left_and_padding_on_the_left() -> None:
    encoding = assemble(LAYOUT, [PAIR], Truncation(4, direction="left"))
    encoding.pad(6, "left", *PAD)
    assert encoding.ids == [9, 9, 2, 21, 22, 3]
    assert encoding.type_ids == [5, 5, 0, 0, 0, 0]
    assert encoding.sequence_ranges == {0: (3, 5)}
    assert encoding.char_to_token(3) == 3
    assert [part.ids for part in encoding.overflowing] == [[9, 9, 9, 2, 20, 3]]


def test_offsets_are_trimmed_part_by_part() -> None:
    processor = RobertaProcessing(("</s>", 2), ("<s>", 0))
    tokens = [EncodedToken(7, "Ġa", (0, 2), 0), EncodedToken(8, "Ġb", (2, 4), 1)]
    encoding = assemble(processor.template(), [tokens], Truncation(3), processor.trims)
    assert encoding.offsets == [(0, 0), (0, 2), (0, 0)]
    # The first of its part, so that its space may be one that was put there.
    assert encoding.overflowing[0].offsets == [(0, 0), (2, 4), (0, 0)]
    whole = assemble(processor.template(), [tokens], None, processor.trims)
    assert whole.offsets == [(0, 0), (0, 2), (3, 4), (0, 0)]
