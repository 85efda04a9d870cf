# SPDX-License-Identifier: Apache-2.0
"""Files to rows."""

import dataclasses
import functools
import os
from collections.abc import Iterator, Sequence
from typing import Any, cast

import apache_beam as beam
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from apache_beam.io.restriction_trackers import OffsetRange, OffsetRestrictionTracker
from apache_beam.metrics.metric import Metrics
from apache_beam.pvalue import PBegin, Row
from apache_beam.transforms.core import RestrictionProvider
from apache_beam.typehints import no_annotations, typehints
from apache_beam.typehints.row_type import RowTypeConstraint

from tokenmill.pipeline import storage
from tokenmill.pipeline.config.file import section
from tokenmill.pipeline.config.input import LIMITS, InputConfig
from tokenmill.pipeline.globbing import UnreadablePathError
from tokenmill.pipeline.input.batches import ReadBatch
from tokenmill.pipeline.input.readers import is_cut_by_bytes
from tokenmill.pipeline.input.reading import BATCH_BYTES, read_split
from tokenmill.pipeline.input.splitting import plan_splits
from tokenmill.pipeline.rows.arguments import checked
from tokenmill.pipeline.rows.arrow_coder import register_batches
from tokenmill.pipeline.rows.errors import ErrorHandling, Failed, FallibleTransform, Results, failed_element
from tokenmill.pipeline.splits import Piece, Split

_UNIT_BYTES = 1 << 20
"""A split of uncompressed text can be rebalanced in units of this; neighbouring ones are read without a break."""

_RUN_UNITS = 64
"""So many small files are opened before a runner can take away the next."""

_OF_SPLIT = beam.DoFn.RestrictionParam()

_OF_JOBS = ("keep_fields", "sources", *LIMITS)
_DOCUMENT = RowTypeConstraint.from_fields([("doc_id", str), ("text", str)])


class ReadCorpus(FallibleTransform):
    """Reads the documents of files of any format that jobs read, compressed or not, as the jobs do.

        documents = pipeline | ReadCorpus("corpus/*.jsonl.gz")  # Row(doc_id, text)

    Input: a pipeline. Output: `beam.Row(doc_id, text)`, or with `as_batches` batches of `schemas.DOCUMENTS` of about
    4 MiB. Large files are cut into splits, so that all workers read. Splits go out in the order of their work, and a
    runner is told how much each is and how far it has come, and may rebalance it: in files, in row groups of Parquet,
    or in units of 1 MiB of uncompressed text. Memory: one batch per worker. The files are reported as lineage.
    Counters: bytes-in, documents-out, documents-rejected.

    With exception handling, the letter of a record says in `element` where it is, and in `msg` why it is rejected and
    how it begins; `stack` is empty.
    """

    @checked
    def __init__(
        self,
        paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        *,
        as_batches: bool = False,
        validate: bool = True,
        **options: Any,
    ) -> None:
        """Makes the step.

        Args:
          paths: files or glob patterns, local or on a store.
          as_batches: yield Arrow batches instead of rows.
          validate: look for a file of each path here, as `ReadFromText` does; False where only workers reach the files.
          **options: other keys of the section `input` of a config, such as `text_field`.

        Raises:
          OSError: if a path matches no file.
          ValueError: naming an option that is not possible, or a path that no filesystem is for.
        """
        super().__init__()
        several = paths if isinstance(paths, list | tuple) else [paths]
        texts = [os.fspath(each) if isinstance(each, os.PathLike) else each for each in several]
        if of_jobs := [name for name in _OF_JOBS if name in options]:
            raise ValueError(f"ReadCorpus: {', '.join(of_jobs)}: for jobs only, here without effect; remove it")
        self._input = section(InputConfig, "input", {**options, "paths": texts}, "ReadCorpus")
        self._as_batches = as_batches
        for path in self._input.paths if validate else ():
            _find_one(path, self._input)

    def display_data(self) -> dict[str, Any]:
        """Returns what is read."""
        return {"paths": ", ".join(self._input.paths), "format": self._input.format}

    @no_annotations  # which do not know of a second output
    def expand(self, pbegin: PBegin) -> Results:
        """Adds the step to a pipeline."""
        register_batches()
        # A file of which nothing can be read has a letter.
        options = self._input.model_copy(update={"on_damage": "fail" if self._errors is None else "warn"})
        splits = (
            pbegin
            | "Start" >> beam.Impulse()
            | "Plan" >> beam.FlatMap(_plan, options).with_output_types(str)
            | "Spread" >> beam.Reshuffle()
        )
        # Rows are made by another step, as Beam looks at each output of a splittable one, for 1.4 µs.
        read = splits | "Read" >> beam.ParDo(_ReadFn(options)).with_output_types(typehints.Any)
        made = pa.RecordBatch if self._as_batches else _DOCUMENT
        deal = beam.ParDo(_DealFn(self._errors, as_batches=self._as_batches))
        outputs = read | "Deal" >> deal.with_output_types(made if self._errors is None else typehints.Any)
        return self._results(outputs, outputs, made, str)


