# SPDX-License-Identifier: Apache-2.0
"""Measures the second stage of SuperBPE: `vocab extend` on more counts of word n-grams than memory could hold.

The first stage is a byte-level BPE of English text. Counts are made up of its words, each drawn among those that follow
the one before it in the text, up to four to an n-gram; drawn alike, they add up. The second stage is the command, in a
process of its own. Both it and a first stage of the same size are measured on text that neither has seen. The exit code
is 1 if the process needs more than 4 GiB, something is not proven, or superwords do not save tokens.
"""

import json
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks import corpora, report, timing
from tokenmill.pipeline.counting import counts, words
from tokenmill.pipeline.output.staging import Staging
from tokenmill.pipeline.schemas import WORD_COUNTS
from tokenmill.tokenizer import BPETrainer, Tokenizer
from tokenmill.tokenizer.vocabulary import measure, superwords

_MOST_BYTES = 4 << 30
_DRAWN_AT_ONCE = 1 << 23
_DRAWS_FOR_BYTE = 1 / 24
"""About a third of what is drawn was drawn before, and an n-gram and its count are 33 bytes."""


def main(arguments: list[str]) -> int:
    """Runs the benchmark; returns the exit code."""
    parser = report.parser("superwords", __doc__)
    parser.add_argument("--gb", type=float, nargs="+", default=[0.1, 1], help="sizes of the counts (default 0.1 1)")
    parser.add_argument("--vocab-size", type=int, default=16_000, help="entries of the first stage (default 16000)")
    parser.add_argument("--add", type=int, default=4_000, help="entries of the second stage (default 4000)")
    parser.add_argument("--folder", help="where to put the counts, half of their size (default: temporary)")
    options = parser.parse_args(arguments)
    print(report.describe("tokenmill", "pyarrow", "numba", "numpy"))
    english = next(corpus.texts for corpus in corpora.load() if corpus.name in ("english", "reference"))
    learned, held_out = [text for i, text in enumerate(english) if i % 5], english[::5]
    start = Tokenizer.untrained("none", "gpt2", byte_level=True)
    sizes = (options.vocab_size, options.vocab_size + options.add)
    first, same_size = (
        start.with_model(BPETrainer(vocab_size=size, byte_level=True).train(_counted(start, learned))) for size in sizes
    )
    wide = superwords(first)
    all_good, rows = True, list[list[str]]()
    for gb in options.gb:
        with tempfile.TemporaryDirectory(dir=options.folder, prefix="tokenmill-bench-") as folder:
            facts_of_counts = write_counts(Path(folder), wide, learned, int(gb * 1e9))
            print(f"counts are made: {facts_of_counts}", flush=True)
            run, new, said = _extend(Path(folder), wide, options.add)
        found = measure({"words": same_size, "superwords": new}, _counted(new, held_out))
        before, after = (row["bytes_per_token"] for row in found)
        proven = not any(said["proof"].values()) and len(said["added"]) == options.add
        measurement = facts_of_counts | run | {"proven": proven, "words": before, "superwords": after}
        all_good &= proven and after > before and run["largest_process_bytes"] < _MOST_BYTES
        rows.append([
            *(f"{measurement[name] / 1e9:.2f}" for name in ("n_bytes", "file_bytes")), f"{measurement['n_grams']:,}",
            f"{run['processor_seconds']:.0f}", f"{run['largest_process_bytes'] / 2**20:.0f}",
            f"{said['added'][-1]['count']:,}", f"{before:.3f}", f"{after:.3f}", "yes" if proven else "NO",
        ])  # fmt: skip
    header = ["GB of counts", "on disk", "n-grams", "CPU seconds", "largest process MiB", "least count merged",
              "bytes/token, words", "superwords", "proven"]  # fmt: skip
    print("\n" + report.table(header, rows))
    return int(not all_good)


