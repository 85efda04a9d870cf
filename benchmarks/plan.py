# SPDX-License-Identifier: Apache-2.0
"""How good a plan is: `tokenmill plan`, then the job itself, with each tokenizer, and the two side by side.

The corpora are those of the larger data folder as they are, which a plan reads whole; a larger one, of the same texts
one language after the other, of which a plan reads a part; and a broken one of the same size. Of that one file has 90 %
of the bytes, and half of the records are broken: a third of these has no text, a third is not UTF-8, a third not JSON.
Its documents are cut into pieces: which half of a hundred books is broken no sample can tell, and the bounds say so.
"""

import argparse
import dataclasses
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks import corpora, report, tokenizers

MOST_OFF = {"tokens": 0.03, "bytes": 0.05, "seconds": 0.30}
"""How far off a plan may be, as a share of what the job did."""
MOST_SECONDS = 10.0
"""How long a plan may take."""
_SMALL_FILES = 10
_LONGEST = 5000
"""Characters of a document of the broken corpus."""
_BROKEN = (
    lambda record: json.dumps({"id": record["id"]}).encode(),
    lambda record: json.dumps(record, ensure_ascii=False).encode() + b"\xff",
    lambda record: json.dumps(record).encode()[:-1],
)


def main(arguments: list[str]) -> int:
    """Runs the benchmark; returns the exit code, 1 where tokens or bytes are further off than they may be."""
    parser = argparse.ArgumentParser(prog="./run.sh bench plan", description=__doc__, allow_abbrev=False)
    parser.add_argument("--mb", type=float, default=300, help="size of the two larger corpora (default 300)")
    parser.add_argument("--only", nargs="*", help="corpora, by name")
    parser.add_argument("--folder", help="where to put input and outputs (default: temporary)")
    parser.add_argument("--save", action="store_true", help="keep the raw samples under benchmarks/results/")
    options = parser.parse_args(arguments)
    shared = corpora.shared_folder()
    if shared is None:
        print("nothing to measure: needs corpora and vocabularies in the folder that TOKENMILL_SHARED names")
        return 1
    facts = report.machine() | report.versions("tokenmill", "apache-beam", "pyarrow", "numba")
    print(report.describe(facts))
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="tokenmill-bench-") as folder:
        return _measure(options, Path(folder), shared, facts)


def _measure(options: argparse.Namespace, folder: Path, shared: Path, facts: dict[str, str]) -> int:
    inputs = {path.name.partition(".")[0]: str(path) for path in sorted((shared / "corpus").glob("*.jsonl.gz"))}
    for name, write in {"sorted": write_sorted, "broken": write_broken}.items():
        write(corpora.load(), folder / name, int(options.mb * 1e6))
        inputs[name] = f"{folder / name}/*.jsonl"
    vocab = shared / "vocab"
    tokenizers.load_gpt2(vocab).save(folder / "gpt2.json")
    files = {"GPT-2": folder / "gpt2.json", "BERT": vocab / "bert-base-uncased.txt", "XLNet": vocab / "xlnet.model"}
    measured = []
    for corpus in options.only or inputs:
        for name, path in files.items():
            config = {
                "input": {"paths": [inputs[corpus]], "on_damage": "warn"},
                "tokenizer": {"file": str(path)},
                "output": {"path": str(folder / "out" / f"{corpus}-{name}")},
            }
            measured.append({"corpus": corpus, "tokenizer": name, **compare(config, folder)})
            print(*_row(measured[-1]), sep="; ", flush=True)
    print(f"\nhow far off the plan was; * outside of its own bounds, ! more than is wanted ({_wanted()})\n")
    header = ["corpus, tokenizer", "MB read of", "tokens", "", "bytes", "", "seconds", "", "plan took"]
    print(report.table(header, [_row(each) for each in measured]))
    if options.save:
        print(f"\nraw samples: {report.save('plan', facts, measured)}")
    return int(any(_is_off(each, name) for each in measured for name in ("tokens", "bytes")))


