# SPDX-License-Identifier: Apache-2.0
"""What later processes map equals what the first one made of a file, array by array; and what is never mapped."""

import json
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tokenmill.tokenizer import Tokenizer, TokenizerFileError
from tokenmill.tokenizer.formats import files, loading, lowered
from tokenmill.tokenizer.models.bpe_merges import MergesOfIds
from tokenmill.tokenizer.models.vocabulary import ScoredTokens, Tokens, Vocabulary
from tokenmill.tokenizer.parts import Parts
from tokenmill.tokenizer.trainers import BPETrainer, UnigramTrainer, WordLevelTrainer, WordPieceTrainer

TEXTS = ["the mill grinds text", "naïve 玫瑰 🌹", "the  miller's 12 mills", "<s>x</s>\n"] * 3
TRAINED = {
    "byte-level": (("none", "gpt2", True), BPETrainer(vocab_size=290, byte_level=True)),
    "bpe": (("sentencepiece", "none"), BPETrainer(vocab_size=60)),
    "unigram": (("nfkc", "metaspace"), UnigramTrainer(vocab_size=60, hard_vocab_limit=False)),
    "sentencepiece": (("sentencepiece", "none"), UnigramTrainer(vocab_size=60, hard_vocab_limit=False)),
    "wordpiece": (("bert", "bert"), WordPieceTrainer(vocab_size=60)),
    "wordlevel": (("nfc", "whitespace"), WordLevelTrainer(vocab_size=20)),
}


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cache").mkdir()
    monkeypatch.setattr(lowered, "folder", lambda: tmp_path / "cache")
    monkeypatch.setattr(lowered, "LEAST", 0)


def trained(name: str) -> Tokenizer:
    (normalizer, pre_tokenizer, *byte_level), trainer = TRAINED[name]
    blank = Tokenizer.untrained(normalizer, pre_tokenizer, byte_level=bool(byte_level))
    return blank.train_from_iterator(TEXTS, trainer)


def assert_same(made: Any, mapped: Any, where: str) -> None:
    """Compares two values; of arrays also the type, the bytes, and what a kernel is compiled for."""
    assert type(made) is type(mapped), where
    if isinstance(made, np.ndarray):
        assert (made.dtype, made.shape, made.tobytes()) == (mapped.dtype, mapped.shape, mapped.tobytes()), where
        flags = [(each.flags.writeable, each.flags.aligned, each.flags.c_contiguous) for each in (made, mapped)]
        assert flags[0] == flags[1], where
    elif isinstance(made, tuple) and hasattr(made, "_fields"):
        for field in made._fields:
            assert_same(getattr(made, field), getattr(mapped, field), f"{where}.{field}")
    elif isinstance(made, (Tokens, Vocabulary, MergesOfIds)):
        for field, value in made.__getstate__().items():
            assert_same(value, mapped.__getstate__()[field], f"{where}.{field}")
    elif isinstance(made, tuple):
        for i, (one, other) in enumerate(zip(made, mapped, strict=True)):
            assert_same(one, other, f"{where}[{i}]")
    elif isinstance(made, ScoredTokens):
        assert_same((made.tokens, made.scores), (mapped.tokens, mapped.scores), where)
    else:
        assert made == mapped, where


def load_twice(path: Path, monkeypatch: pytest.MonkeyPatch, **options: Any) -> tuple[Parts, Parts]:
    first = loading.load(path, **options)
    assert len(lowered_files()) == 1
    monkeypatch.setattr(lowered, "_keep", None)  # nothing is made the second time
    return first, loading.load(path, **options)


def lowered_files() -> list[Path]:
    return sorted(lowered.folder().glob("*.parts"))


def check(first: Parts, second: Parts) -> None:
    assert second.model is not first.model
    for name in first.model.__dataclass_fields__:
        assert_same(getattr(first.model, name), getattr(second.model, name), name)
    assert_same(first.model.tables, second.model.tables, "tables")
    ours, mapped = (vars(each.pre_tokenizer)["_scanner"] if each.pre_tokenizer else None for each in (first, second))
    assert_same(ours and (ours.automata, ours.rules), mapped and (mapped.automata, mapped.rules), "scanner")
    ours, mapped = Tokenizer.from_parts(first), Tokenizer.from_parts(second)
    assert mapped.to_str() == ours.to_str()
    assert mapped.encode_arrow(TEXTS).to_pylist() == ours.encode_arrow(TEXTS).to_pylist()
    assert (second.assumptions, second.ignored_fields) == (first.assumptions, first.ignored_fields)
    assert mapped.get_vocab() == ours.get_vocab()
    assert [mapped.id_to_token(i) for i in range(9)] == [ours.id_to_token(i) for i in range(9)]


