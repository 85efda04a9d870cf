# SPDX-License-Identifier: Apache-2.0
"""The report of a finished output folder: its contents as plain data, and the page that shows them.

`gather` reads files of the folder and counts nothing again. What it returns is bounded, however large the job: lists
are cut to `TOP` entries, and say how many were left out. `render` shows it by a template.
"""

import heapq
import itertools
from collections.abc import Iterable, Iterator, Mapping
from operator import itemgetter
from typing import Any

import yaml
from pydantic import ValidationError

from tokenmill.pipeline import filenames, schemas, storage
from tokenmill.pipeline.books import quantities
from tokenmill.pipeline.books.counts import flatten
from tokenmill.pipeline.books.manifest import read as read_manifest
from tokenmill.pipeline.books.parts import is_in_parts
from tokenmill.pipeline.books.quantities import OTHER_PART
from tokenmill.pipeline.config.job import Config, with_paths
from tokenmill.pipeline.config.text import UNKNOWN
from tokenmill.pipeline.input.rejects import REASONS
from tokenmill.pipeline.output import tables
from tokenmill.pipeline.output.writers import formats
from tokenmill.pipeline.reporting import html, stats_file
from tokenmill.pipeline.reporting.advice import LEAST_SHARE, advise
from tokenmill.pipeline.reporting.stats import source
from tokenmill.pipeline.running import clock
from tokenmill.tokenizer import Tokenizer

TOP = 25
"""The most entries of a list in a report."""

SAMPLES = 3
"""How many rejected records are shown for each reason, and how many rows of conversations."""

_SAMPLE_CHARACTERS, _SAMPLE_TOKENS = 160, 400
_HEADLINE = {
    "documents": "n_documents", "records": "n_records", "bytes": "n_bytes", "tokens": "n_tokens", "rows": "shard_rows",
    "shard_bytes": "shard_bytes",
}  # fmt: skip
_MAX_REJECT_FILES = 20
_MAX_REJECT_ROWS = 20_000


