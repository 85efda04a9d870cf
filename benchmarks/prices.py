# SPDX-License-Identifier: Apache-2.0
"""What hand-written mechanisms save against a library or the plain way, in processor time: rows of the price list.

Both ways do the same work, and what they give is compared before a number is printed; if it differs, the exit code
is 1. `steps` and `spans` are those of text, beside the libraries that some must agree with; `chain` is the tokenize job
without and with the default steps. These and `compiling` take minutes, and are measured only if they are named.
"""

import functools
import html
import itertools
import os
import statistics
import subprocess
import sys
import tempfile
import time
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa

from benchmarks import corpora, report, tokenizers
from tokenmill.pipeline.config.job import Config
from tokenmill.pipeline.input.splitting import plan_splits
from tokenmill.pipeline.output.writers import tfrecord_kernels
from tokenmill.pipeline.tokenizing.tokenize import tokenize_split
from tokenmill.tokenizer import Tokenizer, ragged, recycled
from tokenmill.tokenizer.formats import lowered, tokenizer_json
from tokenmill.tokenizer.kernels import blocks
from tokenmill.tokenizer.kernels.automata import Automata
from tokenmill.tokenizer.languages import identifying
from tokenmill.tokenizer.pre_tokenizers import scanners, split
from tokenmill.tokenizer.pre_tokenizers.boundaries import derive
from tokenmill.tokenizer.pre_tokenizers.known_patterns import TIKTOKEN_PATTERNS
from tokenmill.tokenizer.ragged import read_only, string_array, text_rows
from tokenmill.tokenizer.text import SpanRule, TextChain
from tokenmill.tokenizer.text.spans import SpanFinder

Ways = tuple[str, Callable[[], Any], dict[str, Callable[[], Any]]]
"""What is measured on; our way; other ways. Each returns something that can be compared."""
_BATCH = 1 << 20
_PATTERN = r"(?:'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)"
"""GPT-2's, in a group, so that it has no scanner."""
_STEPS: list[Any] = [
    "default", "nfc", "nfd", "nfkc", "nfkd", "lowercase", "casefold", "control_characters", "zero_width", "bidi",
    "punctuation", "full_width", "tatweel", "ascii_digits", {"strip_accents": "latin-only"}, {"strip_accents": "all"},
    "whitespace", {"whitespace": {"newlines": "space"}}, "repeated_punctuation", "isolate_digits",
    {"emoji": "isolate"}, {"emoji": "describe"}, {"emoji": "drop"}, "html_entities", {"regex": r"\d{3,}"}, "mojibake",
    "ftfy",
]  # fmt: skip
_SPANS = [
    *(SpanRule("[X]", find=kind) for kind in ("number", "url", "email", "emoji", "repeated", "whitespace")),  # type: ignore[arg-type]
    SpanRule("[X]", literal="the"),
    SpanRule("[X]", regex=r"\d{4}-\d\d-\d\d"),
]
_COMPILE = """
import os, sys, time
from tokenmill.tokenizer.compiling import numba_compiler
if sys.argv[1] == "plain":
    numba_compiler._shortcuts_fit = lambda: False
from tokenmill.tokenizer import Tokenizer
tok = Tokenizer.from_file(sys.argv[2])
started = time.process_time()
ids = tok.encode_arrow(["Hello world, it's 2026"]).to_pylist()
print(repr((time.process_time() - started, ids)))
"""


def main(arguments: list[str]) -> int:
    """Runs the benchmark; returns the exit code."""
    parser = report.parser("prices", __doc__, rounds=5)
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=_MEASURED, help=f"of {', '.join(_MEASURED)}")
    parser.add_argument("--mb", type=float, default=4, help="use this many MB of each corpus (default 4)")
    options = parser.parse_args(arguments)
    pa.set_cpu_count(1)
    print(report.describe("tokenmill", "numba", "numpy", "pyarrow"))
    texts = [corpus.first(int(options.mb * 1e6)) for corpus in corpora.load() if corpus.name != "multilingual"]
    rows = []
    for name in options.only or [each for each in _MEASURED if each not in _NAMED]:
        for what, ours, others in _MEASURED[name](texts):
            rows += [[name, what, *cells] for cells in compare(ours, others, options.rounds)]
    print(report.table(["mechanism", "on", "the other way", "ours ms", "its ms", "times"], rows))
    return int(any("differs" in row for row in rows))


