# SPDX-License-Identifier: Apache-2.0
"""The contents of a report as plain data, read from the files of a finished output folder.

Everything is bounded, however large the job: lists are cut to `TOP` entries, and say how many were left out.
"""

import heapq
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any

from tokenmill.pipeline import filenames, schemas, storage
from tokenmill.pipeline.books import manifest, quantities
from tokenmill.pipeline.books.counts import flatten
from tokenmill.pipeline.input.rejects import REASONS
from tokenmill.pipeline.output import rejects_file
from tokenmill.pipeline.output.writers import formats
from tokenmill.pipeline.reporting import stats_file
from tokenmill.pipeline.reporting.advice import advise
from tokenmill.pipeline.reporting.stats import source_summary
from tokenmill.pipeline.running import clock
from tokenmill.tokenizer import Tokenizer

TOP = 25
"""The most entries of a list in a report."""

SAMPLES = 3
"""How many rejected records are shown for each reason, and how many rows of conversations."""

_SAMPLE_CHARACTERS, _SAMPLE_TOKENS = 160, 400
_MAX_REJECT_FILES = 20
_MAX_REJECT_ROWS = 20_000


def gather(output: str) -> dict[str, Any]:
    """Returns the contents of the report of a finished job, as plain JSON.

    Raises:
      ValueError: if the folder holds no finished job, or one that wrote no shards.
      OSError: if a file cannot be read.
    """
    found = manifest.read(output)
    if not found["shards"]:
        raise ValueError(f"{output!r} holds no shards: its job did not tokenize, and there is nothing to report")
    stats = stats_file.read(output)
    totals = found["totals"]
    facts = {
        "job": found["job"],
        "job_digest": found["job_digest"],
        "versions": found["versions"],
        "tokenizer": found["tokenizer"],
        "config": found["config"],
        "headline": _headline(found, stats),
        "flow": _flow(found),
        "balance": found["balance"],
        "stats": stats,
        "chat": _chat(output, found, stats),
        "languages": _languages(stats),
        "n_files": len(found["inputs"]),
        "sources": cut_short(_sources(found, stats), "n_bytes"),
        "shards": cut_short(
            ({name: shard[name] for name in ("file", "rows", "tokens", "n_bytes")} for shard in found["shards"]),
            "tokens",
        ),
        "rejected": _rejected(output, found["rejects"], totals["rejected"]),
        "filtered": totals["filtered"],
        "clock": _clock(output),
    }
    return {"advice": advise(facts), **facts}


def _clock(output: str) -> dict[str, Any] | None:
    """Returns `clock.json`; None if the folder has none, because it was copied without it or is older."""
    try:
        return clock.read(output)
    except (OSError, ValueError):
        return None


def _headline(found: Mapping[str, Any], stats: Mapping[str, Any]) -> dict[str, Any]:
    totals = found["totals"]
    return {
        "documents": totals["n_documents"],
        "records": totals["n_records"],
        "bytes": totals["n_bytes"],
        "tokens": totals["n_tokens"],
        "rows": totals["shard_rows"],
        "shards": len(found["shards"]),
        "shard_bytes": totals["shard_bytes"],
        "vocabulary": stats["vocabulary"]["size"],
        "bytes_per_token": stats["bytes_per_token"],
        "tokens_per_word": stats["tokens_per_word"],
        "share_of_unknown_tokens": stats["oov"]["share_of_tokens"],
        "rejected": sum(totals["rejected"].values()),
        "filtered": sum(totals["filtered"].values()),
    }


