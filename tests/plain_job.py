# SPDX-License-Identifier: Apache-2.0
"""Jobs of the command line without command line and Beam: planned, and then done one step after the other."""

import contextlib
import json
from pathlib import Path

from tokenmill.pipeline import storage
from tokenmill.pipeline.books.job_books import PlannedSplits
from tokenmill.pipeline.books.ledger import runs_of
from tokenmill.pipeline.config.job import Config
from tokenmill.pipeline.jobs import planning
from tokenmill.pipeline.jobs.finish import Folder, finish_output
from tokenmill.pipeline.output.writers import formats
from tokenmill.pipeline.tokenizing.tokenize import tokenize_split
from tokenmill.pipeline.tokenizing.writing import merge_planned
from tokenmill.tokenizer import Tokenizer


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
        found = []
        for path in sorted(self.output.glob(f"tokens-*-of-?????{suffix}")):
            index_name = formats.index_name(str(path))
            with contextlib.ExitStack() as stack:
                handle = stack.enter_context(storage.open_read(str(path)))
                index = stack.enter_context(storage.open_read(index_name)) if index_name else None
                found += [row for batch in formats.read_rows(handle, str(path), 0, index) for row in batch.to_pylist()]
        return found
