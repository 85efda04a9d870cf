# SPDX-License-Identifier: Apache-2.0
"""Merges that can be made, against making every merge of every short word."""

import itertools
import random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.tokenizer.models.test_bpe import in_kernel
from tokenmill.tokenizer.models.bpe import BPE
from tokenmill.tokenizer.models.bpe_tables import reachable

LETTERS = "ab"
LONGEST = 8
WORDS = ["".join(word) for n in range(1, LONGEST + 1) for word in itertools.product(LETTERS, repeat=n)]


@st.composite
def pieces(draw: st.DrawFn) -> list[str]:
    """Pieces in the order of their scores, of up to six letters, each after two others that it is made of."""
    found: list[str] = []
    for _ in range(draw(st.integers(1, 12))):
        left, right = (draw(st.sampled_from([*LETTERS, *found])) for _ in range(2))
        if len(left + right) <= 6 and left + right not in found:
            after = max(1 + found.index(part) if part in found else 0 for part in (left, right))
            found.insert(draw(st.integers(after, len(found))), left + right)
    return found


def all_merges(found: list[str]) -> list[tuple[str, str]]:
    """Every way to make each of them of two others, best first."""
    known = {*LETTERS, *found}
    return [(p[:k], p[k:]) for p in found for k in range(1, len(p)) if p[:k] in known and p[k:] in known]


def model_of(merges: list[tuple[str, str]]) -> BPE:
    tokens = dict.fromkeys([*LETTERS, *(token for pair in merges for token in (*pair, "".join(pair)))])
    return BPE({token: i for i, token in enumerate(tokens)}, merges)


def made_somewhere(model: BPE) -> set[tuple[str, str]]:
    """The merges that are made in some word, one after the other as they are."""
    ranks = {pair: rank for rank, pair in enumerate(model.merges)}
    made = set()
    for word in WORDS:
        symbols = list(word)
        while found := [(ranks[p], place) for place, p in enumerate(itertools.pairwise(symbols)) if p in ranks]:
            _, place = min(found)
            made.add((symbols[place], symbols[place + 1]))
            symbols[place : place + 2] = ["".join(symbols[place : place + 2])]
    return made


@given(pieces(), st.booleans(), st.randoms(use_true_random=False))
def test_what_is_left_out_is_never_made(found: list[str], shuffled: bool, chooser: random.Random) -> None:
    merges = all_merges(found)
    if shuffled:
        chooser.shuffle(merges)
    model = model_of(merges)
    kept = reachable(model.merge_ids, np.array([model.vocab[letter] for letter in LETTERS]), always=False)
    if kept is None:
        return
    tokens = list(model.vocab)
    pairs = [(tokens[left], tokens[right]) for left, right in zip(kept[0].lefts, kept[0].rights, strict=True)]
    assert set(pairs) == made_somewhere(model)
    assert len(set(kept[0].products.tolist())) == len(pairs)
    words = [word.encode() for word in WORDS]
    assert in_kernel(model, words)[0] == [model.tokenize_bytes(word) for word in words]
