# SPDX-License-Identifier: Apache-2.0
"""Times loading: a fresh process imports a library, loads a tokenizer's file and encodes one text.

Compiled code is cached. TokenMill encodes the text twice, as a column and by itself, since these are different kernels.
Peers load files of their own kind: `tokenizers` a `tokenizer.json`, sentencepiece its model, tiktoken ranks or GPT-2's
two files. Needs the larger data folder. The ids of the text are compared first.
"""

import dataclasses
import hashlib
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks import corpora, peers, report, timing, tokenizers
from tokenmill.tokenizer import Tokenizer
from tokenmill.tokenizer.pre_tokenizers.known_patterns import TIKTOKEN_PATTERNS
from tokenmill.tokenizer.trainers import BPETrainer

TEXT = "The mill grinds text into tokens; it's 2026."
_LIKE_TIKTOKENS = {"cl100k": 100_256, "o200k": 199_998}
"""tiktoken's vocabularies, and how many ranks each has."""
_LARGE = {
    "like XLM-R, Unigram": {
        "model_type": "unigram", "vocab_size": 250_000, "hard_vocab_limit": False, "seed_sentencepiece_size": 2_000_000,
    },
    "like Gemma, BPE": {
        "model_type": "bpe", "vocab_size": 250_000, "normalization_rule_name": "identity", "byte_fallback": True,
        "split_digits": True, "remove_extra_whitespaces": False, "allow_whitespace_only_pieces": True,
    },
}  # fmt: skip
"""Models with as many pieces as the largest ones in use."""
LIMIT = 0.5
"""Processor seconds within which a tokenizer should be ready."""

# Both parts of a program read `paths`, `text` and `options`; the second leaves the ids in `ids`. The column of text is
# made by hand, because `pa.array` imports pandas if it is installed, which must not count here.
_PROGRAM = """
import json, sys, time
paths, text, options = json.loads(sys.argv[1])
seconds, started = time.perf_counter(), time.process_time()
{imports}
imported = time.process_time()
{load}
ready, seconds = time.process_time(), time.perf_counter() - seconds
print(json.dumps([imported - started, ready - started, seconds, list(ids)]))
"""
_OURS = {
    "imports": "import pyarrow as pa\nfrom tokenmill.tokenizer import Tokenizer",
    "load": """
data = text.encode()
ends = len(data).to_bytes(8, sys.byteorder)
column = pa.LargeStringArray.from_buffers(1, pa.py_buffer(bytes(8) + ends), pa.py_buffer(data))
tok = Tokenizer.from_file(paths[0], **options)
ids = tok.encode_arrow(column)[0].as_py()
assert ids == tok.encode(text, add_special_tokens=False).ids
""",
}
_PEERS = {
    "tokenizers": {
        "imports": "from tokenizers import Tokenizer",
        "load": "ids = Tokenizer.from_file(paths[0]).encode(text, add_special_tokens=False).ids",
    },
    "sentencepiece": {
        "imports": "import sentencepiece",
        "load": "ids = sentencepiece.SentencePieceProcessor(model_file=paths[0]).encode(text)",
    },
    "tiktoken": {
        "imports": "import tiktoken, tiktoken.load",
        "load": """
if len(paths) == 2:
    ranks = tiktoken.load.data_gym_to_mergeable_bpe_ranks(paths[1], paths[0])
else:
    ranks = tiktoken.load.load_tiktoken_bpe(paths[0])
ids = tiktoken.Encoding("", pat_str=options["pattern"], mergeable_ranks=ranks, special_tokens={}).encode_ordinary(text)
""",
    },
}


@dataclasses.dataclass(frozen=True)
class Case:
    """A tokenizer: the files and options of each library that loads it."""

    name: str
    programs: dict[str, tuple[list[Path], dict[str, Any]]]
    """`tokenmill` first."""


def main(arguments: list[str]) -> int:
    """Runs the benchmark; returns the exit code."""
    parser = report.parser("load", __doc__, rounds=7)
    options = parser.parse_args(arguments)
    vocab = corpora.vocabularies()
    peers.stay_on_one_core()
    print(report.describe("tokenmill", "numba", "numpy", "pyarrow", *_PEERS))
    print("processor seconds of a fresh process on one core: import + load and encode = ready; medians of interleaved")
    print(f"rounds; ours are to be at most {LIMIT}; in brackets how many times as long as ours\n")
    with tempfile.TemporaryDirectory() as folder:
        measurements = [measure(case, options.rounds) for case in cases(vocab, Path(folder))]
    names = ["tokenmill", *_PEERS]
    rows = [row_of(measurement, names) for measurement in measurements]
    print(report.table(["tokenizer", *names, "wall-clock of ours"], rows))
    return int(not all(measurement["equal"] for measurement in measurements))