def compare(ours: Callable[[], Any], others: dict[str, Callable[[], Any]], rounds: int) -> Iterator[list[str]]:
    """Yields a line for each other way, or one without: its name, medians of rounds in ms, and their quotient."""
    ways = {"": ours, **others}
    results = {name: way() for name, way in ways.items()}  # compiles
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            started = time.process_time()
            way()
            seconds[name].append(time.process_time() - started)
    first, *rest = (statistics.median(each) for each in seconds.values())
    if not others:
        yield ["-", f"{first * 1e3:.1f}", "", ""]
    for name, other in zip(others, rest, strict=True):
        same = results[name] is None or results[name] == results[""]
        cells = f"{first * 1e3:.1f}", f"{other * 1e3:.1f}", f"{other / first:.1f}"
        yield [name, *(cells if same else ("differs", "", ""))]


def _vocabulary(texts: list[corpora.Corpus]) -> Iterator[Ways]:
    data = _model(texts).to_str().encode()

    def read(least: int) -> Any:
        with mock.patch.object(lowered, "LEAST", least):
            return tokenizer_json.read(data, "x").model.tables.products.tobytes()

    yield f"{len(data) / 1e6:.1f} MB", lambda: read(0), {"made every time": lambda: read(1 << 60)}


def _memory(texts: list[corpora.Corpus]) -> Iterator[Ways]:
    tok = _model(texts)
    plain = mock.patch.multiple(recycled, empty=np.empty, zeros=lambda n, dtype, _: np.zeros(n, dtype))
    for corpus in texts:
        column = pa.array(corpus.texts, pa.large_string())
        step = max(1, len(column) * _BATCH // corpus.n_bytes)
        batches = [column.slice(start, step) for start in range(0, len(column), step)]

        def ours(batches: list[pa.Array] = batches) -> int:
            return sum(tok.encode_arrow(batch).nbytes for batch in batches)

        def new(ours: Callable[[], int] = ours) -> int:
            with plain:
                return ours()

        yield corpus.name, ours, {"new memory": new}


def _automata(texts: list[corpora.Corpus]) -> Iterator[Ways]:
    def made(pattern: str) -> Tokenizer:
        step = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
        return Tokenizer.from_str(tokenizers.behind(_model(texts), [step]))

    without = mock.patch.object(split, "_automaton_of", return_value=None)
    ours = made(_PATTERN)
    with without:
        theirs = made(f"(?:{_PATTERN})")  # equal tokenizers share what they have compiled
    for corpus in texts:
        column = pa.array(corpus.first(100_000).texts, pa.large_string())

        def plain(column: pa.Array = column) -> Any:
            with without:
                return theirs.encode_arrow(column)

        yield corpus.name, lambda column=column: ours.encode_arrow(column), {"regex": plain}


def _blocks(texts: list[corpora.Corpus]) -> Iterator[Ways]:
    """Encoding with the rules of a pattern, and with rules that know nothing: then automata find every word."""
    for name in ("gpt2", "llama3", "o200k_base"):
        step = {
            "type": "Split", "pattern": {"Regex": TIKTOKEN_PATTERNS[name]}, "behavior": "Isolated", "invert": False
        }  # fmt: skip
        ours = Tokenizer.from_str(tokenizers.behind(_model(texts), [step]))
        ours.encode("a")
        step["pattern"] = {"Regex": f"(?:{TIKTOKEN_PATTERNS[name]})"}  # equal tokenizers share what they have compiled
        scanners.find_scanner.cache_clear()
        with mock.patch.object(scanners, "derive", _know_nothing):
            theirs = Tokenizer.from_str(tokenizers.behind(_model(texts), [step]))
            theirs.encode("a")
        scanners.find_scanner.cache_clear()
        for corpus in texts:
            column = pa.array(corpus.texts, pa.large_string())
            yield (
                f"{name}, {corpus.name}",
                functools.partial(ours.encode_arrow, column),
                {"automata": functools.partial(theirs.encode_arrow, column)},
            )


def _know_nothing(automata: Automata, dropped: bool | None) -> blocks.Rules:
    tables = derive(automata, dropped).tables.copy()
    tables[blocks.LOOKS + 4 : blocks.SHARES], tables[blocks.SHARES :] = 0xFF, 0
    tables[blocks.SHARES + 2] = 0xFF
    return blocks.Rules(read_only(tables), np.zeros((0, 0), np.uint8))


def _tfrecord(texts: list[corpora.Corpus]) -> Iterator[Ways]:
    import google_crc32c

    data = np.random.default_rng(1).integers(0, 256, 1 << 22, np.uint8)
    crc = {"google-crc32c": lambda: google_crc32c.value(data.tobytes())}
    yield "checksum of 4 MiB", lambda: tfrecord_kernels.crc32c(data, 0, data.size), crc
    rows = [np.minimum(np.random.default_rng(1).zipf(1.3, 1000), 50_000).tolist() for _ in range(100)]
    column = pa.array(rows, pa.large_list(pa.int32()))
    example = _int64_list()

    def ours() -> bytes:
        offsets, values = column.offsets.to_numpy(), column.values.to_numpy()
        sizes = np.empty(len(rows), np.int64)
        tfrecord_kernels.measure_varints(values, offsets, sizes)
        out = np.empty(int(sizes.sum()) + tfrecord_kernels.SLACK_BYTES, np.uint8)
        tfrecord_kernels.put_varints(values, offsets, np.cumsum(sizes) - sizes, out)
        return out[: sizes.sum()].tobytes()

    def library() -> bytes:
        lists = (example(value=row.as_py()).SerializeToString() for row in column)
        return b"".join(each[1 + _n_varint(each) :] for each in lists)

    yield "100,000 ids as lists", ours, {"protobuf": library}


def _int64_list() -> Any:
    """Returns protobuf's class of a `tf.train.Int64List`."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory  # type: ignore[import-untyped]

    file = descriptor_pb2.FileDescriptorProto(name="example", syntax="proto3")
    field = descriptor_pb2.FieldDescriptorProto
    message = file.message_type.add(name="Int64List")
    message.field.add(name="value", number=1, type=field.TYPE_INT64, label=field.LABEL_REPEATED)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("Int64List"))


def _n_varint(data: bytes) -> int:
    return next(i for i in range(1, 9) if data[i] < 0x80)


def _languages(texts: list[corpora.Corpus]) -> Iterator[Ways]:
    from py3langid import langid

    identifier = langid.LanguageIdentifier.from_model_file(langid.MODEL_FILE)
    model = identifying.load_model()
    for corpus in texts:
        samples = [text[:300] for text in corpus.texts if text][:500]
        allowed = np.ones((len(samples), len(model.classes)), np.bool_)

        def ours(samples: list[str] = samples, allowed: Any = allowed) -> list[str]:
            rows = identifying.as_seen(text_rows(samples))
            return [model.classes[i] for i in identifying.guess(rows, allowed).classes]

        theirs = {"py3langid": lambda samples=samples: [identifier.classify(each)[0] for each in samples]}
        yield f"{corpus.name}, 500 texts", ours, theirs


def _steps(texts: list[corpora.Corpus], steps: Sequence[Any] = tuple(_STEPS)) -> Iterator[Ways]:
    """Each step alone, and the library that it must agree with, if there is one."""
    import ftfy

    libraries: dict[str, Callable[[str], str]] = {
        **{form: functools.partial(unicodedata.normalize, form.upper()) for form in ("nfc", "nfd", "nfkc", "nfkd")},
        "casefold": str.casefold, "html_entities": html.unescape, "ftfy": ftfy.fix_text,
    }  # fmt: skip
    for config, corpus in itertools.product(steps, texts):
        chain, is_slow = TextChain.from_config([config]), config in ("ftfy", "mojibake")
        column = pa.array(corpus.first(corpus.n_bytes // 8 if is_slow else corpus.n_bytes).texts, pa.large_string())
        library = libraries.get(str(config))

        def theirs(library: Any = library, column: pa.Array = column) -> pa.Array:
            return pa.array([library(text) for text in column.to_pylist()], column.type)

        ours = functools.partial(_first_of, chain.apply, column)
        yield f"{config}, {corpus.name}", ours, {"its library": theirs} if library else {}


def _first_of(function: Callable[[Any], Any], column: pa.Array) -> Any:
    return function(column)[0]


def _spans(texts: list[corpora.Corpus]) -> Iterator[Ways]:
    for rule, corpus in itertools.product(_SPANS, texts):
        column, finder = pa.array(corpus.texts, pa.large_string()), SpanFinder([rule])
        name = f"{rule.find or rule.regex or rule.literal}, {corpus.name}"
        yield name, functools.partial(lambda finder, column: finder.cut(text_rows(column)), finder, column), {}


def _chain(texts: list[corpora.Corpus]) -> Iterator[Ways]:
    """One split from JSON lines to a Parquet shard, without steps and with the default ones."""
    name, tok = next(iter(tokenizers.load(texts)))
    with tempfile.TemporaryDirectory() as folder:

        def job(paths: list[str], normalize: list[str]) -> None:
            fields = {"input": {"paths": paths, "split_bytes": 1 << 30}, "tokenizer": {"file": "given"}}
            output = {"path": tempfile.mkdtemp(dir=folder)}
            config = Config.model_validate(fields | {"output": output, "normalize": normalize})
            (split,) = plan_splits(config.input, "bench")
            tokenize_split(split, config, tok, 1)

        for corpus in texts:
            paths = [*map(str, corpora.write_jsonl([corpus], Path(folder, corpus.name), corpus.n_bytes, 1))]
            with_chain = functools.partial(job, paths, ["default"])
            yield f"{corpus.name}, {name}", functools.partial(job, paths, []), {"with the default chain": with_chain}


def _utf8(texts: list[corpora.Corpus]) -> Iterator[Ways]:
    """Encodes columns with BERT's model, which looks for bytes that are not UTF-8 first."""
    tok = Tokenizer.for_bert(sorted({"[UNK]", *"".join(text for corpus in texts for text in corpus.texts)}))
    for corpus in texts:
        column = pa.array(corpus.texts, pa.large_string())

        def library(column: pa.Array = column) -> pa.Array:
            with mock.patch.object(ragged, "check_utf8", lambda rows, *_: string_array(*rows).validate(full=True)):
                return tok.encode_arrow(column)

        yield corpus.name, lambda column=column: tok.encode_arrow(column), {"Arrow": library}


def _compiling(texts: list[corpora.Corpus]) -> Iterator[Ways]:
    """Compiles the kernels of a tokenizer with numba as it is; the seconds are those of other processes."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "tokenizer.json")
        _model(texts).save(path)
        for way in ("ours", "plain"):
            environment = os.environ | {"TOKENMILL_CACHE_DIR": str(Path(folder, way))}
            command = [sys.executable, "-c", _COMPILE, way, str(path)]
            done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
            print(f"compiling, {way}: {done.stdout.strip()}")
    yield from ()


def _model(texts: list[corpora.Corpus]) -> Tokenizer:
    shared = corpora.shared_folder()
    return tokenizers.trained(texts) if shared is None else tokenizers.load_gpt2(shared / "vocab")


_MEASURED: dict[str, Callable[[list[corpora.Corpus]], Iterator[Ways]]] = {
    "vocabulary": _vocabulary, "memory": _memory, "automata": _automata,
    "blocks": _blocks, "tfrecord": _tfrecord,
    "languages": _languages, "mojibake": functools.partial(_steps, steps=("ftfy",)),
    "forms": functools.partial(_steps, steps=("nfkc",)), "utf8": _utf8, "compiling": _compiling, "steps": _steps,
    "spans": _spans, "chain": _chain,
}  # fmt: skip
_NAMED = ("compiling", "steps", "spans", "chain")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
