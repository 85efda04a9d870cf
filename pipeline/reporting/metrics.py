# SPDX-License-Identifier: Apache-2.0
"""The numbers of a finished job as metrics, in the text format that Prometheus and OpenMetrics readers take."""

from collections.abc import Iterator, Mapping
from typing import Any

from tokenmill.pipeline.books import manifest, parts, quantities

_LABELS = {"rejected": "reason", "filtered": "rule"}


def render(output: str, seconds: float) -> str:
    """Returns the metrics of the finished job in an output folder, one for each quantity of its totals.

        # TYPE tokenmill_tokens gauge
        # HELP tokenmill_tokens tokens
        tokenmill_tokens{job="tokenize"} 11657559

    They are gauges, because a file that a finished job leaves does not count up. The names are those of
    `books.quantities` without `n_`; rejected and filtered have the label `reason` or `rule`.

    Args:
      output: the folder, with its manifest.
      seconds: how long the job took.

    Raises:
      ValueError: if the folder holds no finished job. OSError: if the manifest cannot be read.
    """
    found = parts.read(output) if parts.is_in_parts(output) else manifest.read(output)
    lines = [
        *_lines(found["job"], found["totals"]),
        *_metric("seconds", "how long the job took", found["job"], seconds),
    ]
    return "\n".join([*lines, "# EOF"]) + "\n"


def _lines(job: str, totals: Mapping[str, Any]) -> Iterator[str]:
    seen = set()
    for quantity in (*quantities.READ, *quantities.TOKENIZED, *quantities.WRITTEN):
        if quantity.name in totals and quantity.name not in seen:
            seen.add(quantity.name)
            yield from _metric(quantity.name.removeprefix("n_"), quantity.words, job, totals[quantity.name])


def _metric(name: str, words: str, job: str, value: Any) -> Iterator[str]:
    yield f"# TYPE tokenmill_{name} gauge"
    yield f"# HELP tokenmill_{name} {words}"
    if not isinstance(value, Mapping):
        yield f'tokenmill_{name}{{job="{job}"}} {value}'
        return
    for key, n in sorted(value.items()):
        yield f'tokenmill_{name}{{job="{job}",{_LABELS[name]}="{key}"}} {n}'