def cases(vocab: Path, folder: Path) -> Iterator[Case]:
    """Yields the tokenizers of the larger data folder, and trained ones; `folder` is for files of peers."""
    gpt2 = [vocab / "gpt2-vocab.json", vocab / "gpt2-merges.txt"]
    ours = folder / "gpt2"
    ours.mkdir()
    for path in gpt2:
        (ours / path.name.removeprefix("gpt2-")).write_bytes(path.read_bytes())
    tok = tokenizers.load_gpt2(vocab)
    yield Case(
        "GPT-2",
        {"tokenmill": ([ours], {})} | _for_hf(tok, ours) | {"tiktoken": (gpt2, {"pattern": peers.GPT2_PATTERN})},
    )
    for name in _LIKE_TIKTOKENS:
        pattern = f"{name}_base"
        ranks = train_ranks(name)
        tok = Tokenizer.from_file(ranks, pattern=pattern)
        yield Case(
            f"like {name}, ranks",
            {
                "tokenmill": ([ranks], {"pattern": pattern}),
                "tiktoken": ([ranks], {"pattern": TIKTOKEN_PATTERNS[pattern]}),
            },
        )
        theirs = _for_hf(tok, folder / name)
        yield Case(f"like {name}, tokenizer.json", {"tokenmill": theirs["tokenizers"]} | theirs)
    clip = vocab / "clip_bpe_simple_vocab_16e6.txt.gz"
    yield Case("CLIP", {"tokenmill": ([clip], {})} | _for_hf(Tokenizer.from_file(clip), folder / "clip"))
    for name, lowercase in tokenizers.BERT_VOCABULARIES.items():
        path, options = vocab / f"{name}.txt", {"lowercase": lowercase}
        tok = Tokenizer.from_file(path, lowercase=lowercase)
        yield Case(name, {"tokenmill": ([path], options)} | _for_hf(tok, folder / name))
    models = {name: vocab / f"{name}.model" for name in ("xlnet", "sp-test", "sp-ja")}
    if importlib.util.find_spec("sentencepiece") is not None:
        texts = corpora.load()
        specs = tokenizers.TRAINED | _LARGE
        models |= {name: tokenizers.train_sentencepiece(name, spec, texts) for name, spec in specs.items()}
    for name, path in models.items():
        yield Case(name, {"tokenmill": ([path], {}), "sentencepiece": ([path], {})})
        if name in _LARGE:
            written = folder / f"{path.stem}.json"
            written.write_text(tokenizers.as_transformers_writes(path), encoding="utf-8")
            yield Case(f"{name}, tokenizer.json", {"tokenmill": ([written], {}), "tokenizers": ([written], {})})


def _for_hf(tok: Tokenizer, folder: Path) -> dict[str, tuple[list[Path], dict[str, Any]]]:
    folder.mkdir(exist_ok=True)
    path = folder / "for-peers.json"
    path.write_text(peers.for_peers(tok.to_str()), encoding="utf-8")
    return {"tokenizers": ([path], {})}


def train_ranks(name: str) -> Path:
    """Trains a vocabulary as large as one of tiktoken's on the corpora, unless that was done before."""
    texts = corpora.load()
    key = hashlib.sha256(repr([text.digest for text in texts]).encode()).hexdigest()[:16]
    path = corpora.REPOSITORY / "build" / f"{name}-{key}.tiktoken"
    if not path.is_file():
        print(f"training a vocabulary like {name} ...", flush=True)
        tok = Tokenizer.untrained("none", f"{name}_base", byte_level=True)
        trainer = BPETrainer(vocab_size=_LIKE_TIKTOKENS[name], byte_level=True)
        tok.train_from_iterator((text for corpus in texts for text in corpus.texts), trainer)
        tok.save(path)
    return path


def measure(case: Case, rounds: int) -> dict[str, Any]:
    """Loads with every installed library, compares the ids, and times the libraries whose ids equal ours."""
    programs = {
        name: (_OURS if name == "tokenmill" else _PEERS[name], paths, options)
        for name, (paths, options) in case.programs.items()
        if name == "tokenmill" or importlib.util.find_spec(name) is not None
    }
    ids = {name: _run(*program)[3] for name, program in programs.items()}  # compiles kernels that are not compiled yet
    differ = [name for name in programs if ids[name] != ids["tokenmill"]]
    samples: dict[str, list[list[float]]] = {name: [] for name in programs if name not in differ}
    for _ in range(rounds):
        for name, taken in samples.items():
            taken.append(_run(*programs[name])[:3])
    return {"tokenizer": case.name, "equal": not differ, "differ": differ, "samples": samples}


def _run(program: dict[str, str], paths: list[Path], options: dict[str, Any]) -> list[Any]:
    argument = json.dumps([list(map(str, paths)), TEXT, options])
    command = [sys.executable, "-c", _PROGRAM.format(**program), argument]
    done = subprocess.run(command, check=False, env=_environment(), capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{program['imports']}: {done.stderr[-2000:]}")
    measured: list[Any] = json.loads(done.stdout)
    return measured


def _environment() -> dict[str, str]:
    # Without these settings tiktoken would read its own copy of the file, and Python would not keep compiled sources.
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return kept | {"TIKTOKEN_CACHE_DIR": ""}


def row_of(measurement: dict[str, Any], names: list[str]) -> list[str]:
    """Returns the cells of a tokenizer: `import + load = ready`, and in brackets how many times as long as ours."""
    cells = [measurement["tokenizer"]]
    medians = {
        name: [timing.Timing(tuple(column)).median for column in zip(*samples, strict=True)]
        for name, samples in measurement["samples"].items()
    }
    ours = medians["tokenmill"]
    for name in names:
        if name in measurement["differ"]:
            cells.append("ids differ")
        elif name not in medians:
            cells.append("-")
        else:
            imported, ready, _ = medians[name]
            cell = f"{imported:.2f} + {ready - imported:.2f} = {ready:.2f}"
            remark = f" ({ready / ours[1]:.1f}x)" if name != "tokenmill" else " too slow" if ready > LIMIT else ""
            cells.append(cell + remark)
    return [*cells, f"{ours[2]:.2f}"]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
