# SPDX-License-Identifier: Apache-2.0
"""Malicious inputs: each is a folder of files, a config and a vocabulary, made from a number and nothing else."""

import bz2
import gzip
import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

VOCABULARY = [
    "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(chr(c) for c in range(33, 127)),
    *(f"##{chr(c)}" for c in range(33, 127)), "the", "mill", "##ing", "grind", "text", "玫", "瑰", "привет",
]  # fmt: skip

_NAUGHTY = [
    "", " ", "\0", "\x7f\x80", "\u200b", "\ufeff", "\u2028\u2029", "\u202e\u2066", "\ufffe\uffff", "\U0010ffff",
    "null", "undefined", "NaN", "-0", "1e999", "0x7fffffff", "../../etc/passwd", "'; DROP TABLE x; --", "<script>",
    "Z̸̧͑a̷l̵g̶o", "e\u0301" * 40, "\u0301" * 300, "👩‍👩‍👧‍👦🏳️‍🌈" * 5, "ﷺ" * 20, "İıßﬃǅ", "田中さん", "ﬀ\u00ad\u034f",
    "[UNK][PAD]", "a" * 5000, "ab " * 3000, "\t\v\f\x1c\x85\xa0\u3000", "${jndi:ldap://x}", "%s%n%x", "{{7*7}}",
    "\x1b[31m",
]  # fmt: skip
_BROKEN_UTF8 = [
    b"\xff", b"\xc0\xaf", b"\xe0\x80\x80", b"\xed\xa0\x80", b"\xed\xbf\xbf", b"\xf4\x90\x80\x80",
    b"\xf8\x88\x80\x80\x80", b"\x80", b"\xc3", b"\xe2\x82", b"\xf0\x9f\x98", b"\xfe\xff", b"\xff\xfe\0\0",
]  # fmt: skip
_BROKEN_JSON = [
    b"null", b"[]", b'""', b"{", b"}", b"{}", b'{"text"}', b'{"text":}', b'{"text": "a"',
    b'{"text": "a"} {"text": "b"}', b'{"text": null}', b'{"text": 1}', b'{"text": NaN}', b'{"text": ["a"]}',
    b'{"text": {"text": "a"}}', b"\xef\xbb\xbf", b'{"text": "\\ud800"}', b'{"text": "\\udc00\\ud800"}',
    b'{"text": "\\u0000"}', b'{"text": "\\x"}', b'{"text": "a\tb"}', b'{"text": "a", "text": "b"}',
    b'{"text": "a", "id": true}', b'{"text": "a", "id": -0}', b'{"text": "a", "id": "\\ud8"}',
    b'{"text": "a", "id": 1e400}', b'{"text": "a", "n": ' + b"9" * 5000 + b"}", b"[" * 100_000, b'{"a":' * 300 + b"1",
    b'{"text": "a", "x": ' + b"[" * 250 + b"]" * 250 + b"}", b'{"\\ud800": 1, "text": "a"}', b"\0", b"{\0}",
    b" \t\r ",
]  # fmt: skip
_ENDS = [b"\n", b"\n", b"\n", b"\r\n", b"\n\n", b"\r", b"", b"\n \n"]

Files = dict[str | bytes, bytes]