def gather(output: str) -> dict[str, Any]:
    """Returns the contents of the report of a finished job, as plain JSON.

    Raises:
      ValueError: if the folder holds no finished job, or one that wrote no shards.
      OSError: if a file cannot be read.
    """
    manifest = read_manifest(output)
    if not manifest["shards"]:
        raise ValueError(f"{output!r} holds no shards: its job did not tokenize, and there is nothing to report")
    stats = stats_file.read(output).to_record()
    totals, chat, languages = manifest["totals"], stats.get("chat"), dict(stats.get("languages") or {})
    by_code = ({"language": code, **each} for code, each in languages.pop("by_code", {}).items())
    facts = {
        "job": manifest["job"],
        "job_digest": manifest["job_digest"],
        "versions": manifest["versions"],
        "tokenizer": manifest["tokenizer"],
        "config": manifest["config"],
        "headline": {
            **{name: totals[counted] for name, counted in _HEADLINE.items()},
            "shards": len(manifest["shards"]),
            "vocabulary": stats["vocabulary"]["size"],
            "bytes_per_token": stats["bytes_per_token"],
            "tokens_per_word": stats["tokens_per_word"],
            "share_of_unknown_tokens": stats["oov"]["share_of_tokens"],
            "rejected": sum(totals["rejected"].values()),
            "filtered": sum(totals["filtered"].values()),
        },
        "flow": _flow(manifest),
        "balance": manifest["balance"],
        "stats": stats,
        "chat": chat and {**chat, "examples": list(itertools.islice(_first_rows(output, manifest), SAMPLES))},
        "languages": {**languages, **cut_short(by_code, "documents")} if languages else None,
        "n_files": len(manifest["inputs"]),
        "sources": cut_short(_sources(manifest, stats), "n_bytes"),
        "shards": cut_short(
            ({name: shard[name] for name in ("file", "rows", "tokens", "n_bytes")} for shard in manifest["shards"]),
            "tokens",
        ),
        "rejected": _rejected(output, manifest["rejects"], totals["rejected"]),
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


def _flow(manifest: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns the ledger as stages: each {"what", "unit", "total", "of", "parts"}.

    A stage is an equation of the books: `of` and `parts` are its sides, counted independently, and `total` is the sum
    of `of`.
    """
    totals = manifest["totals"]
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
        counts["packing:n_positions"] = packing["n_sequences"] * manifest["config"]["output"]["packing"]["length"]
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


def _first_rows(output: str, manifest: Mapping[str, Any]) -> Iterator[list[dict[str, Any]]]:
    """Yields the rows of the first shard as stretches of `text` that are `trained` or not, the last cut."""
    tokenizer = Tokenizer.from_str(storage.read_text(storage.join(output, filenames.TOKENIZER)))
    name = manifest["shards"][0]["file"]
    with storage.open_read(storage.join(output, name)) as handle:
        for batch in formats.read_rows(handle, name):
            for row in batch.select(["input_ids", "n_tokens", schemas.LOSS_MASK.name]).slice(0, SAMPLES).to_pylist():
                ids, mask = (row[name][: min(row["n_tokens"], _SAMPLE_TOKENS)] for name in ("input_ids", "loss_mask"))
                runs = itertools.groupby(zip(mask, ids, strict=True), key=lambda pair: pair[0])
                yield [
                    {"text": tokenizer.decode([i for _, i in run], skip_special_tokens=False), "trained": trained}
                    for trained, run in runs
                ]


def _sources(manifest: Mapping[str, Any], stats: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yields what is known of each source of `input.sources`; of each file if there are none."""
    for name, summary in stats.get("sources", {}).items():
        yield {"name": name, "n_bytes": manifest["by_source"][name].get("n_bytes", 0), **summary}
    if "sources" not in stats:
        for file in manifest["inputs"]:
            yield {"name": file["name"], "n_bytes": file["n_bytes"], **source(file["read"]).to_record()}


def _rejected(output: str, files: Iterable[Mapping[str, Any]], reasons: Mapping[str, int]) -> dict[str, dict[str, Any]]:
    """Returns for each reason the number of rejected records, its meaning, and the first records as samples."""
    ordered = sorted(reasons.items(), key=lambda item: (-item[1], item[0]))
    rejected: dict[str, dict[str, Any]] = {
        reason: {"count": n, "meaning": REASONS.get(reason, ""), "samples": []} for reason, n in ordered
    }
    n_rows = 0
    for record in itertools.islice(files, _MAX_REJECT_FILES):
        for batch in tables.read_rejects(output, record["file"]):
            for row in batch.to_pylist():
                samples = rejected.setdefault(row["reason"], {"count": 0, "meaning": "", "samples": []})["samples"]
                if len(samples) < SAMPLES:
                    text = row["sample"].decode("utf-8", "backslashreplace")
                    more = "..." if len(text) > _SAMPLE_CHARACTERS else ""
                    place = {name: row[name] for name in ("source", "offset", "detail")}
                    samples.append({**place, "record": text[:_SAMPLE_CHARACTERS] + more})
            n_rows += batch.num_rows
            if n_rows > _MAX_REJECT_ROWS or all(len(each["samples"]) == SAMPLES for each in rejected.values()):
                return rejected
    return rejected


def cut_short(rows: Iterable[dict[str, Any]], by: str) -> dict[str, Any]:
    """Returns the `TOP` largest of any number of rows, in their order, and how many there are in all."""
    numbers = itertools.count(1)
    numbered = ((next(numbers), row) for row in rows)
    largest = heapq.nlargest(TOP, numbered, key=lambda each: (each[1][by] or 0, -each[0]))
    return {"rows": [row for _, row in sorted(largest, key=itemgetter(0))], "n_all": next(numbers) - 1}


_MOST_ITEMS, _LONGEST = 100, 2000
"""What is shown of a list or mapping of a config, and of a text, such as a pattern."""
_MOST_TOKENS = itemgetter("tokens")
_MOST_GROUPS = 7
"""Languages, sources or files that the picture tells apart; the rest is one."""
_NO_LANGUAGE = {UNKNOWN: "the language was not found", "zxx": "no language, such as tables and numbers"}


def draw(output: str) -> str:
    """Writes the page of a finished job into its output folder; returns its path.

    Raises:
      ValueError: if the folder holds no finished job with shards; OSError: if a file cannot be read or written.
    """
    path = storage.join(output, filenames.REPORT)
    storage.write_atomic(path, render(gather(output), output).encode("utf-8"))
    return path


class Report(dict[str, Any]):
    """The report of a finished job, as `tokenmill report --json` prints it; a notebook shows it as a page."""

    def _repr_html_(self) -> str:
        return html.framed(render(self))


def read_report(output: str) -> Report:
    """Returns the report of a finished job; `stats` has the contents of `stats.json`.

    Args:
      output: its output folder.

    Raises:
      ValueError: if the folder holds no finished job with shards; OSError: if a file cannot be read.
    """
    return Report(gather(output))


def render(facts: Mapping[str, Any], output: str = "") -> str:
    """Returns the page as HTML. Equal facts give equal pages; of the facts only `clock` differs from run to run.

    Args:
      facts: as `page.gather` returns them.
      output: the folder that they are about; "": where the job wrote, if `clock` has that.
    """
    run = (facts["clock"] or {}).get("config")
    inputs = [run["input"], *run["input"].get("sources", {}).values()] if run else []
    config = run or _without_defaults(facts["config"])
    place = output or (run["output"]["path"] if run else "")
    headline, languages = facts["headline"], facts["languages"]
    filtered = {rule: n for rule, n in facts["filtered"].items() if rule != OTHER_PART}
    return html.render(
        "reporting/report.html.jinja",
        **{**facts, "filtered": filtered},
        n_lost=headline["rejected"] + sum(filtered.values()),
        n_records=headline["records"] - facts["filtered"].get(OTHER_PART, 0),
        name=_name(place, is_here=bool(output)) or f"A job {facts['job']}",
        has_paths=bool(run),
        given=yaml.safe_dump(_shortened(config), allow_unicode=True, sort_keys=False),
        tokenizer_file=config.get("tokenizer", {}).get("file") if run else None,
        by_language=sorted(map(_cost, languages["rows"]), key=_MOST_TOKENS, reverse=True) if languages else [],
        by_source=sorted(map(_cost, facts["sources"]["rows"]), key=_MOST_TOKENS, reverse=True),
        inputs=[path for section in inputs for path in section.get("paths", ())],
        picture=_picture(facts),
        NO_LANGUAGE=_NO_LANGUAGE,
        LEAST_SHARE=LEAST_SHARE,
    )


def _name(place: str, *, is_here: bool) -> str:
    """Returns the name of an output folder; of a folder of an output in parts also that of the folder it is in."""
    folders = place.rstrip("/\\").replace("\\", "/").split("/")
    is_part = is_here and len(folders) > 1 and is_in_parts("/".join(folders[:-1]) or "/")
    return "/".join(folders[-2 if is_part else -1 :])


def _cost(row: Mapping[str, Any]) -> dict[str, Any]:
    """Returns name, size and tokens per 1,000 characters of the row of a language or of a source.

    Tokens of the text are counted before any is cut.
    """
    per_token = row.get("characters_per_token")
    each = row["tokens_per_character"] if "language" in row else per_token and 1 / per_token
    return {
        "name": row["language"] if "language" in row else row["name"],
        "tokens": row["tokens"],
        "unknown": row["share_of_oov_tokens"],
        "cost": each and round(1000 * each),
        "characters": row["characters"],
        "text_tokens": round(row["characters"] * (each or 0)),
    }


def _picture(facts: Mapping[str, Any]) -> dict[str, Any] | None:
    """Returns text and tokens of each language, or each source, in percent of all; None if there is but one part.

    What was rejected or filtered is a part of the text, in bytes; what another folder has or a sample lacks is not.
    """
    stats, in_bytes = facts["stats"], facts["flow"][0]["parts"]
    kind, cut = ("language", facts["languages"]) if facts["languages"] else ("source", facts["sources"])
    if kind == "source" and "sources" not in stats:
        kind = "file"
        if cut["n_all"] > _MOST_GROUPS:  # a few of so many say nothing
            return None
    rows = sorted(map(_cost, cut["rows"]), key=lambda cost: -cost["characters"])[:_MOST_GROUPS]
    totals = (stats["characters"], stats["tokens_made"]["text"])
    names = ("characters", "text_tokens")
    others = {name: total - sum(row[name] for row in rows) for name, total in zip(names, totals, strict=True)}
    groups = [row for row in (*rows, {"name": "others", **others}) if row["characters"] > 0]
    gone = in_bytes["rejected bytes"] + (0 if OTHER_PART in facts["filtered"] else in_bytes["filtered bytes"])
    lost = 100 * gone / (gone + in_bytes["bytes of documents"] or 1)
    n_chars, n_tokens = (sum(row[name] for row in groups) for name in names)
    if len(groups) + (lost > 0) < 2 or not n_tokens:
        return None
    ends = [(0.0, 0.0)]
    for row in groups:
        above, below = ends[-1]
        ends.append((above + row["characters"] / n_chars * (100 - lost), below + 100 * row["text_tokens"] / n_tokens))
    bands = [{**row, "from": a, "to": b} for row, (a, b) in zip(groups, itertools.pairwise(ends), strict=True)]
    return {"kind": kind, "bands": bands, "lost": lost}


def _without_defaults(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns a config of a manifest, which has every key but no path, as someone would write it."""
    try:
        return Config.model_validate(with_paths(config, "...", "...")).given()
    except ValidationError:  # of another version
        return config


def _shortened(value: object) -> object:
    """Returns a part of a config with long lists, mappings and texts cut: it may name each of a million files."""
    if isinstance(value, str):
        return value if len(value) <= _LONGEST else f"{value[:_LONGEST]}..."
    if not isinstance(value, (Mapping, list)):
        return value
    more = f"{len(value) - _MOST_ITEMS:,} more" if len(value) > _MOST_ITEMS else None
    if isinstance(value, list):
        return [*map(_shortened, value[:_MOST_ITEMS]), *([f"... and {more}"] if more else [])]
    kept = {key: _shortened(each) for key, each in itertools.islice(value.items(), _MOST_ITEMS)}
    return kept | ({"...": more} if more else {})
