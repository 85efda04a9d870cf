# SPDX-License-Identifier: Apache-2.0
"""Malicious Arrow arrays for every public function that takes Arrow data, each made from a number and nothing else.

A function either refuses an array, by a ValueError or TypeError that says why, or its result is a valid array that does
not depend on how its input lies in memory: an array of valid text gives what a plain list of its texts gives, and text
that is not UTF-8 is refused.
"""

import functools
import itertools
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

Entry = Callable[[Any], Any]

_TEXTS = [
    "", "the mill", "grinding text", "naïve café", "東京都は日本の首都", "привет мир", "👩‍👩‍👧‍👦🏳️‍🌈", "कुत्ता", "한국어",
    "ไทย", "\0", "[UNK] [CLS]", "https://example.org/a?b=c me@example.org #tag", "e\u0301" * 9, "a" * 300,
    " \n\t ", "ﷺﬃ１２", "▁x",
]  # fmt: skip
_BROKEN = [
    b"\xe9", b"caf\xe9 text", b"\xff\xfe", b"\xf0\x9f\x98", b"\xe6\x9d", b"\xb1", b"\xed\xa0\x80", b"\xc0\xaf",
    b"a\xf4\x90\x80\x80",
]  # fmt: skip
_WIDTHS = {pa.string(): np.int32, pa.large_string(): np.int64}
_NUMBERS = [-(1 << 31), -1, 0, 1, 7, 1 << 20, (1 << 31) - 1]


def run_one(number: int, folder: Path) -> str:
    """Gives one array to one function; returns "proven: name", "refused: name" or what is wrong."""
    folder.mkdir(parents=True)
    rng = random.Random(number)
    name = rng.choice(sorted(_entries()))
    kind, call = _entries()[name]
    try:
        made, expected = _MAKERS[kind](rng)
    except pa.ArrowInvalid:
        return "refused: by Arrow, when it was made"
    try:
        found = call(made)
    except MemoryError:  # views may share their bytes, so a small array can stand for gigabytes
        return f"refused: {name}"
    except (ValueError, TypeError) as error:
        if not str(error).strip():
            return f"silent: {name}: {type(error).__name__} without a message"
        return f"refused: {name}" if not expected else f"wrong: {name}: refuses {expected!r:.300}: {error}"
    if expected is None and isinstance(made, pa.Array) and not len(made):
        expected = []  # where an array without rows begins is its own affair
    if expected is None:
        return f"wrong: {name}: takes {getattr(made, 'type', made)!r:.300}, gives {found!r:.300}"
    for part in found if isinstance(found, tuple) else (found,):
        if isinstance(part, pa.Array | pa.Table | pa.ChunkedArray | pa.RecordBatch):
            part.validate(full=True)
    wanted = call(_plain(kind, expected))
    is_equal = _values(found) == _values(wanted)
    return f"proven: {name}" if is_equal else f"wrong: {name}: {found!r:.300} is not {wanted!r:.300}"


def warm_up() -> None:
    """Calls every function once, so that no input waits for kernels to be compiled."""
    plain = {"text": [text or None for text in _TEXTS], "ids": [[1, 2], []], "counts": [(b"mill", 2), (b"x", 1)]}
    plain["column"] = [*_TEXTS]
    for kind, call in _entries().values():
        call(_plain(kind, plain[kind]))


def _values(result: Any) -> Any:
    if isinstance(result, tuple | list):
        return [_values(part) for part in result]
    if isinstance(result, np.ndarray):
        return result.tolist()
    return result.to_pylist() if hasattr(result, "to_pylist") else result


# The arrays: each maker returns one, and the values it holds, or None if it must be refused.


def _rows(rng: random.Random) -> list[bytes | None]:
    broken = rng.random() < 0.3
    rows: list[bytes | None] = []
    for _ in range(rng.choice([0, 1, 2, 5, 40])):
        parts = [rng.choice(_TEXTS).encode() for _ in range(rng.randint(0, 4))]
        if broken and rng.random() < 0.3:
            parts.insert(rng.randint(0, len(parts)), rng.choice([*_BROKEN, rng.randbytes(9)]))
        rows.append(None if rng.random() < 0.1 else b" ".join(parts))
    return rows


