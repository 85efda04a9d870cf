# SPDX-License-Identifier: Apache-2.0
"""A small job whose documents are shuffled, one step at a time: what the tests of the shuffle share."""

import os

from tokenmill.pipeline.books import ledger
from tokenmill.pipeline.books.job_books import PlannedSplits
from tokenmill.pipeline.books.job_record import Job
from tokenmill.pipeline.config.job import Config
from tokenmill.pipeline.hashing import SHUFFLING, document_keys
from tokenmill.pipeline.input.reading import read_split
from tokenmill.pipeline.input.splitting import plan_splits
from tokenmill.pipeline.jobs.finish import Folder, finish_output
from tokenmill.pipeline.output import folders
from tokenmill.pipeline.output.writers import formats
from tokenmill.pipeline.shuffling import shards as shuffled
from tokenmill.pipeline.tokenizing.tokenize import tokenize_split
from tokenmill.pipeline.tokenizing.writing import merge_planned
from tokenmill.tokenizer import Tokenizer

N_DOCUMENTS = 300


class ShuffledJob:
    """A job over some files, and what its steps left behind."""

    def __init__(self, folder, name, vocab, padding, split_bytes, paths, output):
        tokenizer = {"padding": padding, "truncation": {"max_length": padding["length"]}} if padding else {}
        self.output = folder / name
        self.config = Config.model_validate(
            {
                "input": {
                    "paths": [str(folder / path) for path in paths],
                    "split_bytes": split_bytes,
                    "on_damage": "warn",
                },
                "tokenizer": {"file": "vocab.txt", **tokenizer},
                "output": {"path": str(self.output), **output},
            }
        )
        self.tokenizer = Tokenizer.for_bert(vocab)
        if padding:
            self.tokenizer.enable_truncation(padding["length"])
            self.tokenizer.enable_padding(length=padding["length"], direction=padding.get("side", "right"))
        self.job = Job.of("tokenize", self.config, self.tokenizer.digest)
        self.splits = plan_splits(self.config.input, self.job.digest)
        self.planned = shuffled.plan_shards(self.config.output, PlannedSplits(self.splits), self.job.digest)

    def prepare(self, mode="new"):
        suffix, *companions = formats.suffixes(self.config.output)
        folders.prepare_output(
            str(self.output),
            self.job,
            mode,
            n_splits=len(self.splits),
            suffix=suffix,
            companions=companions,
            n_shards=len(self.planned),
        )

    def sort(self, *, are_merged=False):
        return [
            tokenize_split(split, self.config, self.tokenizer, len(self.splits), are_merged=are_merged)
            for split in self.splits
        ]

    def merge(self, entries, planned=None):
        runs = [ledger.runs_of(entry) for entry in entries]
        return [merge_planned(each, runs, self.config, self.tokenizer) for each in planned or self.planned]

    def finish(self):
        return finish_output(Folder(self.config, self.job, PlannedSplits(self.splits), self.tokenizer))

    def run(self):
        self.prepare()
        shards = self.merge(self.sort())
        self.finish()
        return shards

    def rows(self, suffix=".parquet"):
        found = []
        for path in sorted(self.output.glob(f"tokens-*-of-?????{suffix}")):
            index = formats.index_name(str(path))
            with path.open("rb") as handle, open(index or os.devnull, "rb") as index_handle:
                for batch in formats.read_rows(handle, str(path), index=index_handle if index else None):
                    found += batch.to_pylist()
        return found

    def shards(self):
        return {path.name: path.read_bytes() for path in sorted(self.output.glob("tokens-*"))}

    def expected(self):
        """The documents in the order that the definition gives, and their keys."""
        found = []
        for split in self.splits:
            names = [piece.name for piece in split.pieces]
            for batch in read_split(split, self.config.input):
                keys = document_keys(SHUFFLING, self.config.output.shuffle.seed, names, batch.documents)
                found += zip(keys.tolist(), batch.documents["doc_id"].to_pylist(), strict=True)
        return sorted(found, key=lambda each: each[0])
