# SPDX-License-Identifier: Apache-2.0
"""The golden record: small jobs that cover pairs of all features, and the digest of every final file that they write.

Here they run inline, in threads or in processes in turn; `test_scenario.py` takes each of them inline from its plan,
through kills, to its replay.

It is the promise that the next version writes the same bytes. A change that breaks it on purpose writes the record
again, `TOKENMILL_GOLDEN=write pytest tests/end_to_end/test_golden.py`, and has a line marked **bytes** in CHANGELOG.md.
"""

import contextlib
import csv
import gzip
import hashlib
import io
import json
import os
import zipfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tokenmill.pipeline import cli

RECORD = Path(__file__).with_name("golden.json")
NOT_BYTES = ("clock.json", "report.html")
"""They hold times."""
WITH_CONFIG = ("manifest.json", "parts.json", "counts.json", "training.json")
"""A new key of the config changes them, and what is private: the ledger and the files of splits that it names."""

FIM = ["<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"]
BERT = {"file": "vocab.txt", "max_unknown_fraction": 1.0}
BYTES = {"file": "bytes.json"}
BPE = {"train": {"model": "byte_level_bpe", "vocab_size": 420, "special_tokens": ["<|end|>", "<|pad|>", *FIM]}}
END = "<|end|>"
TEMPLATE = (
    "{% for message in messages %}<|{{ message.role }}|>{{ message.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
JSONL: dict[str, Any] = {"paths": ["a.jsonl"], "split_bytes": 8000, "on_damage": "warn"}
CHAT: dict[str, Any] = {"paths": ["chat.jsonl"], "messages_field": "messages", "split_bytes": 3000}
MODES = ("inline", "threads", "processes")
SHARES = {"train": 0.7, "validation": 0.3}

JOBS: dict[str, tuple[str, dict[str, Any]]] = {
    "plain": ("tokenize", {"input": {**JSONL, "keep_fields": ["meta.url", "score"]}, "tokenizer": BERT}),
    "csv-tfrecord": (
        "tokenize",
        {
            "input": {"paths": ["a.csv"], "keep_fields": ["score"], "split_bytes": 4000},
            "tokenizer": {**BERT, "add_special_tokens": True, "truncation": {"max_length": 40}},
            "output": {"format": ["tfrecord", "memmap"]},
        },
    ),
    "parquet-windows": (
        "tokenize",
        {
            "input": {"paths": ["a.parquet"]},
            "tokenizer": {**BERT, "truncation": {"max_length": 32, "overflow": "rows", "stride": 8}},
            "output": {"format": ["parquet", "arrow"]},
        },
    ),
    "wet-concatenated": (
        "run",
        {"input": {"paths": ["*.wet.gz"]}, "tokenizer": BPE, "output": {"packing": {"length": 128, "separator": END}}},
    ),
    "zip-whole-documents": (
        "run",
        {
            "input": {"paths": ["a.zip"], "document": "file"},
            "tokenizer": BPE,
            "output": {"packing": {"length": 200, "strategy": "no_split", "separator": END}, "format": ["mds"]},
        },
    ),
    "best-fit-shuffled": (
        "run",
        {
            "input": JSONL,
            "tokenizer": BPE,
            "output": {
                "packing": {"length": 256, "strategy": "best_fit", "separator": END, "incomplete": "short"},
                "shuffle": {"seed": 7, "shards": 3, "run_bytes": 4096},
            },
        },
    ),
    "padded-megatron": (
        "tokenize",
        {
            "input": {"paths": ["a.txt"], "document": "blank_line"},
            "tokenizer": {**BERT, "truncation": {"max_length": 64, "side": "left"}, "padding": {"length": 64}},
            "output": {"format": ["parquet", "tfrecord"], "append": "[SEP]", "prepend": "[CLS]"},
        },
    ),
    "megatron": ("run", {"input": JSONL, "tokenizer": BPE, "output": {"format": ["megatron"], "append": END}}),
    "shares-shuffled": (
        "run",
        {
            "input": JSONL,
            "tokenizer": BPE,
            "output": {"parts": {"shares": SHARES}, "shuffle": {"shards": 2}, "format": ["parquet", "megatron"]},
        },
    ),
    "by-language": (
        "tokenize",
        {
            "input": JSONL,
            "tokenizer": {"max_unknown_fraction": 1.0},
            "languages": {"rules": {"en": ["nfc"]}},
            "output": {"parts": {"by": "lang", "tokenizers": {"en": "vocab.txt", "default": "vocab.txt"}}},
        },
    ),
    "languages": ("run", {"input": JSONL, "tokenizer": BPE, "languages": {"threshold": 0.3, "drop": ["de", "zh"]}}),
    "chat": (
        "tokenize",
        {
            "input": CHAT,
            "tokenizer": BYTES,
            "chat": {"template": TEMPLATE},
            "output": {"format": ["parquet", "tfrecord"]},
        },
    ),
    "chat-packed": (
        "tokenize",
        {
            "input": CHAT,
            "tokenizer": BYTES,
            "chat": {"template": TEMPLATE, "train": "last_assistant"},
            "output": {"labels": True, "shuffle": {"shards": 1}, "packing": {"length": 900, "separator": END}},
        },
    ),
    "fim-packed": (
        "run",
        {
            "input": JSONL,
            "tokenizer": BPE,
            "output": {"fim": {"rate": 0.6, "level": "token"}, "packing": {"length": 100, "separator": END}},
        },
    ),
    "spans": (
        "run",
        {
            "input": JSONL,
            "normalize": ["nfkc", "html_entities", {"whitespace": {"newlines": "space"}}],
            "spans": [{"token": "[URL]", "find": "url", "keep_source": True}],
            "tokenizer": {"train": {"vocab_size": 300, "limit_alphabet": 80}, "oov": "contain"},
        },
    ),
    "sources": (
        "tokenize",
        {
            "input": {
                "sources": {
                    "web": {"paths": ["a.jsonl"], "on_damage": "warn"},
                    "table": {"paths": ["a.csv"], "sample": 0.5},
                },
                "keep_fields": ["score"],
            },
            "tokenizer": BERT,
        },
    ),
    "sources-shuffled": (
        "tokenize",
        {
            "input": {
                "sources": {"table": {"paths": ["a.csv"]}, "web": {"paths": ["a.jsonl"], "on_damage": "warn"}},
                "keep_fields": {"score": "double"},
                "split_bytes": 6000,
            },
            "tokenizer": BERT,
            "output": {
                "format": ["parquet", "mds", "memmap"],
                "packing": {"length": 64, "separator": "[SEP]"},
                "shuffle": {"seed": 3, "shards": 2},
            },
        },
    ),
    "sources-in-parts": (
        "tokenize",
        {
            "input": {"sources": {"table": {"paths": ["a.parquet"]}, "rows": {"paths": ["a.arrow"]}}},
            "tokenizer": BERT,
            "languages": {},
            "output": {"parts": {"shares": SHARES}, "format": ["arrow", "tfrecord"]},
        },
    ),
    "array-windows-shuffled": (
        "tokenize",
        {
            "input": {"paths": ["a.json"], "keep_fields": ["meta", "score"], "split_bytes": 5000},
            "tokenizer": {**BERT, "truncation": {"max_length": 48, "overflow": "rows"}, "add_special_tokens": True},
            "output": {"shuffle": {"shards": 3}, "format": ["mds", "megatron"], "append": "[MASK]"},
        },
    ),
    "by-language-trained": (
        "run",
        {
            "input": JSONL,
            "counts": {"by": ["lang"], "languages": ["en", "zh"]},
            "languages": {},
            "tokenizer": {"train": {"vocab_size": 400, "limit_alphabet": 60}, "max_unknown_fraction": 1.0},
            "output": {"parts": {"by": "lang", "train": True}},
        },
    ),
    "spans-and-languages-shuffled": (
        "run",
        {
            "input": JSONL,
            "languages": {"threshold": 0},
            "spans": [{"token": "[URL]", "find": "url", "keep_source": True}],
            "tokenizer": {"train": {"vocab_size": 300, "limit_alphabet": 80}, "max_unknown_fraction": 1.0},
            "output": {"shuffle": {"shards": 2}, "format": ["parquet", "arrow"]},
        },
    ),
    "counts": ("count", {"input": JSONL, "counts": {"by": ["source"], "sources": {"a": "*a.jsonl"}}}),
    "unigram": (
        "train",
        {"input": JSONL, "tokenizer": {"train": {"model": "unigram", "vocab_size": [1500, 1400]}}},
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> Path:
    """A folder of inputs of which every byte is given: texts in many scripts, in each format."""
    folder = tmp_path_factory.mktemp("golden")
    lines = (repository / "configs/data/multilingual.jsonl").read_text(encoding="utf-8").splitlines()
    texts = [json.loads(line)["text"] for line in lines]
    texts += [f"{texts[i]} &amp; {texts[-i]} https://example.org/{i}?q=1\n\n{texts[i // 2]}" for i in range(60)] + [""]
    records = [
        {"id": f"d{i}", "text": text, "score": i / 4, "meta": {"url": f"https://example.org/{i}"}}
        for i, text in enumerate(texts)
    ]
    plain = "".join(json.dumps(record, ensure_ascii=i % 2 == 0) + "\n" for i, record in enumerate(records))
    (folder / "a.jsonl").write_text(plain + "not json\n", encoding="utf-8")
    cells = io.StringIO(newline="")
    writer = csv.writer(cells, lineterminator="\n")
    writer.writerows([["id", "text", "score"], *([r["id"], r["text"], r["score"]] for r in records)])
    (folder / "a.csv").write_text(cells.getvalue(), encoding="utf-8", newline="")
    table = pa.Table.from_pylist(records)
    pq.write_table(table, folder / "a.parquet", row_group_size=50)
    with pa.ipc.new_file(folder / "a.arrow", table.schema) as file:
        file.write_table(table.slice(0, 40), max_chunksize=16)
    (folder / "a.json").write_text(json.dumps(records[:90]), encoding="utf-8")
    (folder / "a.txt").write_text("\n\n".join(text.strip() for text in texts), encoding="utf-8")
    (folder / "a.wet.gz").write_bytes(gzip.compress(b"".join(map(_wet, texts)), 0, mtime=0))
    with zipfile.ZipFile(folder / "a.zip", "w") as archive:
        for i, text in enumerate(texts):
            archive.writestr(zipfile.ZipInfo(f"code/{i:03}.txt", (2026, 1, 1, 0, 0, 0)), text)
    (folder / "chat.jsonl").write_text("".join(map(_conversation, texts[:80], texts[1:])), encoding="utf-8")
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    letters = sorted({c for text in texts for c in text.lower() if not c.isspace()})[::2]
    words = sorted({word for text in texts for word in text.lower().split() if word.isalpha()})
    vocabulary = [*special, *letters, *(f"##{c}" for c in letters), *(word for word in words if len(word) > 1)]
    (folder / "vocab.txt").write_text("\n".join(vocabulary) + "\n", encoding="utf-8")
    (folder / "bytes.json").write_text(json.dumps(_byte_level()), encoding="utf-8")
    for path in folder.iterdir():
        os.utime(path, (1_000_000_000, 1_000_000_000))  # ledger entries tell which version of a file was read
    return folder


def _byte_level() -> dict[str, Any]:
    """Returns a tokenizer.json of single bytes, two merges and special tokens."""
    units = [*"!\"#$%&'()*+,-./", *map(chr, range(48, 127)), *map(chr, range(161, 173)), *map(chr, range(174, 256))]
    units += map(chr, range(256, 256 + 68))
    vocab = {unit: i for i, unit in enumerate([*units, "th", "the"])}
    added = [END, "<|system|>", "<|user|>", "<|assistant|>"]
    flags = {"special": True, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    model = {"type": "BPE", "vocab": vocab, "merges": ["t h", "th e"]}
    tokens = [{"id": len(vocab) + i, "content": token, **flags} for i, token in enumerate(added)]
    return {"version": "1.0", "added_tokens": tokens, "pre_tokenizer": level, "decoder": level, "model": model}


def _wet(text: str) -> bytes:
    body = text.encode()
    head = f"WARC/1.0\r\nWARC-Type: conversion\r\nWARC-Target-URI: https://example.org/{len(body)}\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body + b"\r\n\r\n"


def _conversation(ask: str, answer: str) -> str:
    messages = [("system", "Be brief."), ("user", ask), ("assistant", f"{answer}."), ("user", "More?")]
    turns = [{"role": role, "content": content} for role, content in [*messages, ("assistant", "No.")]]
    return json.dumps({"messages": turns}) + "\n"


def words(name: str, *arguments: str, mode: str = "inline") -> list[str]:
    """Writes the config of a job into this folder, and returns the command that runs it."""
    command, sections = JOBS[name]
    config = {**sections, "output": {"path": name, **sections.get("output", {})}}
    Path(f"{name}.json").write_text(json.dumps(config), encoding="utf-8")
    return [command, f"{name}.json", "--mode", mode, *arguments]


def digests(folder: Path) -> dict[str, str]:
    """Returns SHA-256 of the final files by name; of those with the job's config in them only what was counted."""
    found = {}
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        name, data = path.relative_to(folder).as_posix(), path.read_bytes()
        if path.name in WITH_CONFIG:
            data = json.dumps(json.loads(data).get("totals"), sort_keys=True).encode()
        if path.name not in NOT_BYTES and not {"_ledger", "_counts"} & set(path.parts):
            found[name] = hashlib.sha256(data).hexdigest()[:16]
    return found


def recorded() -> dict[str, Any]:
    """Returns the record; skips where pyarrow is another."""
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    if record["pyarrow"] != pa.__version__:
        pytest.skip(f"the record is of pyarrow {record['pyarrow']}, whose files have other bytes")
    return record


@pytest.mark.parametrize("name", JOBS)
def test_a_job_writes_the_bytes_of_the_record(corpus: Path, name: str) -> None:
    record = recorded()
    mode = MODES[[*JOBS].index(name) % len(MODES)]
    with contextlib.chdir(corpus):
        assert cli.main(words(name, "--overwrite", "--workers", "1" if mode == "inline" else "2", mode=mode)) == 0
        found = digests(corpus / name)
    assert len(found) > 3
    if os.environ.get("TOKENMILL_GOLDEN") == "write":
        record["jobs"][name] = found
        RECORD.write_text(json.dumps(record, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    assert found == record["jobs"][name]
