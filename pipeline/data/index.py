# SPDX-License-Identifier: Apache-2.0
"""Folders of an index: rows that are made of other rows, which it numbers and names by their digests.

    OUT/mixture.json   what it is, its sources with their digests, its files with their SHA-256, its own digest
    OUT/*.bin          arrays, little endian

Where the sources are is written down, too, but is no part of the digest: an index may be moved, and so may they.
"""

import abc
import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa

from tokenmill.pipeline import filenames, storage
from tokenmill.pipeline.data.dataset import Dataset
from tokenmill.pipeline.data.rows import Rows, Selection

VERSION = 1
_AGAIN = "copy the index again from where it was made, or make it again"


class Indexed(Rows):
    """Rows that an index makes of the rows of its sources; a subclass has `kind`, `take` and `_schema`."""

    kind: ClassVar[str]
    """What it is; its record has this name."""
    kinds: ClassVar[dict[str, "type[Indexed]"]] = {}

    def __init_subclass__(cls) -> None:
        cls.kinds[cls.kind] = cls

    def __init__(
        self,
        folder: str,
        sources: Mapping[str, Rows],
        columns: Sequence[str] | None = None,
        digest: str | None = None,
        *,
        is_checked: bool = False,
    ) -> None:
        """Opens an index.

        Args:
          folder: where it is, local or on a store.
          sources: the rows that it was made over, by name.
          columns: the columns of `take`; None for all.
          digest: the digest that the index must have; None for any.
          is_checked: whether this process, or one that it was pickled in, has read all of its files already.

        Raises:
          ValueError: if the index was changed or cut short, is of another version or over other sources; says what.
          OSError: if it cannot be read.
        """
        self.name, self.sources, self._columns = folder, dict(sources), columns
        self.record = read_record(folder, self.kind)
        self.digest = self.record["digest"]
        if digest not in (None, self.digest):
            raise ValueError(f"{folder!r} has the digest {self.digest}, not {digest}: it is not the data that is meant")
        for name, described in self.record["sources"].items():
            if (rows := self.sources.get(name)) is None or rows.digest != described["digest"]:
                has = f"{rows.name} has {rows.digest}" if rows is not None else "it is not given"
                raise ValueError(
                    f"{folder!r}: its source {name!r} has the digest {described['digest']}, but {has}: name the data "
                    f"that the index was made over, as sources={{{name!r}: ...}}, or make the index again"
                )
        self._is_checked = is_checked
        self.schema = self._schema(columns)

    @abc.abstractmethod
    def problems(self) -> Iterator[str]:
        """Yields what is wrong with the index, compared with the sizes of all rows of its sources, which it reads."""

    @abc.abstractmethod
    def _schema(self, columns: Sequence[str] | None) -> pa.Schema: ...

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(type(self), is_checked=True), (self.name, self.sources, self._columns, self.digest)

    def with_columns(self, columns: Sequence[str] | None) -> Self:
        """Returns the same rows with other columns; None for all."""
        sources = self.sources
        if columns is None:
            sources = {name: rows.with_columns(None) for name, rows in sources.items()}
        return type(self)(self.name, sources, columns, self.digest, is_checked=True)

    def array(self, file: str, dtype: np.dtype) -> np.ndarray:
        """Returns an array of the index, mapped where it is local.

        Raises:
          ValueError: if the file is not the one that the record names.
        """
        place, described = storage.join(self.name, file), self.record["files"][file]
        if not storage.exists(place):
            raise ValueError(f"{place}: not there, but {self.kind}.json lists it; {_AGAIN}")
        if storage.is_remote(place):
            with storage.open_read(place) as handle:
                data = np.frombuffer(handle.read(), np.uint8)
        else:
            data = np.asarray(np.memmap(place, np.uint8, "r")) if os.path.getsize(place) else np.zeros(0, np.uint8)
        if data.size != described["n_bytes"]:
            what = "cut short" if data.size < described["n_bytes"] else "changed"
            raise ValueError(f"{place}: {what}: {data.size} bytes, not {described['n_bytes']}; {_AGAIN}")
        if not self._is_checked and (sha256 := hashlib.sha256(data.data).hexdigest()) != described["sha256"]:
            raise ValueError(f"{place}: changed: its SHA-256 is {sha256}, not {described['sha256']}; {_AGAIN}")
        return data.view(dtype)