def _flow(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns the ledger as stages: each {"what", "unit", "total", "of", "parts"}.

    A stage is an equation of the books: `of` and `parts` are its sides, counted independently, and `total` is the sum
    of `of`.
    """
    totals = found["totals"]
    packing, windows = totals.get("packing"), totals.get("windows")
    counts = flatten(totals)
    (of_records, of_bytes), (of_tokens,) = quantities.OF_INPUT, quantities.OF_TOKENS
    stages = [
        ("bytes read", of_bytes.left, of_bytes.right),
        ("records read", of_records.left, of_records.right),
        ("tokens made", of_tokens.right, of_tokens.left),
    ]
    if windows is not None:
        stages.append(("tokens of windows", quantities.OF_WINDOWS[1].left, quantities.OF_WINDOWS[1].right))
    if packing is not None:
        counts["packing:n_positions"] = packing["n_sequences"] * found["config"]["output"]["packing"]["length"]
        (of_positions,) = quantities.OF_POSITIONS
        stages.append(("positions in packed sequences", of_positions.left, of_positions.right))
    return [
        {
            "what": what,
            "unit": what.partition(" ")[0],
            "total": sum(quantities.in_words(whole, counts).values()),
            "of": quantities.in_words(whole, counts),
            "parts": quantities.in_words(parts, counts),
        }
        for what, whole, parts in stages
    ]


def _chat(output: str, found: Mapping[str, Any], stats: Mapping[str, Any]) -> dict[str, Any] | None:
    """Returns the counts of conversations, and rows as examples; None if documents are texts."""
    counts = stats.get("chat")
    return counts and {**counts, "examples": list(itertools.islice(_first_rows(output, found), SAMPLES))}


def _first_rows(output: str, found: Mapping[str, Any]) -> Iterator[list[dict[str, Any]]]:
    """Yields the rows of the first shard as stretches of `text` that are `trained` or not, the last cut."""
    tokenizer = Tokenizer.from_str(storage.read_text(storage.join(output, filenames.TOKENIZER)))
    name = found["shards"][0]["file"]
    with storage.open_read(storage.join(output, name)) as handle:
        for batch in formats.read_rows(handle, name):
            for row in batch.select(["input_ids", "n_tokens", schemas.LOSS_MASK.name]).slice(0, SAMPLES).to_pylist():
                ids, mask = (row[name][: min(row["n_tokens"], _SAMPLE_TOKENS)] for name in ("input_ids", "loss_mask"))
                runs = itertools.groupby(zip(mask, ids, strict=True), key=lambda pair: pair[0])
                yield [
                    {"text": tokenizer.decode([i for _, i in run], skip_special_tokens=False), "trained": trained}
                    for trained, run in runs
                ]


def _languages(stats: Mapping[str, Any]) -> dict[str, Any] | None:
    """Returns the part of stats.json about languages, with the largest languages as rows."""
    languages = stats.get("languages")
    if not languages:
        return None
    rows = ({"language": code, **counts} for code, counts in languages["by_code"].items())
    return {**{name: languages[name] for name in languages if name != "by_code"}, **cut_short(rows, "documents")}


def _sources(found: Mapping[str, Any], stats: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yields what is known of each source of `input.sources`; of each file if there are none."""
    for name, summary in stats.get("sources", {}).items():
        yield {"name": name, "n_bytes": found["by_source"][name].get("n_bytes", 0), **summary}
    if "sources" not in stats:
        for file in found["inputs"]:
            yield {"name": file["name"], "n_bytes": file["n_bytes"], **source_summary(file["read"])}


def _rejected(output: str, files: Sequence[Mapping[str, Any]], reasons: Mapping[str, int]) -> dict[str, dict[str, Any]]:
    """Returns for each reason the number of rejected records, its meaning, and the first records as samples."""
    rejected: dict[str, dict[str, Any]] = {
        reason: {"count": n, "meaning": REASONS.get(reason, ""), "samples": []}
        for reason, n in sorted(reasons.items(), key=lambda item: (-item[1], item[0]))
    }
    n_rows = 0
    for record in files[:_MAX_REJECT_FILES]:
        for batch in rejects_file.read(output, record["file"]):
            for row in batch.to_pylist():
                samples = rejected.setdefault(row["reason"], {"count": 0, "meaning": "", "samples": []})["samples"]
                if len(samples) < SAMPLES:
                    samples.append(_sample(row))
            n_rows += batch.num_rows
            if n_rows > _MAX_REJECT_ROWS or all(len(each["samples"]) == SAMPLES for each in rejected.values()):
                return rejected
    return rejected


def _sample(row: Mapping[str, Any]) -> dict[str, Any]:
    text = row["sample"].decode("utf-8", "backslashreplace")
    more = "..." if len(text) > _SAMPLE_CHARACTERS else ""
    return {
        "source": row["source"],
        "offset": row["offset"],
        "detail": row["detail"],
        "record": text[:_SAMPLE_CHARACTERS] + more,
    }


def cut_short(rows: Iterable[dict[str, Any]], by: str) -> dict[str, Any]:
    """Returns the `TOP` largest of any number of rows, in their order, and how many there are in all."""
    numbers = itertools.count(1)
    numbered = ((next(numbers), row) for row in rows)
    largest = heapq.nlargest(TOP, numbered, key=lambda each: (each[1][by] or 0, -each[0]))
    return {"rows": [row for _, row in sorted(largest, key=itemgetter(0))], "n_all": next(numbers) - 1}
