# SPDX-License-Identifier: Apache-2.0
"""What entries are, against the same found one by one, and against what is known of real vocabularies."""

import json
import re
import shutil

import numpy as np
import pytest

from tokenmill.pipeline.statistics import entries
from tokenmill.tokenizer import Tokenizer, UnknownCharacterError
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


def one_by_one(tokenizer):
    """Returns the ids that `entries.Entries` calls pieces and unreachable."""
    pieces, unreachable = set(), set()
    added = {token.id for token in tokenizer.added_tokens} | {tokenizer.unk_token_id}
    for i in sorted({*tokenizer.get_vocab().values()} - added):
        text = tokenizer.decode([i], skip_special_tokens=False)
        made = [tokenizer.encode(text, add_special_tokens=False).ids]
        if "\ufffd" in text and made != [[i]]:
            pieces.add(i)
            continue
        for context in entries.CONTEXTS:
            before = tokenizer.encode(context, add_special_tokens=False).ids
            behind = tokenizer.decode([*before, i], skip_special_tokens=False)
            made += [tokenizer.encode(each, add_special_tokens=False).ids for each in (behind, text + context)]
        if not any(i in ids for ids in made):
            unreachable.add(i)
    return pieces, unreachable


@pytest.mark.parametrize("kind", ["byte_level", "wordpiece", "unigram"])
def test_found_at_once_as_one_by_one(kind):
    tokenizer = trained(kind)
    found = entries.classify(tokenizer)
    assert (set(np.flatnonzero(found.pieces)), set(np.flatnonzero(found.unreachable))) == one_by_one(tokenizer)
    assert bool(found.pieces.any()) == (kind == "byte_level")


def test_entries_that_were_seen_are_reachable():
    tokenizer = Tokenizer.for_bert(["[UNK]", "[PAD]", "a", "b", "cannot be", "##的"])
    assert np.flatnonzero(entries.classify(tokenizer).unreachable).tolist() == [4, 5]
    seen = np.arange(tokenizer.n_ids) == 4
    assert np.flatnonzero(entries.classify(tokenizer, seen).unreachable).tolist() == [5]


def test_texts_that_cannot_be_encoded_reach_nothing(tmp_path):
    model = {"type": "Unigram", "unk_id": None, "vocab": [["a", -1.0], ["b", -2.0], ["aa", -9.0]]}
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps({"version": "1.0", "model": model, "added_tokens": []}))
    tokenizer = Tokenizer.from_file(str(path))
    with pytest.raises(UnknownCharacterError):
        tokenizer.encode("x")
    assert np.flatnonzero(entries.classify(tokenizer).unreachable).tolist() == [2]


def test_what_is_not_decoded_is_not_called_unreachable(tmp_path):
    tokenizer = trained("byte_level")
    parts = json.loads(tokenizer.to_str()) | {"decoder": {"type": "BPEDecoder", "suffix": "</w>"}}
    raw = entries.classify(Tokenizer.from_str(json.dumps(parts)))
    assert not raw.unreachable.any()
    assert not raw.pieces.any()


def test_gpt2_has_pieces_and_nothing_unreachable(shared_data, tmp_path):
    for name in ("vocab.json", "merges.txt"):
        shutil.copy(shared_data / "vocab" / f"gpt2-{name}", tmp_path / name)
    tokenizer = Tokenizer.from_file(str(tmp_path))
    found = entries.classify(tokenizer)
    assert not found.unreachable.any()
    spelled = {token: i for i, token in enumerate(byte_characters())}
    broken = [
        i
        for token, i in tokenizer.get_vocab(with_added_tokens=False).items()
        if token != "<|endoftext|>" and not is_utf8(bytes(spelled[c] for c in token))
    ]
    assert np.flatnonzero(found.pieces).tolist() == sorted(broken)


def test_bert_cannot_continue_a_word_with_a_chinese_character(shared_data):
    tokenizer = Tokenizer.from_file(str(shared_data / "vocab" / "bert-base-chinese.txt"))
    unreachable = entries.classify(tokenizer).unreachable
    of_chinese = [i for token, i in tokenizer.get_vocab().items() if re.fullmatch("##[\u4e00-\u9fff]", token)]
    assert len(of_chinese) > 5000
    assert unreachable[of_chinese].all()
    assert not unreachable[[tokenizer.token_to_id(token) for token in ("的", "##ing", "the")]].any()


def byte_characters():
    """Returns the character that GPT-2 writes for each byte."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [byte for byte in range(256) if byte not in shown]
    return [chr(byte if byte in shown else 256 + hidden.index(byte)) for byte in range(256)]


def is_utf8(data):
    try:
        return bool(data.decode()) or True
    except UnicodeDecodeError:
        return False
