# SPDX-License-Identifier: Apache-2.0
"""Runs the tokenize job without tokenizing: it copies ids that were computed before.

The time of such a job is the floor: reading, counting, writing and proving. `python -m benchmarks.floor record FOLDER
ARGUMENTS` runs `tokenmill ARGUMENTS` and keeps the ids of every split in FOLDER; with `copy` it takes them from there.
Neither includes the text steps, spans and tallies of a tokenizer. Workers must be threads of the process.
"""

import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tokenmill.pipeline import cli
from tokenmill.pipeline.tokenizing import pages
from tokenmill.tokenizer import Tokenizer
from tokenmill.tokenizer.ragged import Ragged

_read_split, _encode = pages.read_split, Tokenizer.encode_bare


class _Split(threading.local):
    """The split that a thread works on."""

    ids: np.ndarray
    offsets: np.ndarray
    row = 0


def record(folder: Path, arguments: list[str]) -> int:
    """Runs a command, and keeps the ids of every split."""
    kept = threading.local()

    def read_split(split: Any, *args: Any, **options: Any) -> Iterator[Any]:
        kept.rows = []
        yield from _read_split(split, *args, **options)
        rows = pa.concat_arrays(kept.rows) if kept.rows else pa.array([], pa.large_list(pa.int32()))
        np.save(folder / f"{split.index}.ids.npy", rows.values.to_numpy())
        np.save(folder / f"{split.index}.offsets.npy", rows.offsets.to_numpy())

    def encode_bare(tokenizer: Tokenizer, *args: Any) -> pa.LargeListArray:
        rows = _encode(tokenizer, *args)
        if len(args) > 1:  # documents are tallied, words that statistics are made of are not
            kept.rows.append(rows)
        return rows

    return _run(arguments, read_split, encode_bare)


def copy(folder: Path, arguments: list[str]) -> int:
    """Runs a command with the ids that `record` kept of the same command."""
    at = _Split()

    def read_split(split: Any, *args: Any, **options: Any) -> Iterator[Any]:
        at.ids = np.load(folder / f"{split.index}.ids.npy", mmap_mode="r")
        at.offsets, at.row = np.load(folder / f"{split.index}.offsets.npy"), 0
        yield from _read_split(split, *args, **options)

    def encode_bare(tokenizer: Tokenizer, texts: Ragged, *tally: Any) -> pa.LargeListArray:
        if not tally:
            return _encode(tokenizer, texts)
        offsets = at.offsets[at.row : at.row + texts.n_rows + 1]
        at.row += texts.n_rows
        ids = np.array(at.ids[offsets[0] : offsets[-1]])
        return pa.LargeListArray.from_arrays(pa.array(offsets - offsets[0]), pa.array(ids))

    return _run(arguments, read_split, encode_bare)


def _run(arguments: list[str], read_split: Any, encode_bare: Any) -> int:
    pages.read_split, Tokenizer.encode_bare = read_split, encode_bare  # type: ignore[method-assign]
    return cli.main(arguments)


if __name__ == "__main__":
    sys.exit({"record": record, "copy": copy}[sys.argv[1]](Path(sys.argv[2]), sys.argv[3:]))