def open_rows(
    path: str | os.PathLike[str],
    *,
    columns: Sequence[str] | None = None,
    sources: Mapping[str, Any] | None = None,
    digest: str | None = None,
    **options: Any,
) -> Rows:
    """Opens a finished output of `tokenmill tokenize`, or an index over some, without reading a row.

    Args:
      path: its folder, local or `s3://`, `gs://`, ...; of an output in parts one of its folders.
      columns: the columns to read; None for all.
      sources: of an index, where its sources are now, or their rows, by name; where they were when it was made if they
        are not named. They must have the digests that the index records.
      digest: the digest that the data must have; None for any.
      options: for the output, or for all outputs that are sources. `format`: "parquet", "arrow", "memmap" or
        "megatron", None for the first that the job wrote; rows are the same in each, but memory maps and Megatron's
        format store `input_ids` without padding, and from them `n_tokens`. `check`: "sizes" compares the sizes of all
        files with the manifest, "contents" also their SHA-256, None nothing. `cache_bytes`: what decoded row groups,
        and ranges of files on a store, may take in memory in each process, 256 MiB unless given; local memory maps take
        none, the page cache of the system has them.

    Raises:
      ValueError: if the folder is neither, or what is there was changed; says what, and what to do.
      OSError: if it cannot be read.
    """
    path = os.fspath(path)
    if (kind := kind_of(path)) is None:
        if sources:
            raise ValueError(f"{path!r} is no index, which has sources")
        return Dataset(path, columns, digest=digest, **options)
    record = read_record(path, kind)
    places = {**record["paths"], **(sources or {})}
    if unknown := places.keys() - record["sources"].keys():
        raise ValueError(f"{path!r} has no source {min(unknown)!r}, only {', '.join(record['sources'])}")
    opened = {}
    for name, place in places.items():
        try:
            opened[name] = place if isinstance(place, Rows) else open_rows(place, **options)
        except (ValueError, OSError) as error:
            raise ValueError(
                f"{path!r}: its source {name!r} cannot be opened: {error}; say where it is: sources={{{name!r}: ...}}"
            ) from error
    ordered = {name: opened[name] for name in record["sources"] if name in opened}
    return Indexed.kinds[kind](path, ordered, columns, digest)


def kind_of(path: str) -> str | None:
    """Returns the kind of the index in a folder; None if there is none."""
    found = next((name for name in filenames.INDEXES if storage.exists(storage.join(path, name))), None)
    return found and found.removesuffix(".json")


def origins(rows: Rows) -> list[Dataset]:
    """Returns the outputs that rows are made of, as far as they are known."""
    if isinstance(rows, Dataset):
        return [rows]
    sources = rows.sources.values() if isinstance(rows, Indexed) else [rows.rows] if isinstance(rows, Selection) else ()
    return [dataset for source in sources for dataset in origins(source)]


def write(
    folder: str, kind: str, record: Mapping[str, Any], sources: Mapping[str, Rows], arrays: Mapping[str, np.ndarray]
) -> None:
    """Writes an index, its record last; replaces one that is there.

    Args:
      folder: a new folder, or one of such an index; local or on a store.
      kind: the name of the record.
      record: plain JSON that describes the rows.
      sources: the rows that the arrays number.
      arrays: little-endian numbers or records of them, by the names of their files.

    Raises:
      ValueError: if the folder holds something else.
      OSError: if it cannot be written.
    """
    place = storage.join(folder, f"{kind}.json")
    if not storage.exists(place) and storage.exists(folder) and storage.list_files(folder):
        raise ValueError(f"{folder!r} holds something that is no {kind}: choose a new folder")
    storage.delete(place)  # an index that is half replaced is none
    files = {}
    for name, array in arrays.items():
        data = np.ascontiguousarray(array).tobytes()
        storage.write_atomic(storage.join(folder, name), data)
        files[name] = {"n_bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    whole = {
        "format_version": VERSION,
        **record,
        "sources": {name: {"digest": rows.digest, "rows": len(rows)} for name, rows in sources.items()},
        "files": files,
    }
    paths = {name: _absolute(rows.name) for name, rows in sources.items() if isinstance(rows, Dataset | Indexed)}
    text = json.dumps({**whole, "digest": _digest(whole), "paths": paths}, indent=1, ensure_ascii=False) + "\n"
    storage.write_atomic(place, text.encode())


def _absolute(path: str) -> str:
    return path if storage.is_remote(path) else os.path.abspath(path)


def _digest(whole: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()


def read_record(folder: str, kind: str) -> dict[str, Any]:
    """Returns the record of an index, whose digest is checked.

    Raises:
      ValueError: if it is none of this version, or was changed.
      OSError: if it cannot be read.
    """
    place = storage.join(folder, f"{kind}.json")
    try:
        record = json.loads(storage.read_text(place))
        version, recorded, paths = record["format_version"], record.pop("digest"), record.pop("paths")
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError) as error:
        raise ValueError(f"{place!r} is not a {kind} as TokenMill writes it: {error!r}; {_AGAIN}") from error
    if version != VERSION:
        raise ValueError(
            f"{place!r} has format {version!r}, this TokenMill reads {VERSION}: use the one that wrote it, or make the "
            "index again"
        )
    if recorded != (digest := _digest(record)):
        raise ValueError(f"{place!r} was changed: its digest is {digest}, it records {recorded}; {_AGAIN}")
    return {**record, "digest": recorded, "paths": paths}
