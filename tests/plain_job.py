# SPDX-License-Identifier: Apache-2.0
"""Jobs of the command line without command line and Beam: planned, and then done one step after the other."""

import contextlib
import json
from pathlib import Path

import pyarrow as pa

from tokenmill.pipeline import schemas, storage
from tokenmill.pipeline import shuffling as shuffled
from tokenmill.pipeline.books.job_books import PlannedSplits
from tokenmill.pipeline.books.job_record import Job
from tokenmill.pipeline.books.ledger import LedgerEntry, runs_of
from tokenmill.pipeline.config.job import Config
from tokenmill.pipeline.input.splitting import plan_splits
from tokenmill.pipeline.jobs import planning
from tokenmill.pipeline.jobs.finish import Folder, finish_output
from tokenmill.pipeline.output import folders
from tokenmill.pipeline.output.writers import formats
from tokenmill.pipeline.tokenizing.tokenize import merge_planned, tokenize_split
from tokenmill.tokenizer import Tokenizer


class StepJob:
    """A `tokenize` job over files that are there, whose steps are done one by one."""

    def __init__(
        self,
        output: Path,
        vocab: list[str],
        paths: list[Path],
        *,
        split_bytes=3000,
        tokenizer=None,
        oov="word",
        keep_fields=(),
        **section,
    ) -> None:
        self.output = output
        self.config = Config.model_validate(
            {
                "input": {
                    "paths": [*map(str, paths)],
                    "split_bytes": split_bytes,
                    "on_damage": "warn",
                    "keep_fields": list(keep_fields),
                },
                "tokenizer": {"file": "vocab.txt", **(tokenizer or {})},
                "output": {"path": str(output), **section},
            }
        )
        self.tokenizer = Tokenizer.for_bert(vocab, oov=oov)
        if truncation := self.config.tokenizer.truncation:
            self.tokenizer.enable_truncation(truncation.max_length, direction=truncation.side)
        if padding := self.config.tokenizer.padding:
            self.tokenizer.enable_padding(length=padding.length, direction=padding.side)
        self.job = Job.of("tokenize", self.config, self.tokenizer.digest)
        self.splits = plan_splits(self.config.input, self.job.digest)
        self.planned = shuffled.plan_shards(self.config.output, PlannedSplits(self.splits), self.job.digest)

    def prepare(self, mode: str = "new") -> None:
        suffix, *companions = formats.suffixes(self.config.output)
        numbers = {"n_splits": len(self.splits), "n_shards": len(self.planned) if self.planned else None}
        folders.prepare_output(str(self.output), self.job, mode, suffix=suffix, companions=companions, **numbers)

    def tokenize(self, **options) -> list[LedgerEntry]:
        n = len(self.splits)
        return [tokenize_split(split, self.config, self.tokenizer, n, **options) for split in self.splits]

    def merge(self, entries, planned=None) -> list:
        runs = [runs_of(entry) for entry in entries]
        return [merge_planned(each, runs, self.config, self.tokenizer) for each in planned or self.planned]

    def finish(self) -> None:
        finish_output(Folder(self.config, self.job, PlannedSplits(self.splits), self.tokenizer))

    def run(self) -> list:
        """Does all of it; returns the entries of merged shards, if there are any."""
        self.prepare()
        shards = self.merge(self.tokenize()) if self.planned else self.tokenize()
        self.finish()
        return shards if self.planned else []

    def rows(self, suffix: str = ".parquet") -> list[dict]:
        """Returns the rows of all shards of one format in order."""
        return rows_of(self.output, suffix)

    def files(self) -> dict[str, bytes]:
        """Returns {name: bytes} of everything."""
        paths = sorted(path for path in self.output.rglob("*") if path.is_file())
        return {str(path.relative_to(self.output)): path.read_bytes() for path in paths}


def rows_of(output: Path, suffix: str) -> list[dict]:
    """Returns the rows of all shards of one format in order."""
    found = []
    for path in sorted(output.glob(f"tokens-*-of-?????{suffix}")):
        index_name = formats.index_name(str(path))
        with contextlib.ExitStack() as stack:
            handle = stack.enter_context(storage.open_read(str(path)))
            index = stack.enter_context(storage.open_read(index_name)) if index_name else None
            found += [row for batch in formats.read_rows(handle, str(path), 0, index) for row in batch.to_pylist()]
    return found


def token_rows(rows: list[list[int]], n_tokens=None, doc_ids=None) -> pa.RecordBatch:
    """Returns a batch of `schemas.TOKENS` from lists of ids; id 1 is the unknown token."""
    columns = [
        pa.array(doc_ids or [f"a.jsonl:{i}" for i in range(len(rows))], pa.string()),
        pa.array(rows, schemas.TOKENS.field("input_ids").type),
        pa.array(n_tokens or [len(row) for row in rows], pa.int32()),
        pa.array([row.count(1) for row in rows], pa.int32()),
    ]
    return pa.record_batch(columns, schema=schemas.TOKENS)


class PlainJob:
    """A `tokenize` job over documents, each a text, in files of a few documents."""

    def __init__(self, folder: Path, texts: list[str], vocab: Path, name: str = "out", **sections) -> None:
        corpus = folder / "corpus"
        corpus.mkdir(exist_ok=True)
        for first in range(0, len(texts), 4):
            lines = [json.dumps({"id": f"d{i}", "text": texts[i]}) for i in range(first, min(first + 4, len(texts)))]
            path, content = corpus / f"{first:05d}.jsonl", "\n".join(lines)
            if not path.exists() or path.read_text(encoding="utf-8") != content:  # else it has not changed
                path.write_text(content, encoding="utf-8")
        self.output = folder / name
        self.config = Config.model_validate(
            {
                "input": {"paths": [str(corpus / "*.jsonl")], "split_bytes": 300, "on_damage": "warn"},
                "tokenizer": {"file": str(vocab), "max_unknown_fraction": 1.0, **sections.pop("tokenizer", {})},
                "output": {"path": str(self.output), **sections.pop("output", {})},
                **sections,
            }
        )
        self.plan = planning.plan_job("tokenize", self.config)
        self.tokenizer = Tokenizer.from_str(self.plan.tokenizer.to_str())

    def run(self) -> "PlainJob":
        """Does all of it."""
        planning.prepare(self.plan, "new")
        splits = self.plan.splits
        entries = [tokenize_split(split, self.config, self.tokenizer, len(splits)) for split in splits]
        for shard in self.plan.shards():
            merge_planned(shard, [runs_of(entry) for entry in entries], self.config, self.tokenizer)
        finish_output(Folder(self.config, self.plan.job, PlannedSplits(splits), self.tokenizer))
        return self

    def json(self, name: str) -> dict:
        """Returns a file of the output folder."""
        return json.loads((self.output / name).read_text(encoding="utf-8"))

    def rows(self, suffix: str = ".parquet") -> list[dict]:
        """Returns the rows of all shards of one format in order."""
        return rows_of(self.output, suffix)