def compare(config: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Plans a job and runs it.

    Returns:
      "tokens", "bytes" and "seconds": what was planned, with bounds, and what was done; what the plan read, of how
      much, and how long it took.
    """
    from tokenmill.pipeline.config.job import Config
    from tokenmill.pipeline.estimating.report import outcome
    from tokenmill.pipeline.jobs.planning import plan_job

    path = folder / "config.yaml"
    path.write_text(json.dumps(config), encoding="utf-8")
    started = time.perf_counter()
    planned = json.loads(_run("plan", str(path), "--job", "tokenize", "--json"))
    took = time.perf_counter() - started
    _run("tokenize", str(path), "--quiet")
    done = outcome(plan_job("tokenize", Config.model_validate(config)))
    assert done is not None
    pairs = {"tokens": (planned["totals"]["n_tokens"], done["n_tokens"])}
    (format_, size), *_ = planned["shard_bytes"].items()
    pairs["bytes"] = (size, done[f"bytes.{format_}"])
    pairs["seconds"] = (planned["seconds"][str(int(done["workers"]))], done["seconds"])
    found = {name: {**of_plan, "done": of_job} for name, (of_plan, of_job) in pairs.items()}
    return {**found, "read": planned["sample"]["bytes"], "of": done["n_bytes"], "took": took}


def _run(*arguments: str) -> str:
    command = [sys.executable, "-m", "tokenmill.pipeline.cli", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with exit code {done.returncode}:\n{done.stderr[-2000:]}")
    return done.stdout


def write_sorted(texts: list[corpora.Corpus], folder: Path, n_bytes: int) -> None:
    """Writes each corpus, over and over, to a file of its own."""
    for corpus in texts:
        (path,) = corpora.write_jsonl([corpus], folder / corpus.name, n_bytes // len(texts), 1)
        path.rename(folder / f"{corpus.name}.jsonl")


def write_broken(texts: list[corpora.Corpus], folder: Path, n_bytes: int) -> None:
    """Writes all corpora, mixed: a file of 90 % and several small ones; half of the records are broken."""
    chance = random.Random(7)
    pieces = [
        dataclasses.replace(
            corpus,
            texts=tuple(text[i : i + _LONGEST] for text in corpus.texts for i in range(0, len(text), _LONGEST)),
        )
        for corpus in texts
    ]
    paths = corpora.write_jsonl(pieces, folder / "large", int(n_bytes * 0.9), 1)
    paths += corpora.write_jsonl(pieces, folder / "small", n_bytes // 10, _SMALL_FILES)
    for number, path in enumerate(paths):
        with path.open("rb") as lines, (folder / f"{number}.jsonl").open("wb") as file:
            file.writelines(_half_broken(lines, chance))
        path.unlink()


def _half_broken(lines: Iterator[bytes], chance: random.Random) -> Iterator[bytes]:
    for line in lines:
        yield line if chance.random() < 0.5 else chance.choice(_BROKEN)(json.loads(line)) + b"\n"


def _off(each: Mapping[str, Any], name: str) -> float:
    return float(each[name]["value"] / each[name]["done"] - 1)


def _is_off(each: Mapping[str, Any], name: str) -> bool:
    return abs(_off(each, name)) > MOST_OFF[name]


def _row(each: Mapping[str, Any]) -> list[str]:
    row = [f"{each['corpus']}, {each['tokenizer']}", f"{each['read'] / 1e6:.0f} of {each['of'] / 1e6:.0f}"]
    for name in MOST_OFF:
        of = each[name]
        is_within = of["low"] <= of["done"] and (of["high"] is None or of["done"] <= of["high"])
        marks = ("" if is_within else " *") + (" !" if _is_off(each, name) else "")
        row += [f"{of['done']:,.1f}" if name == "seconds" else f"{of['done']:,}", f"{_off(each, name):+.1%}{marks}"]
    return [*row, f"{each['took']:.1f} s{' !' if each['took'] > MOST_SECONDS else ''}"]


def _wanted() -> str:
    shares = ", ".join(f"{name} {share:.0%}" for name, share in MOST_OFF.items())
    return f"{shares}, a plan in {MOST_SECONDS:.0f} s"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
