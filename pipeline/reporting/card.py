# SPDX-License-Identifier: Apache-2.0
"""A dataset card: Markdown with YAML front matter, as hubs of data sets expect it."""

from collections.abc import Mapping
from typing import Any

import yaml

from tokenmill.pipeline.output import hub_config
from tokenmill.pipeline.reporting.html import number
from tokenmill.pipeline.running.display import megabytes

_SIZES = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M"))
_MORE_SIZES = ((10_000_000, "1M<n<10M"), (100_000_000, "10M<n<100M"), (1_000_000_000, "100M<n<1B"))


def render(facts: Mapping[str, Any], output: str) -> str:
    """Returns the card of an output folder.

    Args:
      facts: as `facts.gather` returns them.
      output: the name of the folder.
    """
    headline, languages = facts["headline"], facts["languages"]
    front: dict[str, Any] = {"pretty_name": output.rstrip("/").rpartition("/")[2], "tags": ["tokenized", "tokenmill"]}
    if languages is not None:
        front["language"] = [row["language"] for row in languages["rows"] if len(row["language"]) in (2, 3)]
    if found := hub_config.configs(_formats(facts["config"])):
        front["configs"] = found
    n = headline["documents"]
    front["size_categories"] = [next((name for size, name in (*_SIZES, *_MORE_SIZES) if n < size), "n>1B")]
    lines = [
        "---",
        yaml.safe_dump(front, allow_unicode=True, sort_keys=False).rstrip(),
        "---",
        "",
        f"# {front['pretty_name']}",
        "",
        f"{headline['tokens']:,} tokens of {n:,} documents, {megabytes(headline['bytes'])} of text, in "
        f"{headline['shards']:,} {'shard' if headline['shards'] == 1 else 'shards'}, "
        f"{megabytes(headline['shard_bytes'])}. Made by TokenMill "
        f"{facts['versions']['tokenmill']}; `tokenmill verify` proves it from `manifest.json`.",
        "",
        "| | |",
        "|---|---|",
        *(f"| {name} | {value} |" for name, value in _rows(facts)),
        "",
    ]
    for stage in facts["flow"]:
        lines += [f"**{stage['total']:,} {stage['what']}**: " + _parts(stage["parts"]), ""]
    if facts["rejected"]:
        lines += ["| rejected for | records | meaning |", "|---|---|---|"]
        lines += [
            f"| {reason} | {found['count']:,} | {found['meaning']} |" for reason, found in facts["rejected"].items()
        ]
        lines.append("")
    return "\n".join(lines)


def _formats(config: Mapping[str, Any]) -> list[str]:
    formats = config.get("output", {}).get("format", [])
    return [formats] if isinstance(formats, str) else list(formats)


def _rows(facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    headline, stats = facts["headline"], facts["stats"]
    vocabulary = stats["vocabulary"]
    return [
        ("vocabulary", f"{vocabulary['size']:,} entries, {vocabulary['used']:,} used"),
        ("tokenizer", f"`{facts['tokenizer']['digest']}`"),
        ("bytes per token", number(headline["bytes_per_token"])),
        ("tokens per word", number(headline["tokens_per_word"])),
        ("unknown tokens", f"{stats['oov']['tokens']:,}"),
        ("tokens of a document", f"{number(stats['lengths']['min'])} to {number(stats['lengths']['max'])}"),
        (
            "records read, rejected, filtered",
            f"{headline['records']:,}, {headline['rejected']:,}, {headline['filtered']:,}",
        ),
    ]


def _parts(parts: Mapping[str, int]) -> str:
    return ", ".join(f"{n:,} {name}" for name, n in parts.items() if n) or "none"