def make(number: int, folder: Path) -> dict[str, Any]:
    """Writes the input with this number into `folder`; returns {"kind", "config"}, the path of its config."""
    rng = random.Random(number)
    kind = rng.choice(sorted(_KINDS))
    corpus = folder / "corpus"
    corpus.mkdir(parents=True)
    settings = _settings(rng)
    files = _KINDS[kind](rng, settings)
    # Thousands of splits would be much work but no attack: a split is a shard, a ledger entry and some synced files.
    n_bytes = sum(map(len, files.values()))
    settings["input"]["split_bytes"] = max(settings["input"]["split_bytes"], n_bytes // 100)
    for name, data in files.items():
        with open(os.path.join(os.fsencode(corpus), os.fsencode(name)), "wb") as handle:
            handle.write(data)
    vocabulary = "".join(f"{token}\n" for token in VOCABULARY).encode()
    name = "vocab.txt"
    if kind == "tokenizer":
        name, vocabulary = _tokenizer(rng, vocabulary)
    (folder / name).write_bytes(vocabulary)
    settings["input"] = {"paths": [str(corpus / "*")], **settings["input"]}
    settings["tokenizer"]["file"] = str(folder / name)
    settings["output"]["path"] = str(folder / "out")
    config = json.dumps(settings, indent=1).encode()
    (folder / "job.yaml").write_bytes(_config(rng, config) if kind == "config" else config)
    if kind == "names" and rng.random() < 0.5:
        for link, target in (("loop.jsonl", "loop.jsonl"), ("nowhere.jsonl", "nothing"), ("up.jsonl", "..")):
            if rng.random() < 0.3:
                os.symlink(target, corpus / link)
        if rng.random() < 0.3:
            os.mkfifo(corpus / "pipe.jsonl")
    return {"kind": kind, "config": str(folder / "job.yaml")}


def _settings(rng: random.Random) -> dict[str, Any]:
    settings: dict[str, Any] = {"input": {}, "tokenizer": {}, "output": {}}
    settings["input"]["split_bytes"] = rng.choice([100, 1000, 50_000, 1 << 25])
    settings["input"]["max_document_bytes"] = rng.choice([50, 3000, 1 << 20])
    settings["tokenizer"]["oov"] = rng.choice([None, "word", "contain", "char"])
    settings["tokenizer"]["add_special_tokens"] = rng.random() < 0.5
    if rng.random() < 0.3:
        settings["tokenizer"]["truncation"] = {"max_length": 8, "side": rng.choice(["left", "right"])}
        if rng.random() < 0.5:
            settings["tokenizer"]["padding"] = {"length": 16, "side": rng.choice(["left", "right"])}
    settings["output"]["format"] = rng.choice(["parquet", "parquet", "tfrecord"])
    return settings


def _text(rng: random.Random) -> str:
    parts = [rng.choice(_NAUGHTY) if rng.random() < 0.5 else rng.choice(VOCABULARY) for _ in range(rng.randint(0, 8))]
    if rng.random() < 0.3:
        parts.append("".join(chr(_code_point(rng)) for _ in range(rng.randint(1, 50))))
    return rng.choice([" ", "", "\n"]).join(parts)


def _code_point(rng: random.Random) -> int:
    code = rng.randrange(rng.choice([0x80, 0x800, 0x10000, 0x110000]))
    return 0x41 if 0xD800 <= code < 0xE000 else code


def _mutate(rng: random.Random, data: bytes) -> bytes:
    """Returns data with some bytes changed, cut out or doubled, or with its end missing."""
    changed = bytearray(data)
    for _ in range(rng.choice([0, 1, 1, 2, 10])):
        if not changed:
            break
        i = rng.randrange(len(changed))
        match rng.randrange(5):
            case 0:
                changed[i] = rng.randrange(256)
            case 1:
                changed[i] ^= 1 << rng.randrange(8)
            case 2:
                del changed[i : i + rng.choice([1, 4, 100])]
            case 3:
                changed[i:i] = changed[i : i + rng.choice([1, 4, 100])]
            case _:
                changed[i : i + 4] = rng.choice([b"\0\0\0\0", b"\xff\xff\xff\xff", b"\xff\xff\xff\x7f", b"\n\n\n\n"])
    if rng.random() < 0.2:
        del changed[rng.randint(0, len(changed)) :]
    return bytes(changed)


def _line(rng: random.Random) -> bytes:
    chance = rng.random()
    if chance < 0.25:
        return rng.choice(_BROKEN_JSON)
    if chance < 0.35:
        return b'{"text": "' + rng.choice(_BROKEN_UTF8) + b'"}'
    if chance < 0.4:
        return rng.randbytes(rng.choice([1, 10, 1000]))
    record: dict[str, Any] = {"text": _text(rng)}
    if rng.random() < 0.5:
        record["id"] = rng.choice([_text(rng), rng.randint(-5, 1 << 70), None, True, 1.5])
    data = json.dumps(record, ensure_ascii=rng.random() < 0.5).encode()
    return _mutate(rng, data) if chance < 0.55 else data


def _jsonl_data(rng: random.Random) -> bytes:
    data = b"".join(_line(rng) + rng.choice(_ENDS) for _ in range(rng.choice([0, 1, 3, 30])))
    return (b"\xef\xbb\xbf" + data) if rng.random() < 0.1 else data


def _text_data(rng: random.Random) -> bytes:
    parts = []
    for _ in range(rng.choice([0, 1, 5, 50])):
        parts.append(rng.choice(_BROKEN_UTF8) if rng.random() < 0.15 else _text(rng).encode())
        parts.append(rng.choice(_ENDS))
    return (b"\xef\xbb\xbf" if rng.random() < 0.1 else b"") + b"".join(parts)


def _jsonl(rng: random.Random, settings: dict[str, Any]) -> Files:
    return {f"{i}.jsonl": _jsonl_data(rng) for i in range(rng.randint(1, 3))}


def _plain(rng: random.Random, settings: dict[str, Any]) -> Files:
    settings["input"]["document"] = rng.choice(["line", "file", "blank_line"])
    return {f"{i}.txt": _text_data(rng) for i in range(rng.randint(1, 3))}


def _mixed(rng: random.Random, settings: dict[str, Any]) -> Files:
    return {**_jsonl(rng, settings), **_plain(rng, settings), **_compressed(rng, settings), **_parquet(rng, settings)}


def _compressed(rng: random.Random, settings: dict[str, Any]) -> Files:
    files: Files = {}
    for i in range(rng.randint(1, 3)):
        data = _jsonl_data(rng)
        if rng.random() < 0.03:
            data = rng.choice([b"\0", b" ", b"\n", b'{"text": "a"}\n']) * rng.choice([1 << 20, 1 << 22])
        name, pack = rng.choice([("gz", _gzip), ("zst", zstandard.compress), ("bz2", bz2.compress)])
        packed = pack(data)
        match rng.randrange(6):
            case 0:
                packed = packed[: rng.randint(0, len(packed))]
            case 1:
                packed = _mutate(rng, packed)
            case 2:
                packed += pack(_jsonl_data(rng))
            case 3:
                packed += rng.choice([b"\0" * 100, b"garbage", packed[:5]])
            case 4:
                packed = pack(packed)  # twice
            case _:
                pass
        files[f"{i}.jsonl.{name}"] = packed
    return files


def _gzip(data: bytes) -> bytes:
    return gzip.compress(data, mtime=0)


def _parquet(rng: random.Random, settings: dict[str, Any]) -> Files:
    kind = rng.choice([pa.string(), pa.large_string(), pa.binary(), pa.dictionary(pa.int32(), pa.string()), pa.int64()])
    rows: list[Any] = [None if rng.random() < 0.1 else _text(rng) for _ in range(rng.choice([0, 1, 20]))]
    if pa.types.is_binary(kind):
        rows = [row if row is None else rng.choice([row.encode(), rng.choice(_BROKEN_UTF8)]) for row in rows]
    if pa.types.is_integer(kind):
        rows = [row if row is None else len(row) for row in rows]
    ids = [rng.choice([None, rng.randint(0, 9)]) for _ in rows]
    name = rng.choice(["text", "text", "text", "body"])
    table = pa.table({name: pa.array(rows, kind), "id": pa.array(ids, pa.int64())})
    sink = pa.BufferOutputStream()
    compression = rng.choice(["none", "snappy", "zstd"])
    pq.write_table(table, sink, row_group_size=rng.choice([1, 7, 100]), compression=compression)
    data = sink.getvalue().to_pybytes()
    chance = rng.random()
    if chance < 0.4:  # pages only: a footer that is damaged is found when the job is planned
        pages = bytearray(data)
        for _ in range(rng.choice([1, 1, 5])):
            pages[rng.randrange(4, len(pages) // 2)] = rng.randrange(256)
        data = bytes(pages)
    return {"0.parquet": _mutate(rng, data) if chance > 0.8 else data}


def _names(rng: random.Random, settings: dict[str, Any]) -> Files:
    names: list[str | bytes] = [
        "-rf.jsonl", " .jsonl", "a\nb.jsonl", "[x].jsonl", "*.jsonl", "a'\"b.jsonl", "%00.jsonl", "é.jsonl",
        "e\u0301.jsonl", "\u202e.jsonl", "con.jsonl", "a:b.jsonl", "{}.jsonl", "x" * 240 + ".jsonl", "..jsonl",
        ".jsonl", "~.jsonl", "a.JSONL", "manifest.json", "x.unknown", "noend", "a.jsonl.gz", "a.parquet",
        b"\xff.jsonl",
    ]  # fmt: skip
    return {name: _jsonl_data(rng) for name in rng.sample(names, rng.randint(1, 5))}


def _tiny(rng: random.Random, settings: dict[str, Any]) -> Files:
    data = [b"", b"\n", b'{"text": "the mill"}', b"x"]
    return {f"{i}.jsonl": rng.choice(data) for i in range(rng.choice([1, 50, 200]))}


def _empty(rng: random.Random, settings: dict[str, Any]) -> Files:
    name = rng.choice(["a.jsonl", "a.txt", "a.parquet", "a.jsonl.gz", "a.jsonl.zst", "a.jsonl.bz2"])
    return rng.choice([{}, {name: b""}, {name: b"\xef\xbb\xbf"}, {name: b"\n"}, {name: b"\0"}])


def _config(rng: random.Random, config: bytes) -> bytes:
    values = [
        b"null", b"-1", b"1e99", b'""', b"[]", b"{}", b"*a", b"&a [*a]", b"!!python/object:os.system x", b"\xff",
        b"0",
    ]  # fmt: skip
    chance = rng.random()
    if chance < 0.4:
        return _mutate(rng, config)
    lines = config.split(b"\n")
    i = rng.randrange(len(lines))
    key, colon, _ = lines[i].partition(b":")
    lines[i] = key + colon + b" " + rng.choice(values) + b"," if colon else rng.choice(values)
    if chance < 0.5:
        deep = [b"[" * 20_000, b"a: " * 1000, b"- " * 30_000]
        return rng.choice([b"", *deep, b"\0", rng.randbytes(300), b"x: &a [*a, *a]"])
    return b"\n".join(lines)


def _tokenizer(rng: random.Random, vocabulary: bytes) -> tuple[str, bytes]:
    if rng.random() < 0.5:
        return "vocab.txt", rng.choice([_mutate(rng, vocabulary), vocabulary * 2, b"", b"\n\n", rng.randbytes(500)])
    vocab = {token: i for i, token in enumerate(dict.fromkeys(VOCABULARY))}
    model: dict[str, Any] = {
        "version": "1.0",
        "normalizer": {
            "type": "BertNormalizer", "lowercase": True, "clean_text": True,
            "handle_chinese_chars": True, "strip_accents": None,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "model": {
            "type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100, "vocab": vocab,
        },
    }  # fmt: skip
    section = rng.choice([model, model["model"], model["normalizer"], vocab])
    for _ in range(rng.randint(0, 3)):
        values: list[Any] = [None, -1, 1 << 70, 1.5, "", "x", [], {}, True, [[]] * 50, {"type": "Sequence", "x": []}]
        section[rng.choice(sorted(section))] = rng.choice(values)
    data = json.dumps(model).encode()
    return "tokenizer.json", _mutate(rng, data) if rng.random() < 0.4 else data


_KINDS: dict[str, Callable[[random.Random, dict[str, Any]], Files]] = {
    "jsonl": _jsonl, "text": _plain, "mixed": _mixed, "compressed": _compressed, "parquet": _parquet, "names": _names,
    "tiny": _tiny, "empty": _empty, "config": _jsonl, "tokenizer": _jsonl,
}  # fmt: skip
