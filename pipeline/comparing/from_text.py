# SPDX-License-Identifier: Apache-2.0
"""Tokenizers compared on texts: documents are read once, encoded by every tokenizer, and summed up."""

import functools
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tokenmill.pipeline.comparing import measure
from tokenmill.pipeline.comparing.loading import Candidate
from tokenmill.pipeline.comparing.reading import Corpus, Documents
from tokenmill.pipeline.comparing.sums import ALL, KINDS, N_BLOCKS, Sums, constant
from tokenmill.pipeline.hashing import document_keys
from tokenmill.pipeline.input.given_up import GAVE_UP, find_given_up
from tokenmill.pipeline.statistics.words import encode
from tokenmill.tokenizer import Tokenizer, unchecked_text_rows

MAX_NAMED = 20
"""At most this many documents on which a tokenizer failed are named."""

_BLOCKS_SEED = 0


def compare(candidates: Sequence[Candidate], corpus: Corpus, parallel: str | None = None) -> dict[str, Any]:
    """Returns the comparison of tokenizers on the documents of a corpus, see `measure.report`.

    Raises:
      ValueError: if there is no document, or languages differ in their number of documents although `parallel`.
      OSError: if a file cannot be read.
    """
    sums = TextSums(candidates)
    for read in corpus.documents():
        sums.add_documents(read)
    if not sums.groups[ALL].names:
        reasons = ", ".join(f"{n:,} rejected as {reason}" for reason, n in sorted(corpus.rejected.items()))
        raise ValueError(f"--on: no document to compare tokenizers on; {reasons or 'the files are empty'}")
    report = measure.report(candidates, sums.found(encode, has_documents=True), parallel)
    report["on"] |= {
        "what": "texts",
        "word": "what stands between white space",
        "is_whole": corpus.is_whole,
        "rejected": dict(sorted(corpus.rejected.items())),
        "failed": dict(sums.failed),
        "failed_documents": sums.named,
    }
    return report


class TextSums(Sums):
    """What is kept of the documents of a comparison while they are read."""

    def __init__(self, candidates: Sequence[Candidate]) -> None:
        """Starts with no document."""
        super().__init__([each.tokenizer for each in candidates], (ALL, *KINDS))
        self._candidates = candidates
        self.failed: Counter[str] = Counter()
        self.named: list[dict[str, str]] = []

    def add_documents(self, read: Documents) -> None:
        """Adds documents. One on which a tokenizer fails counts for none of them; it is named instead."""
        ids = self._encode(read.table)
        if ids is None:
            kept = pa.array(self._without_failures(read))
            groups = {kind: column.filter(kept) for kind, column in read.groups.items()}
            read = Documents(read.table.filter(kept), read.names, groups)
            ids = self._encode(read.table)
            assert ids is not None
        text = read.table.column("text")
        n_words = self.words.add(text, read.groups["language"])
        values = self.values(text, n_words, ids, np.ones(len(text), np.int64), 1)
        keys = document_keys("bootstrap", _BLOCKS_SEED, read.names, read.table)
        self.add({ALL: constant(ALL, len(text)), **read.groups}, values, (keys % np.uint64(N_BLOCKS)).astype(np.int64))

    def _encode(self, table: pa.RecordBatch) -> list[pa.LargeListArray] | None:
        """Returns the ids of documents by tokenizer; None if one of them fails on a document."""
        try:
            return [_encode_texts(each.tokenizer, table) for each in self._candidates]
        except GAVE_UP:
            return None

    def _without_failures(self, read: Documents) -> npt.NDArray[np.bool_]:
        """Returns bool[n]: the documents on which no tokenizer fails; counts and names the others."""
        kept = np.ones(read.table.num_rows, bool)
        for each in self._candidates:
            reasons = find_given_up(functools.partial(_encode_texts, each.tokenizer), read.table)
            for row in np.flatnonzero(reasons != "").tolist():
                self.failed[each.label] += 1
                if len(self.named) < MAX_NAMED:
                    self.named.append(
                        {
                            "tokenizer": each.label,
                            "document": read.table.column("doc_id")[row].as_py(),
                            "source": read.names[read.table.column("piece")[row].as_py()],
                            "reason": str(reasons[row]),
                        }
                    )
            kept &= reasons == ""
        return kept


def _encode_texts(tokenizer: Tokenizer, table: pa.RecordBatch) -> pa.LargeListArray:
    return tokenizer.encode_bare(unchecked_text_rows(table.column("text")))