def _find_one(path: str, options: InputConfig) -> None:
    """Raises OSError if a path or pattern matches no file; a store is listed up to the first."""
    problems: list[UnreadablePathError] = []
    found = storage.match(storage.pattern_of(path), problems)
    excluded_by = options.excluder()
    if not any(not excluded_by(file.path) for file in found):
        said = f": {problems[0]}" if problems else ""
        or_excluded = ", or only files that exclude leaves out" if options.exclude else ""
        raise FileNotFoundError(
            f"ReadCorpus: {path!r} matches no file{or_excluded}{said}; give validate=False if workers will find some"
        )


def _plan(_: bytes, options: InputConfig) -> Iterator[str]:
    try:
        return plan_splits(options, "").lines_by_work()
    except ValueError as error:
        advice = "use with_exception_handling(), which gives each"
        raise ValueError(str(error).replace("set input.on_damage: warn, which makes each", advice)) from error


@functools.lru_cache(maxsize=8)
def _units(line: str, document: str) -> tuple[Piece, ...]:
    """Returns the parts of a split that can be read one without the other, in order: what a runner may take away.

    Args:
      line: the split as JSON.
      document: `input.document`.
    """
    pieces = Split.from_json(line).pieces
    first = pieces[0]
    if len(pieces) > 1:
        return pieces
    if first.has_rows:
        n_bytes = max(1, first.n_text_bytes // max(1, first.stop - first.start))
        starts = range(first.start, first.stop) or (first.start,)
        return tuple(
            dataclasses.replace(first, start=i, stop=min(i + 1, first.stop), n_text_bytes=n_bytes) for i in starts
        )
    if is_cut_by_bytes(first, document):
        starts = range(first.start, first.stop, _UNIT_BYTES) or (first.start,)
        return tuple(dataclasses.replace(first, start=i, stop=min(i + _UNIT_BYTES, first.stop)) for i in starts)
    return pieces


class _ReadFn(beam.DoFn, RestrictionProvider):
    """Reads splits into `ReadBatch`. A restriction is a range of the units of a split, so a runner may rebalance it."""

    def __init__(self, options: InputConfig) -> None:
        self._input = options

    def setup(self) -> None:
        register_batches()

    def initial_restriction(self, element: str) -> OffsetRange:
        return OffsetRange(0, len(_units(element, self._input.document)))

    def create_tracker(self, restriction: OffsetRange) -> OffsetRestrictionTracker:
        return OffsetRestrictionTracker(restriction)

    def restriction_size(self, element: str, restriction: OffsetRange) -> int:
        units = _units(element, self._input.document)
        return sum(unit.n_work for unit in units[restriction.start : restriction.stop])

    def process(self, element: str, tracker: Any = _OF_SPLIT) -> Iterator[Any]:
        split, units = Split.from_json(element), _units(element, self._input.document)
        start, stop = tracker.current_restriction().start, tracker.current_restriction().stop
        if len(split.pieces) == 1 and is_cut_by_bytes(split.pieces[0], self._input.document):
            yield from self._read_on(split, units[start:stop], start, tracker)
            return
        while start < stop:
            run: list[Piece] = []
            # Small units are read together, as long as that does not take away from what can be rebalanced.
            while start < stop and _is_short(run) and tracker.try_claim(start):
                run.append(units[start])
                start += 1
            if not run:
                return
            for path in dict.fromkeys(piece.path for piece in run):
                beam.io.filesystems.FileSystems.report_source_lineage(path)
            yield from read_split(dataclasses.replace(split, pieces=_joined(run)), self._input)

    def _read_on(self, split: Split, units: Sequence[Piece], first: int, tracker: Any) -> Iterator[ReadBatch]:
        """Reads units of one file in one go, and claims each, `first` onwards, when its first record has been read.

        A unit has the records that begin in it. Those of a unit that the runner has taken away, which another worker
        reads, are dropped: at most a batch is read in vain, and no unit opens the file again.
        """
        if not units or not tracker.try_claim(first):
            return
        beam.io.filesystems.FileSystems.report_source_lineage(units[0].path)
        n_claimed = 1
        for batch in read_split(dataclasses.replace(split, pieces=_joined(units)), self._input):
            last = max(_offsets(each).max(initial=-1) for each in (batch.documents, batch.rejects) if each is not None)
            while n_claimed < len(units) and units[n_claimed].start <= last:
                if not tracker.try_claim(first + n_claimed):
                    yield _before(batch, units[n_claimed].start)
                    return
                n_claimed += 1
            yield batch
        while n_claimed < len(units) and tracker.try_claim(first + n_claimed):  # no record begins in these
            n_claimed += 1


class _DealFn(beam.DoFn):
    """Makes documents and rejects of what was read."""

    def __init__(self, errors: ErrorHandling | None, *, as_batches: bool) -> None:
        self._errors = errors
        self._as_batches = as_batches
        self._bytes = Metrics.counter(ReadCorpus, "bytes-in")
        self._documents = Metrics.counter(ReadCorpus, "documents-out")
        self._rejected = Metrics.counter(ReadCorpus, "documents-rejected")

    def process(self, element: ReadBatch) -> Iterator[Any]:
        self._bytes.inc(element.n_bytes)
        self._documents.inc(element.documents.num_rows)
        if self._as_batches:
            yield element.documents
        else:
            columns = (element.documents.column(name).to_pylist() for name in ("doc_id", "text"))
            for doc_id, text in zip(*columns, strict=True):
                yield Row(doc_id=doc_id, text=text)
        if element.rejects is not None and element.rejects.num_rows:
            yield from self._reject(element.rejects)

    def _reject(self, rejects: pa.RecordBatch) -> Iterator[Failed]:
        for row in rejects.to_pylist():
            where = f"{row['source']}, offset {row['offset']}"
            msg = f"{row['reason']}: {row['detail']}; it begins {row['sample'][:80]!r}"
            failed_element(self._errors, "ReadCorpus", where, ValueError(f"{where}: {msg}"))
            self._rejected.inc()
            yield Failed(Row(element=where, msg=msg, stack=""))


def _offsets(records: pa.RecordBatch) -> npt.NDArray[np.int64]:
    return cast("npt.NDArray[np.int64]", records.column("offset").to_numpy())


def _before(batch: ReadBatch, position: int) -> ReadBatch:
    """Returns the records of a batch that begin before a position in the file."""
    documents, rejects = (
        each if each is None else each.filter(pa.array(_offsets(each) < position))
        for each in (batch.documents, batch.rejects)
    )
    n_bytes = sum(pc.sum(each.column("n_bytes")).as_py() or 0 for each in (documents, rejects) if each is not None)
    return dataclasses.replace(batch, documents=documents, rejects=rejects, n_bytes=n_bytes)


def _is_short(run: Sequence[Piece]) -> bool:
    return len(run) < _RUN_UNITS and sum(unit.n_planned for unit in run) < BATCH_BYTES


def _joined(run: Sequence[Piece]) -> tuple[Piece, ...]:
    """Returns the pieces of neighbouring units: those of one file are one piece."""
    first, last = run[0], run[-1]
    if first.path != last.path:
        return tuple(run)
    return (dataclasses.replace(first, stop=last.stop, n_text_bytes=sum(unit.n_text_bytes for unit in run)),)
