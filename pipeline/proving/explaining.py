# SPDX-License-Identifier: Apache-2.0
"""Leads from a training step to documents and bytes: step -> row -> source of a mixture -> documents of a sequence.

rows, number --locate--> rows of shards, and which of their tokens --trace--> documents, files, bytes
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from tokenmill.pipeline.data import index
from tokenmill.pipeline.data.dataset import Dataset
from tokenmill.pipeline.data.mixture import Mixture
from tokenmill.pipeline.data.packed import Packed
from tokenmill.pipeline.data.rows import Rows, Selection
from tokenmill.pipeline.data.samples import Samples
from tokenmill.pipeline.proving import trace
from tokenmill.pipeline.proving.report import VerifyReport


def locate(rows: Rows, row: int) -> Iterator[dict[str, Any]]:
    """Yields the rows of shards that a row is made of, from left to right.

    Yields:
      `output`, `shard` and `row` in it; `start`, where in the row that was asked for its tokens are, `first`, which of
      them is there, and `size`, how many are, separator not included; and `through`, from the outside in, `index`,
      `source` and `row` of that for every mixture and packing in between.

    Raises:
      IndexError: if there is no such row.
      TypeError: if rows are none of TokenMill's.
    """
    if isinstance(rows, Dataset):
        (row,) = rows.checked([row]).tolist()
        shard = int(rows.starts.searchsorted(row, "right")) - 1
        size = int(rows.with_columns(["n_tokens"])[row]["n_tokens"])
        name = rows.files["file"][shard].as_py()
        found = {"output": rows.name, "shard": name, "row": row - int(rows.starts[shard])}
        yield {**found, "start": 0, "first": 0, "size": size, "through": []}
    elif isinstance(rows, Selection):
        yield from locate(rows.rows, int(rows.numbers[row]))
    elif isinstance(rows, Mixture):
        (source,), (number,) = (each.tolist() for each in rows.places([row]))
        name = list(rows.sources)[source]
        step = {"index": rows.name, "source": name, "row": number}
        yield from ({**each, "through": [step, *each["through"]]} for each in locate(rows.sources[name], number))
    elif isinstance(rows, Packed):
        start, (name, source) = 0, next(iter(rows.sources.items()))
        for document, first, size in rows.pieces(row).tolist():
            step = {"index": rows.name, "source": name, "row": document}
            for each in locate(source, document):
                n = min(size, each["size"] - first)
                yield {**each, "start": start, "first": first, "size": n, "through": [step, *each["through"]]}
            start += size
    else:
        raise TypeError(f"{rows.name} is no output, mixture or packing: nothing leads on from its rows")


def explain(rows: Rows, row: int, token: int | None = None) -> list[dict[str, Any]]:
    """Returns where a row, or a token of it, came from: for each part what `locate` and `trace` say of it.

    Args:
      rows: the rows.
      row: the number of one.
      token: its position in the row, from 0; None for the whole row. There is no part for a separator or padding that
        a packing puts there.

    Raises:
      IndexError, TypeError: see `locate`.
      ValueError, OSError: see `trace`.
    """
    parts = []
    for part in locate(rows, row):
        within = None
        if token is not None:
            if not part["start"] <= token < part["start"] + part["size"]:
                continue
            within = token - part["start"] + part["first"]
        parts.append({**part, **trace.trace(part["output"], part["shard"], part["row"], within)})
    return parts


def is_index(path: str) -> bool:
    """Returns whether a folder is a mixture or a packing."""
    return index.kind_of(path) is not None


def verify_index(path: str) -> VerifyReport:
    """Proves a mixture or a packing: its files, those of all its sources, and that its numbers are those of their rows.

    Raises:
      OSError: if it cannot be read at all.
    """
    report = VerifyReport()
    try:
        rows = index.open_rows(path, check="contents")
        assert isinstance(rows, index.Indexed)
        report.problems += rows.problems()
        files = [*rows.record["files"].values()]
        files += [each for source in index.origins(rows) for each in source.files.to_pylist()]
        report.n_files, report.n_bytes = len(files), sum(each["n_bytes"] for each in files)
        report.n_rows, report.n_tokens = len(rows), rows.n_tokens
    except ValueError as error:
        report.problems.append(str(error))
    return report


def explain_row(path: str, row: int, token: int | None) -> list[dict[str, Any]]:
    """Returns where a row of an index came from; see `explain`.

    Raises:
      ValueError: if there is no such row, or the index, or what it is made over, is not as it says.
      OSError: if it cannot be read.
    """
    try:
        return explain(index.open_rows(path), row, token)
    except IndexError as error:
        raise ValueError(str(error)) from error


def explain_step(samples: Samples, step: int, row: int, token: int | None = None) -> dict[str, Any]:
    """Returns where row `row` of the batch of a rank at a step, or a token of it, came from.

    Args:
      samples: the batches of the rank, in as large batches and on as many ranks as then.
      step: 0 for the next one of `samples`, which is that behind a state that was loaded, or the first of all.
      row: of the batch, from 0.
      token: see `explain`.

    Returns:
      The `epoch`, the number of the `row` among all rows, and `parts`, see `explain`.

    Raises:
      IndexError: if the batch has no such row.
      TypeError, ValueError, OSError: see `explain`.
    """
    place = samples.place(step, row)
    (number,) = samples.rows_at(np.array([place])).tolist()
    assert isinstance(samples.rows, Rows)
    return {"epoch": place // len(samples.rows), "row": number, "parts": explain(samples.rows, number, token)}
