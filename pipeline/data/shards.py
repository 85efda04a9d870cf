# SPDX-License-Identifier: Apache-2.0
"""Shards that are read a unit at a time: a row group, a record batch, a stretch of ids; and their manifest.

On a disk, files of Arrow, memory maps and Megatron's format are mapped: a unit is copied only when rows are gathered.
Of a store a unit is one ranged read.
"""

import glob
import hashlib
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa

from tokenmill.pipeline import filenames, schemas, storage
from tokenmill.pipeline.columns import open_parquet, stretches
from tokenmill.pipeline.config.formats import SHARD_FORMATS
from tokenmill.pipeline.filenames import MANIFEST
from tokenmill.pipeline.output.writers import flat

FORMATS = {name: (*SHARD_FORMATS[name].suffixes, "")[:2] for name in ("parquet", "arrow", "memmap", "megatron")}
"""The formats whose rows can be read in any order, and how the names of their files end: rows, index."""

_VERSIONS = 4, 5  # as in `books.manifest`, which needs more libraries
_RECORD = {"file": pa.string(), "n_bytes": pa.int64(), "sha256": pa.string(), "rows": pa.int64(), "tokens": pa.int64()}
_AGAIN = "copy the folder again from where it was made, or run its job again"
_UNIT_BYTES = 1 << 20
"""Read at once of ids on a store, which takes 30 ms to answer: at 100 MB/s this much takes no longer than one row."""


def read_manifest(path: str) -> dict[str, Any]:
    """Returns the manifest of a finished output, with its digest, which is checked.

    Raises:
      ValueError: if the folder is no finished output of this version, or its manifest was changed.
      OSError: if it cannot be read.
    """
    place = storage.join(path, MANIFEST)
    try:
        text = storage.read_text(place)
        manifest = json.loads(text)
        version, recorded = manifest["format_version"], manifest.pop("digest", None)
    except FileNotFoundError:
        if not storage.exists(parts := storage.join(path, filenames.PARTS)):
            raise ValueError(f"{path!r} is no finished output: no {MANIFEST}") from None
        names = [each["folder"] for each in json.loads(storage.read_text(parts)).get("parts", ())]
        folders = ", ".join(storage.join(path, name) for name in names)
        raise ValueError(f"{path!r} is an output in parts; open one of its folders: {folders}") from None
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError) as error:
        raise ValueError(f"{place!r} is not a manifest as TokenMill writes it: {error!r}; {_AGAIN}") from error
    if version not in _VERSIONS:
        reads = " and ".join(map(str, _VERSIONS))
        raise ValueError(f"{place!r} has format {version!r}, this TokenMill reads {reads}: use the one that wrote it")
    # The bytes that `books.manifest.digest` hashes; they are in the file, and to make them takes longer than all else.
    digest = _text_sha256(text.replace(f' "digest": "{recorded}",\n', "", 1))
    if digest != recorded:  # with other spaces, or of an earlier version, which records none
        digest = _text_sha256(json.dumps(manifest, sort_keys=True, indent=1, ensure_ascii=False) + "\n")
    if recorded not in (None, digest):
        raise ValueError(f"{place!r} was changed: its digest is {digest}, it records {recorded}; {_AGAIN}")
    return {**manifest, "digest": digest}