def _text(rng: random.Random) -> tuple[Any, Any]:
    rows = _rows(rng)
    expected = _decoded(rows)
    chance = rng.random()
    if chance < 0.05:
        others = [pa.array(rows, pa.binary()), pa.array([True]), pa.array([[b"a"]]), pa.array([1.5])]
        return rng.choice([*others, "text", {"a": 1}, None, [1], [b"a"]]), None
    if chance < 0.1:
        nulls = [None] * len(rows)
        return pa.array(nulls, pa.null()), nulls
    if chance < 0.25:
        return _views(rng, rows)
    if chance < 0.4:
        return _dictionary(rng, rows)
    if chance < 0.55:
        cut = rng.randint(0, len(rows))
        parts = [_string_array(rng, part) for part in (rows[:cut], rows[cut:], [])]
        return pa.chunked_array(parts, pa.large_string()), expected
    if chance < 0.7:
        array = _string_array(rng, rows, rng.choice([*_WIDTHS]))
        first, stop = sorted(rng.randint(0, len(rows)) for _ in range(2))
        return array.slice(first, stop - first), _decoded(rows[first:stop])
    return _damaged(rng, rows)


def _decoded(rows: list[bytes | None]) -> list[str | None] | None:
    try:
        return [None if row is None else row.decode() for row in rows]
    except UnicodeDecodeError:
        return None


def _string_array(rng: random.Random, rows: list[bytes | None], kind: pa.DataType | None = None) -> pa.Array:
    kind = kind or pa.large_string()
    return pa.array(rows, pa.binary() if kind == pa.string() else pa.large_binary()).view(kind)


def _views(rng: random.Random, rows: list[bytes | None]) -> tuple[Any, Any]:
    array = pa.array(rows, pa.binary_view()).view(pa.string_view())
    if rng.random() < 0.5 or not rows:
        first, stop = sorted(rng.randint(0, len(rows)) for _ in range(2))
        return array.slice(first, stop - first), _decoded(rows[first:stop])
    valid, views, *data = array.buffers()
    changed = bytearray(views.to_pybytes())
    row = rng.randrange(len(rows))
    length = rng.choice([-1, 13, 1 << 20, (1 << 31) - 1])
    changed[16 * row : 16 * row + 4] = length.to_bytes(4, "little", signed=True)
    if length > 0:
        changed[16 * row + 8 : 16 * row + 16] = rng.choice([b"\xff" * 8, b"\1\0\0\0" * 2, b"\0\0\0\0\xff\xff\xff\x7f"])
    made = pa.Array.from_buffers(pa.string_view(), len(rows), [valid, pa.py_buffer(bytes(changed)), *data])
    return made, None


def _dictionary(rng: random.Random, rows: list[bytes | None]) -> tuple[Any, Any]:
    values = list(dict.fromkeys(rows))
    width = rng.choice([np.int8, np.int32, np.int64])
    indices = np.array([values.index(row) for row in rows], width)
    expected = _decoded(rows)
    if rows and rng.random() < 0.4:
        indices[rng.randrange(len(rows))] = rng.choice([-1, len(values), np.iinfo(width).max])
        expected = None
    kind = pa.dictionary(pa.from_numpy_dtype(width), pa.large_string())
    dictionary = _string_array(rng, values)
    return pa.DictionaryArray.from_buffers(kind, len(rows), [None, pa.py_buffer(indices)], dictionary), expected


def _damaged(rng: random.Random, rows: list[bytes | None]) -> tuple[Any, Any]:
    kind = rng.choice([*_WIDTHS])
    array = _string_array(rng, rows, kind)
    valid, offsets, data = array.buffers()
    numbers = np.frombuffer(offsets, _WIDTHS[kind])[: len(rows) + 1].copy() if offsets else np.zeros(1, _WIDTHS[kind])
    data = data.to_pybytes() if data else b""
    begin = 0
    for _ in range(rng.randint(0, 2)):
        match rng.randrange(4):
            case 0:
                numbers[rng.randrange(numbers.size)] = rng.choice(_NUMBERS)
            case 1:
                numbers[rng.randrange(numbers.size)] ^= rng.choice([1, 2, 3])
            case 2:
                data = data[: rng.randint(0, len(data))]
            case _:
                begin = rng.choice([0, 0, 1, -1, len(rows), 1 << 20])
    length = max(0, len(rows) - max(begin, 0)) if rng.random() < 0.9 else len(rows) + 1
    n_nulls = rng.choice([-1, -1, -1, 0, 1, length + 1])
    if rng.random() < 0.1:
        valid = pa.py_buffer(rng.randbytes(rng.choice([0, 1, 8])))
    made = pa.Array.from_buffers(kind, length, [valid, pa.py_buffer(numbers), pa.py_buffer(data)], n_nulls, begin)
    return made, _read(numbers, data, valid, length, n_nulls, begin)


