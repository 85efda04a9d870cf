# SPDX-License-Identifier: Apache-2.0
"""Mistakes in configs: the job, what is wrong, and the words that a person needs. Each is told by a line, before work.

What a section says of itself in Python is in `tests/pipeline/config`; the words are only here.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.chats import NAMED, TEMPLATES, make_tokenizer
from tokenmill.pipeline import cli

Row = tuple[str, dict[str, Any], str]

INPUT: list[Row] = [
    ("run", {"input": {"paths": []}}, "input.paths: []: must have at least 1 element"),
    ("run", {"input": {"paths": [""]}}, "input.paths.0: '': must not be empty"),
    ("run", {"input": {"paths": 3}}, "input.paths: 3: must be a list"),
    ("run", {"input": {}}, "input.paths: required but missing"),
    ("run", {"input": {"paths": ["a"], "split_bytes": 0}}, "input.split_bytes: 0: must be at least 1"),
    ("run", {"input": {"paths": ["a"], "split_bytes": 1.5}}, "input.split_bytes: 1.5: must be an integer"),
    ("run", {"input": {"paths": ["a"], "split_bytes": True}}, "input.split_bytes: true: must be an integer"),
    (
        "run",
        {"input": {"paths": ["a"], "max_document_bytes": 9999999999}},
        "input.max_document_bytes: 9999999999: must be at most 1073741824",
    ),
    (
        "run",
        {"input": {"paths": ["a"], "format": "jsonl", "document": "file"}},
        "input.document: 'file': applies to text, but format is 'jsonl'",
    ),
    (
        "run",
        {"input": {"sources": {"a/b": {"paths": ["x"]}}}},
        "input.sources.a/b: 'a/b': must be a name of 1 to 64 letters, digits, _ and -: it begins ids",
    ),
]

TOKENIZER: list[Row] = [
    (
        "run",
        {"tokenizer": {"file": "tokenizer", "truncation": {"max_length": 8}, "padding": {"length": 7}}},
        "tokenizer.padding.length: 7: must be at least truncation.max_length, which is 8",
    ),
    (
        "run",
        {"tokenizer": {"train": {"special_tokens": ["a", "[UNK]", "a"]}}},
        "tokenizer.train.special_tokens: ['a', '[UNK]', 'a']: must name each token once; a occurs again",
    ),
    (
        "run",
        {"tokenizer": {"train": {"special_tokens": ["a"]}}},
        "tokenizer.train.special_tokens: ['a']: must contain '[UNK]', the unknown token",
    ),
    (
        "run",
        {"tokenizer": {"train": {"vocab_size": 4}}},
        "tokenizer.train.vocab_size: 4: must leave room for the 5 special tokens",
    ),
    (
        "run",
        {"tokenizer": {"train": {"special_tokens": ["[UNK]"]}, "padding": {"length": 3}}},
        "tokenizer.train.special_tokens: ['[UNK]']: must contain [PAD] because `padding` needs them",
    ),
    (
        "run",
        {"tokenizer": {"train": {"special_tokens": ["[UNK]"]}, "add_special_tokens": True}},
        "tokenizer.train.special_tokens: ['[UNK]']: must contain [CLS], [SEP] because `add_special_tokens` needs them",
    ),
    (
        "run",
        {"tokenizer": {}},
        "tokenizer: give file, a tokenizer on disk, or train, a vocabulary to learn from the input",
    ),
    (
        "run",
        {"tokenizer": {"file": None}},
        "tokenizer: give file, a tokenizer on disk, or train, a vocabulary to learn from the",
    ),
    (
        "run",
        {"tokenizer": {"file": "a", "train": {}}},
        "tokenizer: both file and train are given; remove one, exactly one of them",
    ),
    ("count", {"tokenizer": {"file": "a", "train": {}}}, "tokenizer: both file and train are given; remove one"),
    (
        "train",
        {"tokenizer": {"file": "a"}},
        "tokenizer.train: required by the job train, for example `train: {vocab_size: 8000}`",
    ),
    ("tokenize", {"tokenizer": {}}, "tokenizer.file: required by the job tokenize"),
    (
        "tokenize",
        {"tokenizer": {"train": {}}},
        "tokenizer.file: required by the job tokenize; to train and tokenize in one go use",
    ),
]

TRAINING: list[Row] = [
    (
        "train",
        {"tokenizer": {"train": {"model": "bpe", "rule": "frequency"}}},
        "tokenizer.train.rule: 'frequency': is an option of wordpiece, but model is 'bpe'",
    ),
    (
        "train",
        {"tokenizer": {"train": {"shrinking_factor": 0.5}}},
        "tokenizer.train.shrinking_factor: 0.5: is an option of unigram, but model is 'wordpiece'",
    ),
    (
        "train",
        {"tokenizer": {"train": {"shrinking_factor": "\udcff"}}},
        "tokenizer.train.shrinking_factor: '\\\\udcff': is an option of unigram, but model is 'wordpiece'",
    ),
    (
        "train",
        {"tokenizer": {"train": {"model": "bert"}}},
        "tokenizer.train.model: 'bert': allowed: wordpiece, bpe, byte_level_bpe, unigram, wordlevel, char",
    ),
    (
        "train",
        {"tokenizer": {"train": {"model": []}}},
        "tokenizer.train.model: []: allowed: wordpiece, bpe, byte_level_bpe, unigram, wordlevel, char",
    ),
    (
        "train",
        {"tokenizer": {"train": {"model": {"a": "b"}}}},
        "tokenizer.train.model: {'a': 'b'}: allowed: wordpiece, bpe, byte_level_bpe, unigram, wordlevel, char",
    ),
    (
        "train",
        {"tokenizer": {"train": {"vocab_size": []}}},
        "tokenizer.train.vocab_size: []: must have at least 1 element",
    ),
    (
        "train",
        {"tokenizer": {"train": {"vocab_size": [8, "9"]}}},
        "tokenizer.train.vocab_size.1: '9': must be an integer",
    ),
    (
        "train",
        {"tokenizer": {"train": {"vocab_size": [8000, 0]}}},
        "tokenizer.train.vocab_size.1: 0: must be at least 1",
    ),
    (
        "train",
        {"tokenizer": {"train": {"vocab_size": [8000, 8000]}}},
        "tokenizer.train.vocab_size: [8000, 8000]: must name each size once",
    ),
    (
        "train",
        {"tokenizer": {"train": {"vocab_size": [8000, 4]}}},
        "tokenizer.train.vocab_size: [8000, 4]: must leave room for the 5 special tokens",
    ),
    (
        "train",
        {"tokenizer": {"train": {"model": "unigram", "shrinking_factor": 1.0}}},
        "tokenizer.train.shrinking_factor: 1.0: must be less than 1.0",
    ),
    (
        "train",
        {"tokenizer": {"train": {"model": "unigram", "character_coverage": 0.0}}},
        "tokenizer.train.character_coverage: 0.0: must be greater than 0.0",
    ),
    (
        "train",
        {"tokenizer": {"train": {"model": "bpe", "special_tokens": ["a"]}}},
        "tokenizer.train.special_tokens: ['a']: must contain '<unk>', the unknown token",
    ),
    (
        "train",
        {"tokenizer": {"train": {"pre_tokenizer": "gpt3"}}},
        "tokenizer.train.pre_tokenizer: 'gpt3': allowed: bert, whitespace, ",
    ),
    (
        "train",
        {"tokenizer": {"train": {"model": "unigram", "normalizer": "sentencepiece"}}},
        "pre_tokenizer: 'whitespace_metaspace': must be none: normalizer sentencepiece cuts words itself",
    ),
    (
        "train",
        {"tokenizer": {"train": {"model": "bpe"}, "oov": "contain"}},
        "is for wordpiece, but train.model is 'bpe'; remove it",
    ),
    (
        "train",
        {
            "tokenizer": {
                "train": {"model": "char", "special_tokens": ["<unk>", "[CLS]", "[SEP]"]},
                "add_special_tokens": True,
            }
        },
        "is for wordpi",
    ),
    (
        "train",
        {"tokenizer": {"train": {"model": "unigram", "pre_tokenizer": "cl100k_base"}}},
        "for unigram, whose words have no spaces; or none with",
    ),
    (
        "train",
        {"tokenizer": {"train": {"model": "wordpiece", "normalizer": "sentencepiece", "pre_tokenizer": "none"}}},
        "is for bpe, unigram, char",
    ),
    (
        "train",
        {"tokenizer": {"train": {"model": "byte_level_bpe", "vocab_size": 256}}},
        "room for the 1 special tokens and 256 bytes",
    ),
    (
        "train",
        {"tokenizer": {"train": {"model": "bpe", "vocab_size": 3, "user_defined_symbols": ["x"]}}},
        "special tokens and the 1 user-defined symb",
    ),
]

COUNTS: list[Row] = [
    ("count", {"counts": {"by": ["language"]}}, "counts.by.0: 'language': allowed: source, lang; did you mean 'lang'?"),
    ("count", {"counts": {"by": ["source", "lang"]}}, "counts.by: ['source', 'lang']: must have at most 1 element"),
    (
        "count",
        {"counts": {"by": ["lang"]}},
        "counts.by: ['lang']: lang needs the section `languages`; `languages: {}` is enough",
    ),
    ("count", {"counts": {"sources": {"a": "b"}}}, "counts.sources: {'a': 'b'}: needs `by: [source]`"),
    ("count", {"counts": {"min_count": 0}}, "counts.min_count: 0: must be at least 1"),
    ("count", {"counts": {"max_words": 0}}, "counts.max_words: 0: must be at least 1"),
]

OUTPUT: list[Row] = [
    (
        "tokenize",
        {"output": {"format": ["parquet", "parquet"]}},
        "output.format: ['parquet', 'parquet']: must name each format once",
    ),
    (
        "tokenize",
        {"output": {"format": ["parquet", "megatrn"]}},
        "output.format.1: 'megatrn': allowed: parquet, tfrecord, arrow, mds, megatron, ",
    ),
    ("tokenize", {"output": {"format": []}}, "output.format: []: must have at least 1 element"),
    (
        "tokenize",
        {"output": {"format": ["parquet", "mds"], "compression": "zstd"}},
        "output.compression: 'zstd': mds allows auto, none",
    ),
    (
        "tokenize",
        {"output": {"format": "tfrecord", "packing": {"length": 8}}},
        "output.format: 'tfrecord': TFRecord holds documents only; packing ",
    ),
    ("tokenize", {"output": {"packing": {"length": 0}}}, "output.packing.length: 0: must be at least 1"),
    ("tokenize", {"output": {"packing": {"strategy": "best_fit"}}}, "output.packing.length: required but missing"),
    (
        "tokenize",
        {"output": {"packing": {"length": 8, "strategy": "bestfit"}}},
        "output.packing.strategy: 'bestfit': allowed: concatenate, best_fit",
    ),
    (
        "tokenize",
        {"output": {"packing": {"length": 8, "boundaries": []}}},
        "output.packing.boundaries: []: must have at least 1 element",
    ),
    (
        "tokenize",
        {"output": {"packing": {"length": 8, "boundaries": ["positions", "positions"]}}},
        "output.packing.boundaries: ['positions', 'positions']: must name each column once",
    ),
    (
        "tokenize",
        {"output": {"packing": {"length": 8, "incomplete": "short", "pad_token": "x"}}},
        "output.packing.pad_token: 'x': nothing is padded where incomplete is 'short'; remove one",
    ),
]

SOURCES = [
    ("input.paths=[x]", "input.paths: ['x']: sources have paths of their own"),
    ("input.keep_fields=[source]", "input.keep_fields: 'source': is the name of the source"),
    ("output.parts={by: source, shares: {a: 0.5, b: 0.5}}", "'source': would put a whole source into one"),
    ("input.sources.wiki.paths=[]", "input.sources.wiki.paths"),
    ("input.sources.wiki.messages_field=content", "is needed by all sources of a job, or by none"),
    ("input.sources.wiki.nope=1", "input.sources.wiki.nope: unknown key"),
    ("input.sources.wiki.text_feld=a", "input.sources.wiki.text_feld: unknown key; did you mean 'text_field'?"),
    ("input.sources.wiki.split_bytes=5", "input.sources.wiki.split_bytes: unknown key"),
    ("input.sources.a/b={paths: [x]}", "input.sources.a/b"),
    ("input.sources.wiki=x", "input.sources.wiki: 'x': must be a section"),
]

CHAT: list[Row] = [
    ("tokenize", {"normalize": ["nfc"]}, "normalize"),
    ("tokenize", {"input": {"messages_field": None}, "chat": {}}, "chat: 'given'"),
    (
        "tokenize",
        {"output": {"format": "megatron"}},
        "output.format: 'megatron': has no place for which tokens are trained",
    ),
    ("tokenize", {"output": {"format": "tfrecord", "labels": True}}, "output.format: 'tfrecord': has no place for"),
    ("tokenize", {"output": {"append": "</s>"}}, "output.append"),
    (
        "tokenize",
        {"output": {"for": "trl", "format": "mds"}},
        "output.format: 'mds': `for: trl` needs parquet or arrow",
    ),
    ("tokenize", {"output": {"for": "megatron", "format": "arrow"}}, "`for: megatron` needs parquet"),
    ("tokenize", {"output": {"for": "trl", "labels": False}}, "output.labels: false: `for: trl` decides it"),
    (
        "tokenize",
        {"output": {"for": "trl"}, "tokenizer": {"padding": {"length": 9}}},
        "tokenizer.padding: 'given': `for: trl`",
    ),
    (
        "tokenize",
        {"output": {"for": "trl", "packing": {"length": 9, "boundaries": ["positions"]}}},
        "needs cu_seqlens; add it",
    ),
    (
        "tokenize",
        {"output": {"for": "trl", "packing": {"length": 9, "incomplete": "pad"}}},
        "output.packing.incomplete: 'pad'",
    ),
    (
        "tokenize",
        {"output": {"for": "trl", "packing": {"length": 9, "pad_token": "</s>"}}},
        "nothing is padded with `for`",
    ),
    ("tokenize", {"output": {"fro": "trl"}}, "output.fro: unknown key; did you mean 'for'"),
    ("tokenize", {"output": {"for": "TRL"}}, "output.for: 'TRL'"),
    (
        "tokenize",
        {"input": {"messages_field": None}, "output": {"for": "trl"}},
        "output.for: 'trl': is for conversations",
    ),
    ("tokenize", {"output": {"packing": {"length": 8, "strategy": "concatenate"}}}, "take best_fit or no_split"),
    ("tokenize", {"output": {"packing": {"length": 2, "separator": "</s>"}}}, "output.packing.length: 2: too short"),
    (
        "tokenize",
        {"output": {"packing": {"length": 8}}, "tokenizer": {"truncation": {"max_length": 9}}},
        "tokenizer.truncation.max_length: 9: a packed sequence has room for 8 tokens",
    ),
    (
        "tokenize",
        {"input": {"messages_field": None}, "tokenizer": {"truncation": {"max_length": 9, "overflow": "leave_out"}}},
        "tokenizer.truncation.overflow: 'leave_out': is for conversations",
    ),
    (
        "tokenize",
        {"tokenizer": {"truncation": {"max_length": 9, "overflow": "leave_out", "side": "left"}}},
        "tokenizer.truncation.side: 'left': nothing is cut",
    ),
    ("tokenize", {"input": {"text_field": "content"}}, "input.messages_field"),
    ("tokenize", {"input": {"format": "text"}}, "input.messages_field"),
    ("tokenize", {"tokenizer": {"truncation": {"max_length": 8, "overflow": "rows"}}}, "tokenizer.truncation.overflow"),
    ("tokenize", {"chat": {"template": "{% for %}"}}, "chat.template: not a chat template"),
    ("tokenize", {"chat": {"template": "no/such/folder"}}, "chat.template"),
    ("tokenize", {"chat": {"template_name": "tools"}}, "no chat template 'tools'"),
    ("tokenize", {"chat": {"date": "soon"}}, "chat.date"),
    ("tokenize", {"chat": {"train": "user"}}, "chat.train"),
    ("tokenize", {"chat": {"train": ["asistant"]}}, "chat.train"),
    ("tokenize", {"chat": {"arguments": {"messages": []}}}, "chat.arguments"),
    ("tokenize", {"chat": {"template": "{{ strftime_now('%Y') }}"}}, "chat.date: the template asks"),
    ("tokenize", {"languages": {}}, "languages"),
]


WRONG_BEAM_OPTIONS = [
    ("--direct_running_mode=multi_threading", "say it by --mode"),
    ("--runner=DaskRunner", "loses data"),
    ("--runner=FlnkRunner", "--runner=FlnkRunner: Beam has no such runner; did you mean FlinkRunner? there are "),
    ("--max_cache_memory_usage_gb=1", "no such Beam option; did you mean --max_cache_memory_usage_mb?"),
]


def _told(capsys: pytest.CaptureFixture[str], words: str, *command: str) -> None:
    """The command ends with 2, and one line on stderr has the words; nothing is written."""
    before = sorted(Path().rglob("*"))
    assert cli.main([*command]) == 2
    printed, told = capsys.readouterr()
    assert printed == ""
    (line,) = told.splitlines()
    assert line.startswith("tokenmill: ")
    assert words in line
    assert sorted(Path().rglob("*")) == before


def _write(sections: dict[str, Any], **base: dict[str, Any]) -> str:
    """Writes a config in which keys of a section come after those of the base; a section that is null is left out."""
    merged = {
        name: {**base.get(name, {}), **keys} if isinstance(keys, dict) else keys for name, keys in sections.items()
    }
    Path("job.yaml").write_text(json.dumps({**base, **merged}), encoding="utf-8")
    return "job.yaml"


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with inputs of a line, and a tokenizer that has a chat template."""
    monkeypatch.chdir(tmp_path)
    Path("a.jsonl").write_text('{"text": "the mill"}\n', encoding="utf-8")
    Path("chat.jsonl").write_text('{"messages": [{"role": "user", "content": "the mill"}]}\n', encoding="utf-8")
    Path("tokenizer").mkdir()
    make_tokenizer().save("tokenizer/tokenizer.json")
    Path("tokenizer/tokenizer_config.json").write_text(
        json.dumps({"chat_template": TEMPLATES["chatml"], **NAMED}), encoding="utf-8"
    )