def _text_sha256(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()


def list_files(path: str, manifest: Mapping[str, Any], format: str | None) -> tuple[str, pa.Table, pa.Table]:
    """Returns a format, the records of its files with rows, in order, and those of their indexes, if it has some.

    Args:
      path: the output folder.
      manifest: its manifest.
      format: one of `FORMATS`; None for the first that the job wrote.

    Raises:
      ValueError: if the folder has no such format.
    """
    table = pa.concat_tables([_listed(path, manifest[kind]) for kind in ("shards", "companions")])
    names = table["file"].to_pylist()
    number = {filenames.check_file(name): at for at, name in enumerate(names)}
    held: dict[str, list[int]] = {}
    for at in np.flatnonzero(table["rows"].is_valid().to_numpy()).tolist():
        if its := next((key for key, (end, _) in FORMATS.items() if names[at].endswith(end)), None):
            held.setdefault(its, []).append(at)
    if (format := format or next(iter(held), "")) not in held:
        has = f"it has {', '.join(held)}" if held else f"output.format must have one of {', '.join(FORMATS)}"
        raise ValueError(
            f"{path!r} has no rows {f'in the format {format!r}' if format else 'to read in any order'}; {has}"
        )
    end, index_end = FORMATS[format]
    indexes = [number.get(names[at].removesuffix(end) + index_end, -1) for at in held[format] if index_end]
    if -1 in indexes:
        raise ValueError(f"{path!r}: its manifest lists a shard without its index; {_AGAIN}")
    return format, *(table.take(pa.array(which, pa.int64())) for which in (held[format], indexes))


def _listed(path: str, records: Any) -> pa.Table:
    """Returns the records of a list of a manifest, which may be in a file of its own."""
    schema = pa.schema(list(_RECORD.items()))
    if isinstance(records, list):
        return pa.Table.from_pylist(records, schema=schema)
    place = storage.join(path, filenames.check_file(records["file"]))
    if storage.checksum(place) != records["sha256"]:
        raise ValueError(f"{place}: not the list that the manifest names; {_AGAIN}")
    with storage.open_read(place) as handle:
        return open_parquet(handle).read(schema.names, use_threads=False).cast(schema)


def check_files(path: str, records: pa.Table, *, contents: bool) -> None:
    """Compares the sizes of files with their records, by listing the folder once; and their SHA-256, if asked.

    Raises:
      ValueError: for the first file that is missing, or another one; says which, and what to do.
    """
    folder = path.rstrip("/")
    pattern = folder if storage.is_remote(path) else glob.escape(folder)
    folders = {name[: name.rfind("/") + 1] for name in records["file"].to_pylist()}  # with those of `_empty` or without
    listed = [file for sub in folders for file in storage.match(f"{pattern}/{sub}tokens-*")]
    sizes = {file.path[len(folder) + 1 :]: file.n_bytes for file in listed}
    for name, n_bytes, sha256 in zip(*(records[key].to_pylist() for key in ("file", "n_bytes", "sha256")), strict=True):
        place = storage.join(path, name)
        if name not in sizes:
            raise ValueError(f"{place}: not there, but the manifest lists it; {_AGAIN}")
        if sizes[name] != n_bytes:
            what = "cut short" if sizes[name] < n_bytes else "changed"
            raise ValueError(f"{place}: {what}: {sizes[name]} bytes, the manifest says {n_bytes}; {_AGAIN}")
        if contents and (found := storage.checksum(place)) != sha256:
            raise ValueError(f"{place}: changed: its SHA-256 is {found}, the manifest says {sha256}; {_AGAIN}")


@dataclass(frozen=True)
class Shard:
    """A shard, open for reading."""

    schema: pa.Schema
    bounds: list[int]
    """The first row of each unit, and how many rows there are; in arrays `bisect` takes ten times as long."""
    unit: Callable[[int], pa.RecordBatch]
    """Returns the rows of a unit, by a thread that holds `lock`."""
    is_mapped: bool
    """Whether a unit takes no memory."""
    lock: threading.Lock = field(default_factory=threading.Lock)


def open_shard(
    path: str,
    format: str,
    record: Mapping[str, Any],
    index: Mapping[str, Any] | None,
    columns: Sequence[str] | None,
) -> Shard:
    """Returns a shard of an output.

    Args:
      path: the output folder.
      format: one of `FORMATS`.
      record: the file with rows in the manifest.
      index: its index, if the format has one.
      columns: those that units must have; None for all. They may have more.

    Raises:
      ValueError: if a file is not as the manifest says; says which.
      OSError: if it cannot be read.
    """
    place = storage.join(path, record["file"])
    try:
        read, source = _open(place, record["n_bytes"])
        is_mapped = not storage.is_remote(path)
        if index is not None:
            data = memoryview(_open(storage.join(path, index["file"]), index["n_bytes"])[0](0, index["n_bytes"]))
            rows = (
                flat.megatron_rows(data, record["file"])
                if format == "megatron"
                else flat.memmap_rows(data, record["n_bytes"], record["file"])
            )
            shard = _flat(read, record["n_bytes"], *rows, columns, is_mapped)
        else:
            shard = _arrow(source, columns) if format == "arrow" else _parquet(source, columns)
    except (ValueError, pa.ArrowException) as error:
        raise ValueError(f"{place}: {error}") from error
    if shard.bounds[-1] != record["rows"]:
        raise ValueError(f"{place}: {shard.bounds[-1]} rows, but the manifest says {record['rows']}; {_AGAIN}")
    return shard


def _open(place: str, n_bytes: int) -> tuple[Callable[[int, int], Any], Any]:
    """Returns a reader of ranges of bytes, and the file as Arrow takes it; beyond the end of a map a process dies."""
    if storage.is_remote(place):
        file = storage.open_ranges(place)
        size, source = file.size(), file
    else:
        mapped = np.asarray(np.memmap(place, np.uint8, "r")) if n_bytes else np.zeros(0, np.uint8)
        size, source = mapped.size, pa.py_buffer(mapped)
    if size != n_bytes:
        raise ValueError(f"{size} bytes, the manifest says {n_bytes}; {_AGAIN}")
    if storage.is_remote(place):
        return (lambda start, stop: np.frombuffer(file.read_at(stop - start, start), np.uint8)), source
    return (lambda start, stop: mapped[start:stop]), source


def _flat(
    read: Callable[[int, int], Any],
    n_bytes: int,
    dtype: np.dtype,
    offsets: np.ndarray,
    columns: Sequence[str] | None,
    is_mapped: bool,
) -> Shard:
    if n_bytes != int(offsets[-1]) * dtype.itemsize:
        raise ValueError(f"{n_bytes} bytes, but its index says {offsets[-1]} ids of {dtype.itemsize}")
    units = ((0, offsets.size - 1),) if is_mapped else stretches(np.diff(offsets) * dtype.itemsize, _UNIT_BYTES)
    bounds = [0, *(stop for _, stop in units)]

    def lists(within: np.ndarray) -> pa.Array:
        ids = read(int(within[0]) * dtype.itemsize, int(within[-1]) * dtype.itemsize).view(dtype)
        return pa.LargeListArray.from_arrays(pa.array(within - within[0] if within[0] else within), pa.array(ids))

    def lengths(within: np.ndarray) -> pa.Array:
        return pa.array(np.diff(within).astype(np.int32))

    made = {"input_ids": lists, "n_tokens": lengths}
    names = [name for name in made if columns is None or name in columns]

    def unit(number: int) -> pa.RecordBatch:
        within = offsets[bounds[number] : bounds[number + 1] + 1]
        return pa.record_batch([made[name](within) for name in names], names)

    schema = pa.schema([schemas.TOKENS.field(name) for name in made])
    return Shard(schema, bounds, unit, is_mapped)


def _arrow(source: Any, columns: Sequence[str] | None) -> Shard:
    file = pa.ipc.open_file(source)
    schema = file.schema.remove_metadata()
    if columns is not None:
        fields = [schema.get_field_index(name) for name in columns if name in schema.names]
        file = pa.ipc.open_file(source, options=pa.ipc.IpcReadOptions(included_fields=fields, use_threads=False))
    # Of a compressed batch only this column is decompressed to learn how many rows there are.
    counted = pa.ipc.IpcReadOptions(included_fields=[schema.get_field_index("n_tokens")], use_threads=False)
    batches = pa.ipc.open_file(source, options=counted)
    counts = [batches.get_batch(i).column(0) for i in range(batches.num_record_batches)]
    is_mapped = isinstance(source, pa.Buffer) and all(_holds(source, each.buffers()[1]) for each in counts if len(each))

    def unit(number: int) -> pa.RecordBatch:
        batch = file.get_batch(number)
        batch.validate(full=True)  # nothing else looks at the offsets before values are copied by them
        return batch

    return Shard(schema, [*accumulate(map(len, counts), initial=0)], unit, is_mapped)


def _holds(whole: pa.Buffer, part: pa.Buffer) -> bool:
    """Returns whether bytes are in a map, which those of compressed batches are not."""
    return bool(whole.address <= part.address <= whole.address + whole.size)


def _parquet(source: Any, columns: Sequence[str] | None) -> Shard:
    file = open_parquet(pa.BufferReader(source) if isinstance(source, pa.Buffer) else source)
    sizes = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]

    def unit(number: int) -> pa.RecordBatch:
        return file.read_row_group(number, columns=columns, use_threads=False).combine_chunks().to_batches()[0]

    return Shard(file.schema_arrow.remove_metadata(), [*accumulate(sizes, initial=0)], unit, False)