@pytest.mark.parametrize("name", TRAINED)
def test_what_is_mapped_is_what_was_made(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    trained(name).save(tmp_path / "t.json")
    check(*load_twice(tmp_path / "t.json", monkeypatch))


def test_other_options_and_other_files_are_made_anew(tmp_path: Path) -> None:
    ranks = tmp_path / "r.tiktoken"
    trained("byte-level").save(ranks)
    split = [loading.load(ranks, pattern=name).pre_tokenizer for name in ("gpt2", "llama3", "gpt2")]
    assert split[0] == split[2] != split[1]
    assert len(lowered_files()) == 2
    # Of two files, either may change.
    tokenizer = trained("byte-level")
    tokenizer.save(tmp_path / "vocab.json")
    whole = loading.load(tmp_path / "vocab.json")
    merges = (tmp_path / "merges.txt").read_text().splitlines(keepends=True)
    (tmp_path / "merges.txt").write_text("".join(merges[:-1]))
    assert len(loading.load(tmp_path / "vocab.json").model.merges) == len(whole.model.merges) - 1


def test_a_folder_is_mapped_until_a_file_in_it_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    trained("byte-level").save(folder / "tokenizer.json")
    (folder / "notes.bin").write_bytes(b"no tokenizer")
    first = loading.load(folder)
    with monkeypatch.context() as patch:
        patch.setattr(lowered, "_keep", None)
        check(first, loading.load(folder))
        (folder / "notes.bin").write_bytes(b"still none")
        assert loading.load(folder).added_tokens == first.added_tokens
    (folder / "added_tokens.json").write_text(json.dumps({"<new>": 290}))
    assert [token.content for token in loading.load(folder).added_tokens] == ["<new>"]
    with pytest.raises(TokenizerFileError, match="has no effect"):
        loading.load(folder, pattern="gpt2")
    (folder / "vocab.json").write_text(json.dumps({"a": 7}))
    assert "remove the file that is stale" in loading.load(folder).assumptions[0]
    for limit in ("_MOST_OF_FOLDER", "_MOST_NAMES"):
        monkeypatch.setattr(lowered, limit, 1)
        assert "remove the file that is stale" in loading.load(folder).assumptions[0]


def test_a_file_that_is_refused_is_refused_again(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text(trained("wordpiece").to_str().replace('"WordPiece"', '"WordPeace"'))
    for _ in range(2):
        with pytest.raises(TokenizerFileError):
            loading.load(path)
    trained("wordpiece").save(path)
    loading.load(path)
    with pytest.raises(TokenizerFileError, match="pattern='gpt2' has no effect"):
        loading.load(path, pattern="gpt2")


def test_without_a_folder_everything_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> Path:
        raise OSError("no directory for compiled kernels can be used")

    trained("unigram").save(tmp_path / "t.json")
    monkeypatch.setattr(lowered, "folder", refuse)
    assert loading.load(tmp_path / "t.json").model.vocab == loading.load(tmp_path / "t.json").model.vocab
    assert list((tmp_path / "cache").iterdir()) == []


@pytest.mark.parametrize("content", [b"", bytes(100), bytes(7), b"\x01" + bytes(99)])
def test_a_file_that_a_crash_has_left_counts_as_none(tmp_path: Path, content: bytes) -> None:
    trained("wordlevel").save(tmp_path / "t.json")
    first = loading.load(tmp_path / "t.json")
    (file,) = lowered_files()
    file.write_bytes(content)
    assert loading.load(tmp_path / "t.json").model.vocab == first.model.vocab
    assert file.stat().st_size > 1000


def test_the_cache_has_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lowered, "MOST_BYTES", 1)
    for name in ("wordlevel", "wordpiece"):
        trained(name).save(tmp_path / "t.json")
        loading.load(tmp_path / "t.json")
        (kept,) = lowered_files()
    assert loading.load(tmp_path / "t.json").model.tables.units.size
    assert kept.is_file()


class Calls:
    """What a pickle makes of it is the result of a call."""

    def __init__(self, function: Any, *arguments: object) -> None:
        self.call = function, arguments

    def __reduce__(self) -> tuple[Any, tuple[object, ...]]:
        return self.call


@pytest.mark.parametrize("function", [os.system, eval, files.write_bytes])
def test_a_file_of_the_cache_runs_no_program(function: Any, tmp_path: Path) -> None:
    target = tmp_path / "target"
    arguments = {os.system: (f"touch {target}",), eval: (f"open({str(target)!r}, 'w')",)}
    hostile = pickle.dumps(Calls(function, *arguments.get(function, (target, b"x"))), protocol=5)
    path = tmp_path / "hostile.parts"
    path.write_bytes(np.array([1, 64, 64 + len(hostile)], np.int64).tobytes().ljust(64, b"\0") + hostile)
    assert lowered._load(path) is None
    assert not target.exists()
