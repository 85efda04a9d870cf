# SPDX-License-Identifier: Apache-2.0
"""`Encoding`: how it is put together, what overflows, and the ways between characters, words and tokens."""

import pickle

from tests.reference.tracing import assemble
from tokenmill.tokenizer.offsets import EncodedToken
from tokenmill.tokenizer.post_processors import PLAIN_LAYOUT, BertProcessing, Truncation

LAYOUT = BertProcessing(("[SEP]", 3), ("[CLS]", 2)).template()
# "unable  to" and "so be it"
TEXT = [EncodedToken(10, "un", (0, 2), 0), EncodedToken(11, "##able", (2, 6), 0), EncodedToken(12, "to", (8, 10), 1)]
PAIR = [EncodedToken(20 + i, t, (3 * i, 3 * i + 2), i) for i, t in enumerate(("so", "be", "it"))]


def test_an_empty_text_has_its_place() -> None:
    encoding = assemble(LAYOUT, [[], []])
    assert encoding.n_sequences == 2
    assert encoding.sequence_ranges == {0: (1, 1), 1: (2, 2)}
    assert encoding.char_to_token(0) is None


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
