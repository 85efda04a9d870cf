# SPDX-License-Identifier: Apache-2.0
"""Files to rows."""

import copy
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import pyarrow as pa
from apache_beam.metrics.metric import Metrics
from apache_beam.pvalue import Row
from apache_beam.typehints.row_type import RowTypeConstraint

from tokenmill.pipeline.config.input import LIMITS, InputConfig
from tokenmill.pipeline.input.reading import read_split
from tokenmill.pipeline.input.splitting import plan_splits
from tokenmill.pipeline.splits import Split
from tokenmill.pipeline.transforms import arrow_coder

_OF_JOBS = ("keep_fields", *LIMITS)
_DOCUMENT = RowTypeConstraint.from_fields([("doc_id", str), ("text", str)])
_REJECT = RowTypeConstraint.from_fields([("element", str), ("msg", str), ("stack", str)])


class ReadCorpus(beam.PTransform):
    """Reads the documents of JSON lines, text and Parquet files, compressed or not, as the jobs do.

        documents = pipeline | ReadCorpus("corpus/*.jsonl.gz")  # Row(doc_id, text)

    Input: a pipeline. Output: `beam.Row(doc_id, text)`, or with `as_batches` batches of `schemas.DOCUMENTS` of about
    4 MiB. Large files are cut into splits, so that all workers read. Memory: one batch per worker. The files are
    reported as lineage.
    Counters: bytes-in, documents-out, documents-rejected.
    """

    def __init__(self, paths: str | list[str], *, as_batches: bool = False, **options: Any) -> None:
        """Makes the step.

        Args:
          paths: files or glob patterns, on any filesystem that Beam supports.
          as_batches: yield Arrow batches instead of rows.
          **options: other keys of the section `input` of a config, such as `text_field`.

        Raises:
          ValueError: naming an option that is not possible.
        """
        super().__init__()
        self._input = InputConfig(paths=[paths] if isinstance(paths, str) else paths, **options)
        if of_jobs := [name for name in _OF_JOBS if name in options]:
            raise ValueError(f"ReadCorpus: {', '.join(of_jobs)}: for jobs only, here without effect; remove it")
        self._as_batches = as_batches
        self._tags: tuple[str, str] | None = None

    def with_exception_handling(self, main_tag: str = "good", dead_letter_tag: str = "bad") -> "ReadCorpus":
        """Returns this step with a second output for records that cannot be used: `beam.Row(element, msg, stack)`.

        `element` says where the record is, `msg` why it is rejected and how it begins; `stack` is empty.
        """
        handling = copy.copy(self)
        handling._tags = main_tag, dead_letter_tag
        return handling

    def display_data(self) -> dict[str, Any]:
        """Returns what is read."""
        return {"paths": ", ".join(self._input.paths), "format": self._input.format}

    def expand(self, pbegin: Any) -> Any:
        """Adds the step to a pipeline."""
        if self._as_batches:
            arrow_coder.register()
        splits = (
            pbegin
            | "Start" >> beam.Impulse()
            | "Plan" >> beam.FlatMap(_plan, self._input).with_output_types(str)
            | "Spread" >> beam.Reshuffle()
        )
        bad = self._tags[1] if self._tags is not None else None
        read = beam.ParDo(_ReadFn(self._input, bad, as_batches=self._as_batches))
        made = pa.RecordBatch if self._as_batches else _DOCUMENT
        if self._tags is None:
            return splits | "Read" >> read.with_output_types(made)
        outputs = splits | "Read" >> read.with_outputs(self._tags[1], main=self._tags[0])
        outputs[self._tags[0]].element_type, outputs[self._tags[1]].element_type = made, _REJECT
        return outputs


def _plan(_: bytes, options: InputConfig) -> Iterator[str]:
    for split in plan_splits(options, ""):
        yield split.to_json()


class _ReadFn(beam.DoFn):
    def __init__(self, options: InputConfig, bad: str | None, *, as_batches: bool) -> None:
        self._input = options
        self._bad = bad
        self._as_batches = as_batches
        self._bytes = Metrics.counter(ReadCorpus, "bytes-in")
        self._documents = Metrics.counter(ReadCorpus, "documents-out")
        self._rejected = Metrics.counter(ReadCorpus, "documents-rejected")

    def process(self, element: str) -> Iterator[Any]:
        split = Split.from_json(element)
        for piece in split.pieces:
            beam.io.filesystems.FileSystems.report_source_lineage(piece.path)
        for batch in read_split(split, self._input):
            self._bytes.inc(batch.n_bytes)
            self._documents.inc(batch.documents.num_rows)
            if self._as_batches:
                yield batch.documents
            else:
                columns = (batch.documents.column(name).to_pylist() for name in ("doc_id", "text"))
                for doc_id, text in zip(*columns, strict=True):
                    yield Row(doc_id=doc_id, text=text)
            if batch.rejects is not None and batch.rejects.num_rows:
                yield from self._reject(batch.rejects)

    def _reject(self, rejects: pa.RecordBatch) -> Iterator[beam.pvalue.TaggedOutput]:
        for row in rejects.to_pylist():
            where = f"{row['source']}, offset {row['offset']}"
            msg = f"{row['reason']}: {row['detail']}; it begins {row['sample'][:80]!r}"
            if self._bad is None:
                raise ValueError(
                    f"ReadCorpus: {where}: {msg}. with_exception_handling() gives such records an output of their own"
                )
            self._rejected.inc()
            yield beam.pvalue.TaggedOutput(self._bad, Row(element=where, msg=msg, stack=""))