def _extend(folder: Path, wide: Tokenizer, n: int) -> tuple[dict[str, Any], Tokenizer, dict[str, Any]]:
    """Returns time and memory of the command, what it wrote, and what it said of that."""
    wide.save(folder / "wide.json")
    command = [sys.executable, "-m", "tokenmill.pipeline.cli", "vocab", "extend", f"{folder / 'wide.json'}"]
    command += ["--counts", str(folder), "--add", str(n), "--out", f"{folder / 'new.json'}", "--json"]
    run = timing.run_process(command, environment=os.environ, log=folder / "log")
    log = (folder / "log").read_text()
    said, _ = json.JSONDecoder().raw_decode(log, log.index("{\n"))  # what waited for kernels is said behind it
    times = {"processor_seconds": run.processor_seconds, "largest_process_bytes": run.largest_process_bytes}
    return times, Tokenizer.from_file(folder / "new.json"), said


def _counted(tokenizer: Tokenizer, texts: list[str]) -> pa.Table:
    counter = tokenizer.new_word_counter()
    counter.update(texts)
    return counter.to_table()


def write_counts(folder: Path, wide: Tokenizer, texts: list[str], n_bytes: int) -> dict[str, Any]:
    """Writes a counts artifact of about so many bytes of n-grams and counts, and returns how large it is."""
    totals = {"n_documents": 0, "n_text_bytes": 0, "n_chars": 0, "n_words": 0, "n_distinct_words": 0}
    size = 0
    with Staging(str(folder), "made") as staging:
        writer = counts.PartitionWriter(staging.create(counts.partition_name(0, 1)), [])

        def tables() -> Iterator[pa.Table]:
            nonlocal size
            for table in _n_grams(texts, n_bytes):
                size += table.nbytes - 8  # of one offset; the others go for the lengths
                yield table

        writer.add_group((), tables())
        file = writer.finish()
        staging.publish()
    totals |= counts.groups_of(writer.counts.groups)[()]
    counts.finish_artifact(
        str(folder), labels=[], words=words.describe_words(wide.to_str()), totals=totals,
        groups=[{"labels": [], **{name: totals[name] for name in totals if name != "n_distinct_words"}}],
        pruning=writer.pruning, partitions=[file], characters=writer.characters,
    )  # fmt: skip
    return {"n_bytes": size, "n_grams": totals["n_distinct_words"], "file_bytes": file.n_bytes}


def _n_grams(texts: list[str], n_bytes: int) -> Iterator[pa.Table]:
    """Yields distinct n-grams, ordered, with counts: drawn from the chain of neighbours among the words of texts."""
    found = pa.array([word for text in texts for word in re.findall(r"[^\W\d_]+", text)], pa.large_string())
    often = pc.value_counts(found).sort(order="descending", by="counts").field("values")[: (1 << 16) - 1]
    ordered = often.take(pc.sort_indices(often))
    ids = pc.index_in(found, ordered).drop_null().to_numpy().astype(np.int64) + 1  # 0: no word any more
    before = np.argsort(ids[:-1], kind="stable")
    n_after = np.bincount(ids[:-1], minlength=len(ordered) + 1)
    first_after = np.cumsum(n_after) - n_after
    nothing, space = pa.scalar("", pa.large_string()), pa.scalar(" ", pa.large_string())
    random = np.random.default_rng(7)
    drawn = random.multinomial(int(_DRAWS_FOR_BYTE * n_bytes), n_after / n_after.sum())
    for part in np.array_split(np.arange(len(drawn)), np.flatnonzero(np.diff(np.cumsum(drawn) // _DRAWN_AT_ONCE)) + 1):
        last = np.repeat(part, drawn[part])
        length, keys = random.choice([1, 2, 3, 4], last.size, p=[0.1, 0.1, 0.1, 0.7]), last.astype(np.uint64)
        for place in (2, 3, 4):
            last = ids[before[first_after[last] + (random.random(last.size) * n_after[last]).astype(np.int64)] + 1]
            last[n_after[last] == 0] = 1  # the last word of all texts
            keys = keys << np.uint64(16) | np.where(length >= place, last, 0).astype(np.uint64)
        keys, n_times = np.unique(keys, return_counts=True)
        places = [(keys >> np.uint64(shift) & np.uint64(0xFFFF)).astype(np.int64) - 1 for shift in (48, 32, 16, 0)]
        spelled = [ordered.take(pa.array(each, mask=each < 0)) for each in places]
        joined = pc.binary_join_element_wise(nothing, *spelled, space, null_handling="skip").cast(pa.large_binary())
        yield pa.table({"word": joined, "count": n_times}, schema=WORD_COUNTS)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