def _read(
    numbers: np.ndarray, data: bytes, valid: pa.Buffer | None, length: int, n_nulls: int, begin: int
) -> list[str | None] | None:
    """Reads an array by hand; returns None if it is not valid."""
    places = [int(n) for n in numbers]
    if begin < 0 or begin + length > len(places) - 1 or n_nulls > length:
        return None
    bits = valid.to_pybytes() if valid is not None and n_nulls != 0 else None
    if bits is not None and 8 * len(bits) < begin + length:
        return None
    places = places[begin : begin + length + 1]
    if length and any(not 0 <= a <= b <= len(data) for a, b in itertools.pairwise(places)):
        return None
    is_null = [bits is not None and not bits[i // 8] >> i % 8 & 1 for i in range(begin, begin + length)]
    if n_nulls >= 0 and sum(is_null) != n_nulls:
        return None
    return _decoded(
        [None if null else data[a:b] for null, (a, b) in zip(is_null, itertools.pairwise(places), strict=False)]
    )


def _ids(rng: random.Random) -> tuple[Any, Any]:
    """A column of rows of ids, of which those of the tokenizer of `_entries` are 0..63."""
    dtype = rng.choice([np.int32, np.int64, np.uint8, np.uint32])
    rows = [[rng.randrange(64) for _ in range(rng.randint(0, 9))] for _ in range(rng.choice([0, 1, 3, 30]))]
    flat = [i for row in rows for i in row]
    expected: Any = rows
    values = np.array(flat, dtype)
    if flat and rng.random() < 0.3:
        values[rng.randrange(len(flat))] = rng.choice([np.iinfo(dtype).max, np.iinfo(dtype).min or 200, 64])
        expected = None
    is_large = rng.random() < 0.5
    places = np.cumsum([0, *map(len, rows)], dtype=np.int64 if is_large else np.int32)
    begin = 0
    if rng.random() < 0.4:
        places[rng.randrange(places.size)] = rng.choice([-1, len(flat) + 1, 1 << 20, (1 << 31) - 1])
        expected = None
    if rng.random() < 0.1:
        begin, expected = rng.choice([-1, 1 << 20]), None
    child = pa.array(values)
    if rng.random() < 0.1 and flat:
        child = pa.array([None, *values[1:].tolist()], child.type)
        expected = None
    kind = (pa.large_list if is_large else pa.list_)(child.type)
    made = pa.Array.from_buffers(kind, len(rows), [None, pa.py_buffer(places)], offset=begin, children=[child])
    if expected is not None and rng.random() < 0.3:
        first, stop = sorted(rng.randint(0, len(rows)) for _ in range(2))
        return made.slice(first, stop - first), rows[first:stop]
    return made, expected


def _counts(rng: random.Random) -> tuple[Any, Any]:
    words = [rng.choice(_TEXTS).encode() or b"x" for _ in range(rng.choice([1, 3, 30]))]
    counts = [rng.randint(1, 9) for _ in words]
    array = pa.array(words, pa.large_binary())
    expected: Any = list(zip(words, counts, strict=True))
    if rng.random() < 0.5:
        valid, offsets, data = array.buffers()
        numbers = np.frombuffer(offsets, np.int64)[: len(words) + 1].copy()
        numbers[rng.randrange(1, numbers.size)] = rng.choice([-1, len(data) + 1, 1 << 40])
        array = pa.Array.from_buffers(pa.large_binary(), len(words), [valid, pa.py_buffer(numbers), data])
        expected = None
    elif rng.random() < 0.3:
        array, expected = pa.array([b"\xe6\x9d", *words[1:]], pa.large_binary()), None
    elif rng.random() < 0.2:
        array, expected = pa.array([None, *words[1:]], pa.large_binary()), None
    return pa.table({"word": array, "count": pa.array(counts, pa.int64())}), expected


def _column(rng: random.Random) -> tuple[Any, Any]:
    """A text column of a batch for Beam's steps, which refuse nulls."""
    made, expected = _text(rng)
    if not isinstance(made, pa.Array) or not len(made):  # a step has nothing to refuse in a batch without rows
        return pa.array([1.5]), None
    return made, None if expected is not None and None in expected else expected


_MAKERS: dict[str, Callable[[random.Random], tuple[Any, Any]]] = {
    "text": _text, "column": _column, "ids": _ids, "counts": _counts,
}  # fmt: skip


def _plain(kind: str, expected: Any) -> Any:
    if kind in ("text", "column"):
        return pa.array(expected, pa.large_string())
    if kind == "ids":
        return pa.array(expected, pa.list_(pa.int32()))
    words, counts = zip(*expected, strict=True)
    return pa.table({"word": pa.array(words, pa.large_binary()), "count": pa.array(counts, pa.int64())})


# The functions.


@functools.cache
def _entries() -> dict[str, tuple[str, Entry]]:
    """Returns name -> (kind of array, function) for every public function that takes Arrow data."""
    from tokenmill.tokenizer import (
        BPETrainer,
        Sampling,
        Tokenizer,
        UnigramTrainer,
        WordLevelTrainer,
        WordPieceTrainer,
        add_word_counts,
    )  # fmt: skip
    from tokenmill.tokenizer.languages import LanguageTextTokenizer, LanguageTokenizers, identify, main_scripts
    from tokenmill.tokenizer.text import TextChain, TextTokenizer
    from tokenmill.tokenizer.trainers import spelled_word_counts

    texts = [text for text in _TEXTS if text] * 3
    bert = Tokenizer.untrained("bert", "bert", lowercase=True).train_from_iterator(
        texts, WordPieceTrainer(vocab_size=64 + 200, min_frequency=1)
    )
    byte_level = Tokenizer.untrained("none", "gpt2", byte_level=True).train_from_iterator(
        texts, BPETrainer(vocab_size=300, byte_level=True, special_tokens=["<|x|>"])
    )
    unigram = Tokenizer.untrained("sentencepiece", "none").train_from_iterator(
        texts, UnigramTrainer(vocab_size=110, hard_vocab_limit=False)
    )
    words = Tokenizer.untrained("nfkc", "whitespace").train_from_iterator(texts, WordLevelTrainer(vocab_size=50))
    tokenizers = {"bert": bert, "byte-level BPE": byte_level, "Unigram": unigram, "WordLevel": words}
    with_spans = TextTokenizer(
        bert, normalize=["default", "strip_accents", "mojibake"],
        spans=[{"find": "url", "token": "<url>", "keep_source": True}, {"regex": "[#@]\\w+", "token": "<tag>"}],
    )  # fmt: skip
    by_language = LanguageTextTokenizer(bert)
    routed = LanguageTokenizers({"default": bert, "ru": byte_level})
    entries: dict[str, tuple[str, Entry]] = {}
    for name, tokenizer in tokenizers.items():
        entries[f"{name}: encode_arrow"] = "text", lambda a, t=tokenizer: t.encode_arrow(a, True, t.new_tally())
        entries[f"{name}: WordCounter"] = "text", lambda a, t=tokenizer: _counted(t, a)
        if tokenizer.normalizer is not None:
            entries[f"{name}: normalize_arrow"] = "text", tokenizer.normalizer.normalize_arrow
    sampled = Sampling(seed=1, dropout=0.1)
    for name in ("byte-level BPE", "Unigram"):
        entries[f"{name}: sampled"] = "text", lambda a, t=tokenizers[name]: t.encode_arrow(a, sampling=sampled)
    for name in ("bert", "byte-level BPE"):
        entries[f"{name}: decode_arrow"] = "ids", lambda a, t=tokenizers[name]: _below_64(t.decode_arrow(a), a)
    layout = bert.layout(True)
    entries |= {
        "Layout.apply": ("ids", lambda a: _below_64(layout.apply(a), a)),
        "TextTokenizer.encode_arrow": ("text", lambda a: tuple(with_spans.encode_arrow(a)[:2])),
        "TextTokenizer.prepare": ("text", lambda a: with_spans.prepare(a).documents()),
        "LanguageTextTokenizer": ("text", lambda a: by_language.encode_arrow(a).ids),
        "LanguageTokenizers": ("text", lambda a: routed.encode_arrow(a).ids),
        "TextChain": ("text", lambda a: TextChain.from_config(["nfkc", "ftfy", "emoji", "segment"]).apply(a)[0]),
        "identify": ("text", lambda a: identify(a).codes),
        "main_scripts": ("text", main_scripts),
        "add_word_counts": ("counts", lambda t: _text_only(add_word_counts([t]), t)),
        "count_characters": ("counts", _characters),
        "spelled_word_counts": ("counts", lambda t: _text_only(spelled_word_counts(t), t)),
        "BPETrainer": ("counts", lambda t: sorted(BPETrainer(vocab_size=2000).train(t).vocab)),
        "WordPieceTrainer": ("counts", lambda t: sorted(WordPieceTrainer(vocab_size=2000).train(t).vocab)),
    }
    return entries | _steps(bert)


def _steps(tokenizer: Any) -> dict[str, tuple[str, Entry]]:
    """Returns the functions of Beam's steps, called as Beam calls them, but without a pipeline."""
    from tokenmill.pipeline.rows.batching import GatherFn
    from tokenmill.pipeline.rows.shards import WriteShards, _dealt
    from tokenmill.pipeline.rows.texts import IdentifyLanguage, Normalize
    from tokenmill.pipeline.rows.tokenize import Detokenize, Tokenize
    from tokenmill.pipeline.rows.vocabulary import CountWords, VocabularyStatistics, _CountTextsFn

    def gathered(step: Any, batch: pa.RecordBatch) -> list[Any]:
        return list(GatherFn(step._work, type(step), None).process(batch, None, None, None) or ())

    def batches(step: Any) -> Entry:
        def call(array: Any) -> Any:
            column = step._work.reads[0].name
            found = [batch.drop_columns(["n", column]) for batch in gathered(step, _batch(column, array))]
            return _below_64(found, array) if column == "input_ids" else found

        return call

    def count(array: Any) -> Any:
        step = CountWords(tokenizer)
        function = _CountTextsFn(step._tokenizer, 1)
        function.start_bundle()
        for texts in gathered(step, _batch("text", array)):
            list(function.process(texts, None, None))
        return sorted(function._counters[None].to_table().to_pylist(), key=str)

    def tally(array: Any) -> Any:
        return _below_64(gathered(VocabularyStatistics(tokenizer), _batch("input_ids", array)), array)

    def deal(column: str) -> Entry:
        def call(array: Any) -> Any:
            ids = pa.array([[1, 2]] * _length(array), pa.list_(pa.int32()))
            columns = {"text": array, "input_ids": ids} if column == "text" else {"input_ids": array}
            step = WriteShards("nowhere", tokenizer, id_column="text" if column == "text" else None)
            found = [keyed[1] for batch in gathered(step, _record_batch(columns)) for keyed in _dealt(batch, 1)]
            return found if column == "text" else _below_64(found, array)

        return call

    return {
        "Tokenize": ("column", batches(Tokenize(tokenizer))),
        "Normalize": ("column", batches(Normalize(["nfc"], tokenizer=tokenizer, output="out"))),
        "IdentifyLanguage": ("column", batches(IdentifyLanguage())),
        "CountWords": ("column", count),
        "WriteShards, ids of documents": ("column", deal("text")),
        "Detokenize": ("ids", batches(Detokenize(tokenizer))),
        "VocabularyStatistics": ("ids", tally),
        "WriteShards": ("ids", deal("input_ids")),
    }


def _batch(column: str, array: Any) -> pa.RecordBatch:
    return _record_batch({column: array, "n": pa.array(np.arange(_length(array)))})


def _record_batch(columns: dict[str, Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def _length(array: Any) -> int:
    return len(array) if isinstance(array, pa.Array | pa.ChunkedArray) else 1


def _counted(tokenizer: Any, texts: Any) -> Any:
    counter = tokenizer.new_word_counter()
    counter.update(texts)
    return counter.to_table()


def _characters(table: pa.Table) -> Any:
    from tokenmill.tokenizer import count_characters

    counts = np.zeros(0x110000, np.int64)
    count_characters(table, counts)
    return counts


def _text_only(found: Any, table: pa.Table) -> Any:
    """Returns a result for a table of words; raises if these are not text, which makers expect to be refused."""
    table["word"].cast(pa.large_string())
    return found


def _below_64(found: Any, ids: pa.Array) -> Any:
    """Returns a result for a column of ids; raises if one is not below 64, which makers expect to be refused."""
    if not len(ids):
        return found
    values = ids.flatten().to_numpy(zero_copy_only=False)
    if values.size and not 0 <= values.min() <= values.max() < 64:
        raise ValueError("an id is not in 0..63")
    return found
