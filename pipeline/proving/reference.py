# SPDX-License-Identifier: Apache-2.0
"""Compares the ids of a sample of documents with `tokenizers` where it is installed, and the reference implementation.

Tokenizing again runs the kernels again, so it cannot find what they do wrong.
"""

import hashlib
from collections import Counter
from collections.abc import Callable
from importlib import import_module, metadata
from typing import Any

import numpy as np
import pyarrow as pa

from tokenmill.pipeline.columns import children
from tokenmill.tokenizer import Tokenizer, reference_encoding

N_DOCUMENTS = 200
"""How many documents are compared, about: a share of them in every split that is tokenized again."""

MAX_BYTES = 4096
"""Longer documents are not compared: the reference implementation takes the square of their length."""

REFERENCE = "the reference implementation"
_PLACES = 3
"""For the longest document, the one with the most unknown tokens, and the one with the most bytes beyond ASCII."""


class Comparison:
    """The documents of one tokenizer that are compared, and the problems that are found."""

    def __init__(self, tokenizer: Tokenizer, n_splits: int) -> None:
        """Takes the tokenizer, and how many splits there are to take documents from."""
        self.equal: Counter[str] = Counter()
        """How many documents have the ids of each library, or of the reference implementation."""
        self.problems: list[str] = []
        self._tokenizer = tokenizer
        self._library, self._by_library = _library(tokenizer)
        self._n = max(1, N_DOCUMENTS // max(1, n_splits) - _PLACES)
        self._hashed: list[tuple[bytes, str, str, list[int]]] = []
        self._unusual: dict[int, tuple[int, str, str, list[int]]] = {}

    def add(self, doc_ids: pa.Array, texts: pa.Array, rows: pa.LargeListArray) -> None:
        """Takes the documents of a batch: those with the smallest hashes, and the most unusual ones.

        Args:
          doc_ids: the ids of the documents.
          texts: their texts, as the tokenizer gets them.
          rows: int32, their tokens, without those that are put around them.
        """
        bounds, data = children(texts)
        lengths = np.diff(bounds)
        unknown = np.zeros(lengths.size, np.int64)
        offsets = rows.offsets.to_numpy()
        if self._tokenizer.unk_token_id is not None:
            ends = np.append(0, np.cumsum(rows.values.to_numpy() == self._tokenizer.unk_token_id))
            unknown = np.diff(ends[offsets])
        wide = np.diff(np.append(0, np.cumsum(data.to_numpy() >= 0x80))[bounds])
        fits = lengths <= MAX_BYTES
        if not fits.any():
            return

        def taken(i: int) -> tuple[str, str, list[int]]:
            return doc_ids[i].as_py(), texts[i].as_py(), rows[i].as_py()

        for place, measure in enumerate((lengths, unknown, wide)):
            i = int(np.argmax(np.where(fits, measure, -1)))
            if place not in self._unusual or measure[i] > self._unusual[place][0]:
                self._unusual[place] = (int(measure[i]), *taken(i))
        hashes = [hashlib.sha256(str(doc_id).encode()).digest() for doc_id in doc_ids]
        first = sorted(np.flatnonzero(fits).tolist(), key=hashes.__getitem__)[: self._n]
        found = [*self._hashed, *((hashes[i], *taken(i)) for i in first)]
        self._hashed = sorted(found, key=lambda document: document[0])[: self._n]

    def compare(self, where: str) -> None:
        """Compares the documents taken since the last call; `where` is the split that they are from."""
        chosen = {doc_id: (text, ids) for _, doc_id, text, ids in (*self._hashed, *self._unusual.values())}
        self._hashed, self._unusual = [], {}
        for doc_id, (text, ids) in chosen.items():
            if self._by_library is not None and self._by_library(text) == ids:
                self.equal[self._library] += 1
            elif (expected := reference_encoding.encode(self._tokenizer, text)) == ids:
                self.equal[REFERENCE] += 1
            else:
                at = next((i for i, (a, b) in enumerate(zip(ids, expected, strict=False)) if a != b), len(ids))
                self.problems.append(
                    f"{where}: document {doc_id!r} has other ids than {REFERENCE} gives it, from token {at} on: "
                    f"{ids[at : at + 5]}, expected {expected[at : at + 5]}"
                )


def _library(tokenizer: Tokenizer) -> tuple[str, Callable[[str], list[int]] | None]:
    """Returns the name and version of `tokenizers`, and how it encodes; None if it is missing or has no such parts.

    Its ids may differ where we follow another library, or another version of Unicode; the reference implementation
    decides then.
    """
    model = tokenizer.model
    # Policies of WordPiece that `tokenizers` lacks, and Unigram by the rules of sentencepiece.
    if getattr(model, "oov_policy", "word") != "word" or getattr(model, "piece_types", None) is not None:
        return "", None
    try:
        theirs: Any = import_module("tokenizers").Tokenizer.from_str(tokenizer.to_str())
        version = metadata.version("tokenizers")
    except Exception:  # not installed, or a file that only TokenMill reads
        return "", None
    theirs.encode_special_tokens = tokenizer.special != "split"
    theirs.no_truncation()
    theirs.no_padding()
    return f"tokenizers {version}", lambda text: list(theirs.encode(text, add_special_tokens=False).ids)