@pytest.mark.parametrize(("job", "sections", "words"), [*INPUT, *TOKENIZER, *TRAINING, *COUNTS, *OUTPUT])
def test_a_mistake_in_a_config(
    capsys: pytest.CaptureFixture[str], job: str, sections: dict[str, Any], words: str
) -> None:
    base: dict[str, Any] = {"input": {"paths": ["a.jsonl"]}, "tokenizer": {}, "output": {"path": "out"}}
    if "input" in sections:
        base["input"] = {}
    if "tokenizer" not in sections and job != "count":
        base["tokenizer"] = {"file": "tokenizer"}
    _told(capsys, words, job, _write(sections, **base))


@pytest.mark.parametrize(("setting", "words"), SOURCES)
def test_a_mistake_in_sources(capsys: pytest.CaptureFixture[str], setting: str, words: str) -> None:
    given = {"sources": {"wiki": {"paths": ["a.jsonl"]}, "news": {"paths": ["chat.jsonl"]}}}
    base = {"input": given, "tokenizer": {"file": "tokenizer"}, "output": {"path": "out"}}
    _told(capsys, words, "run", _write({}, **base), "--set", setting)


@pytest.mark.parametrize(("job", "sections", "words"), CHAT)
def test_a_mistake_in_a_job_of_conversations(
    capsys: pytest.CaptureFixture[str], job: str, sections: dict[str, Any], words: str
) -> None:
    given = {"paths": ["chat.jsonl"], "messages_field": "messages"}
    base = {"input": given, "tokenizer": {"file": "tokenizer"}, "output": {"path": "out"}}
    _told(capsys, words, job, _write(sections, **base))


@pytest.mark.parametrize(("option", "words"), WRONG_BEAM_OPTIONS)
def test_a_mistake_in_options_of_beam(capsys: pytest.CaptureFixture[str], option: str, words: str) -> None:
    base = {"input": {"paths": ["a.jsonl"]}, "tokenizer": {"file": "tokenizer"}, "output": {"path": "out"}}
    _told(capsys, words, "tokenize", _write({}, **base), "--", option)
