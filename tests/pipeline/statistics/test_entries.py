# SPDX-License-Identifier: Apache-2.0
"""What entries are, against the same found one by one, and against what is known of real vocabularies."""

import json

import numpy as np
import pytest

from tokenmill.tokenizer import Tokenizer, UnknownCharacterError, reach
from tokenmill.tokenizer.trainers import BPETrainer, UnigramTrainer, WordPieceTrainer

TEXTS = ["the ring is singing, 12 times!", "привет мир", "你好 世界", "한국 말", "naïve café", "a\nb  c"] * 3


def trained(kind):
    if kind == "byte_level":
        blank, trainer = Tokenizer.untrained("none", "gpt2", byte_level=True), BPETrainer(vocab_size=330)
    elif kind == "wordpiece":
        blank, trainer = Tokenizer.untrained_bert(), WordPieceTrainer(vocab_size=120)
    else:
        blank = Tokenizer.untrained("sentencepiece", "metaspace")
        trainer = UnigramTrainer(vocab_size=60, hard_vocab_limit=False)
    return blank.train_from_iterator(TEXTS, trainer)


def of_kind(kind, tokenizer, seen=None):
    """Returns the ids of one kind."""
    return np.flatnonzero(np.array(reach.kinds(tokenizer, seen).to_pylist(), object) == kind).tolist()


def one_by_one(tokenizer):
    """Returns the ids that are pieces, and those that are unreachable."""
    pieces, unreachable = set(), set()
    added = {token.id for token in tokenizer.added_tokens} | {tokenizer.unk_token_id}
    for i in sorted({*tokenizer.get_vocab().values()} - added):
        text = tokenizer.decode([i], skip_special_tokens=False)
        made = [tokenizer.encode(text, add_special_tokens=False).ids]
        if "\ufffd" in text and made != [[i]]:
            pieces.add(i)
            continue
        for context in reach.CONTEXTS:
            before = tokenizer.encode(context, add_special_tokens=False).ids
            behind = tokenizer.decode([*before, i], skip_special_tokens=False)
            made += [tokenizer.encode(each, add_special_tokens=False).ids for each in (behind, text + context)]
        if not any(i in ids for ids in made):
            unreachable.add(i)
    return pieces, unreachable


@pytest.mark.parametrize("kind", ["byte_level", "wordpiece", "unigram"])
def test_found_at_once_as_one_by_one(kind):
    tokenizer = trained(kind)
    pieces, unreachable = set(of_kind("piece", tokenizer)), set(of_kind("unreachable", tokenizer))
    assert (pieces, unreachable) == one_by_one(tokenizer)
    assert bool(pieces) == (kind == "byte_level")


def test_texts_that_cannot_be_encoded_reach_nothing(tmp_path):
    model = {"type": "Unigram", "unk_id": None, "vocab": [["a", -1.0], ["b", -2.0], ["aa", -9.0]]}
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps({"version": "1.0", "model": model, "added_tokens": []}))
    tokenizer = Tokenizer.from_file(str(path))
    with pytest.raises(UnknownCharacterError):
        tokenizer.encode("x")
    assert of_kind("unreachable", tokenizer) == [2]
