# SPDX-License-Identifier: Apache-2.0
"""A small job whose documents are shuffled, one step at a time: what the tests of the shuffle share."""

from tests.plain_job import StepJob
from tokenmill.pipeline.hashing import SHUFFLING, document_keys
from tokenmill.pipeline.input.reading import read_split

N_DOCUMENTS = 300


class ShuffledJob(StepJob):
    """A job over some files, and what its steps left behind."""

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
