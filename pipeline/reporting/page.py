# SPDX-License-Identifier: Apache-2.0
"""The report as one page: what `facts.gather` returns, shown by a template. Nothing is counted again."""

import itertools
import operator
from collections.abc import Mapping
from typing import Any

import yaml
from pydantic import ValidationError

from tokenmill.pipeline import filenames, storage
from tokenmill.pipeline.books.parts import is_in_parts
from tokenmill.pipeline.books.rules import OTHER_PART
from tokenmill.pipeline.config.job import Config, with_paths
from tokenmill.pipeline.config.text import UNKNOWN
from tokenmill.pipeline.reporting import html
from tokenmill.pipeline.reporting.advice import LEAST_SHARE
from tokenmill.pipeline.reporting.facts import gather

_MOST_ITEMS, _LONGEST = 100, 2000
"""What is shown of a list or mapping of a config, and of a text, such as a pattern."""
_MOST_TOKENS = operator.itemgetter("tokens")
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
      facts: as `facts.gather` returns them.
      output: the folder that they are about; "": where the job wrote, if `clock` has that.
    """
    run = (facts["clock"] or {}).get("config")
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
        inputs=_input_paths(run["input"]) if run else [],
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


def _input_paths(section: Mapping[str, Any]) -> list[str]:
    """Returns the paths of the section `input`, or of its sources."""
    found = section.get("sources")
    sources = found if isinstance(found, Mapping) else {}
    return [*section.get("paths", []), *(path for each in sources.values() for path in each.get("paths", []))]


def _shortened(value: Any) -> Any:
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
