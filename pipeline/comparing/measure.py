# SPDX-License-Identifier: Apache-2.0
"""The comparison of tokenizers on a corpus, as plain JSON. No number in it depends on the machine.

Definitions follow TokEval (github.com/swiss-ai/tokenizer-intrinsic-evals) and TokLens 0.1 (pypi.org/project/toklens):

- `fertility`, TokEval: the tokens of texts, divided by the words in them;
- `fertility_alone` and `strr_alone`, TokLens: tokens per word, and the share of words that are one token, where each
  word is a text of its own; `strr` lets a word also stand behind a space, as in a text, and takes the better;
- `parity`, TokLens: the tokens of a language, divided by those of the reference for the same documents;
- `gini`, TokEval: the Gini coefficient over languages of tokens per byte; of tokens per document of parallel texts.

All of them are diagnostics: they say how text is cut, not how well a model learns from it.
"""

import functools
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.comparing.loading import Candidate
from pipeline.comparing.reading import Corpus, Documents, text_bytes
from pipeline.comparing.sums import LEAST_BLOCKS, N_BLOCKS, Bootstrap, Floats, GroupSums, Ints, intervals, ratio
from pipeline.comparing.words import Words
from pipeline.hashing import document_keys
from pipeline.input.given_up import GAVE_UP, find_given_up
from pipeline.statistics.vocabulary import gini
from tokenizer import Tokenizer
from tokenizer.languages import UNKNOWN

FORMAT_VERSION = 1
"""Version of the JSON of a comparison."""

ALL = "all"
KINDS = ("source", "language", "script")

MAX_NAMED = 20
"""Documents that are named of those on which a tokenizer failed."""

TOP_WORDS = 100

_SUMMED = ("documents", "bytes", "characters", "words")
_BLOCKS_SEED = 0


class Sums:
    """What is kept of the documents of a comparison while they are read."""

    def __init__(self, candidates: Sequence[Candidate]) -> None:
        """Starts with no document."""
        self._candidates = candidates
        self.groups = {kind: GroupSums(len(_SUMMED) + 2 * len(candidates)) for kind in KINDS}
        self.words = Words()
        self.ids = [np.zeros(each.tokenizer.n_ids, np.int64) for each in candidates]
        """How often each tokenizer made each id, int64[n_ids]."""
        self.failed: Counter[str] = Counter()
        self.named: list[dict[str, str]] = []

    def add(self, read: Documents) -> None:
        """Adds documents. One on which a tokenizer fails counts for none of them; it is named instead."""
        found = self._encode(read.table)
        if found is None:
            kept = pa.array(self._without_failures(read))
            groups = {kind: column.filter(kept) for kind, column in read.groups.items()}
            read = Documents(read.table.filter(kept), read.names, groups)
            found = self._encode(read.table)
            assert found is not None
        text = read.table.column("text")
        for counts, ids in zip(self.ids, found, strict=True):
            np.add.at(counts, ids.values.to_numpy(), 1)
        n_words = self.words.add(text, read.groups["language"])
        columns = [
            np.ones(len(text), np.int64),
            text_bytes(read.table),
            pc.utf8_length(text).to_numpy(),
            n_words,
            *(np.diff(ids.offsets.to_numpy()) for ids in found),
            *(unknown(each.tokenizer, ids) for each, ids in zip(self._candidates, found, strict=True)),
        ]
        values = np.stack(columns, axis=1).astype(np.int64)
        keys = document_keys("bootstrap", _BLOCKS_SEED, read.names, read.table)
        blocks = (keys % np.uint64(N_BLOCKS)).astype(np.int64)
        for kind, sums in self.groups.items():
            sums.add(read.groups[kind], blocks, values)

    def _encode(self, table: pa.RecordBatch) -> list[pa.LargeListArray] | None:
        """Returns the ids of documents by tokenizer; None if one of them fails on a document."""
        try:
            return [_encode_texts(each.tokenizer, table) for each in self._candidates]
        except GAVE_UP:
            return None

    def _without_failures(self, read: Documents) -> npt.NDArray[np.bool_]:
        """Returns on which documents no tokenizer fails, bool[n]; counts and names the others."""
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
    return tokenizer.encode_bare(table.column("text"))


def unknown(tokenizer: Tokenizer, ids: pa.LargeListArray) -> Ints:
    """Returns how many unknown tokens each row has, int64[n]."""
    values, offsets = ids.values.to_numpy(), ids.offsets.to_numpy()
    before = np.concatenate([[0], np.cumsum(values == tokenizer.unk_token_id)])
    return np.diff(before[offsets])


def on_corpus(candidates: Sequence[Candidate], corpus: Corpus, parallel: str | None = None) -> dict[str, Any]:
    """Returns the comparison of tokenizers on the documents of a corpus.

    Args:
      candidates: two or more; the first one is what the others are compared with.
      corpus: what to read.
      parallel: a language, if every language has the same documents as it, translated; None if not.

    Raises:
      ValueError: if there is no document, or languages differ in their number of documents although `parallel`.
      OSError: if a file cannot be read.
    """
    sums = Sums(candidates)
    for read in corpus.documents():
        sums.add(read)
    if not sums.groups["source"].names:
        reasons = ", ".join(f"{n:,} rejected as {reason}" for reason, n in sorted(corpus.rejected.items()))
        raise ValueError(f"--on: no document to compare tokenizers on; {reasons or 'the files are empty'}")
    report = _report(candidates, sums.groups, Bootstrap())
    report["on"] |= {
        "what": "texts",
        "word": "what white space leaves",
        "is_whole": corpus.is_whole,
        "rejected": dict(sorted(corpus.rejected.items())),
        "failed": dict(sums.failed),
        "failed_documents": sums.named,
    }
    add_languages(report, parallel)
    return report


def _report(
    candidates: Sequence[Candidate], groups: Mapping[str, GroupSums], bootstrap: Bootstrap | None
) -> dict[str, Any]:
    labels = [each.label for each in candidates]
    some = next(iter(groups.values())).blocks
    total = _row(ALL, some.sum(axis=0), labels, bootstrap)
    return {
        "format_version": FORMAT_VERSION,
        "tokenizers": [
            {"label": each.label, "digest": each.tokenizer.digest, "ids": each.tokenizer.n_ids} for each in candidates
        ],
        "on": {name: total[name] for name in _SUMMED},
        ALL: total,
        **{kind: _rows(sums, labels, bootstrap) for kind, sums in groups.items()},
    }


def _rows(sums: GroupSums, labels: Sequence[str], bootstrap: Bootstrap | None) -> list[dict[str, Any]]:
    """Returns a row for each group, those with most bytes first."""
    rows = [_row(name, blocks, labels, bootstrap) for name, blocks in zip(sums.names, sums.blocks, strict=True)]
    return sorted(rows, key=lambda row: (-row["bytes"], row["name"]))


def _row(name: str, blocks: Ints, labels: Sequence[str], bootstrap: Bootstrap | None) -> dict[str, Any]:
    """Returns what is to say of a group: its sums, and the measures of each tokenizer by its label."""
    numbers = blocks.sum(axis=0).tolist()
    sums, of_each = dict(zip(_SUMMED, numbers, strict=False)), numbers[len(_SUMMED) :]
    by: dict[str, dict[str, Any]] = {
        label: {
            "tokens": n,
            "bytes_per_token": ratio(sums["bytes"], n),
            "tokens_per_megabyte": ratio(1e6 * n, sums["bytes"]),
            "fertility": ratio(n, sums["words"]),
            "unknown": ratio(n_unknown, n),
        }
        for label, n, n_unknown in zip(labels, of_each[: len(labels)], of_each[len(labels) :], strict=True)
    }
    for label in labels[1:]:
        for measure in ("bytes_per_token", "tokens_per_megabyte"):
            mine, first = by[label][measure], by[labels[0]][measure]
            by[label][f"{measure}_difference"] = None if mine is None or first is None else mine - first
    if bootstrap is not None and np.count_nonzero(blocks[:, 0]) >= LEAST_BLOCKS:
        for (label, measure), found in _intervals(bootstrap.resample(blocks), labels).items():
            by[label][f"{measure}_interval"] = found
    return {"name": name, **{each: sums[each] for each in _SUMMED}, "by": by}


def _intervals(resampled: Floats, labels: Sequence[str]) -> dict[tuple[str, str], list[float] | None]:
    n_bytes, n_tokens = resampled[:, [_SUMMED.index("bytes")]], resampled[:, len(_SUMMED) : len(_SUMMED) + len(labels)]
    with np.errstate(divide="ignore", invalid="ignore"):
        measures = {"bytes_per_token": n_bytes / n_tokens, "tokens_per_megabyte": 1e6 * n_tokens / n_bytes}
    found: dict[tuple[str, str], list[float] | None] = {}
    for measure, values in measures.items():
        with np.errstate(invalid="ignore"):
            differences = values[:, 1:] - values[:, :1]
        limits = intervals(np.hstack([values, differences]))
        names = [(label, measure) for label in labels]
        names += [(label, f"{measure}_difference") for label in labels[1:]]
        found.update(zip(names, limits, strict=True))
    return found


def add_languages(report: dict[str, Any], parallel: str | None) -> None:
    """Adds what concerns languages together: Gini, and parity with the reference where texts are parallel."""
    rows = [row for row in report["language"] if row["name"] != UNKNOWN]
    units = ["bytes", "characters"]
    if parallel is not None:
        _check_parallel(rows, parallel)
        units.append("documents")
    reference = next((row for row in rows if row["name"] == parallel), None)
    for tokenizer in report["tokenizers"]:
        label = tokenizer["label"]
        tokenizer["gini"] = {
            unit: gini(
                [row["by"][label]["tokens"] / row[unit] for row in rows if row[unit] and row["by"][label]["tokens"]]
            )
            for unit in units
        }
        for row in rows if reference is not None else ():
            assert reference is not None
            row["by"][label]["parity"] = ratio(row["by"][label]["tokens"], reference["by"][label]["tokens"])
    report["on"]["parallel"] = parallel


def _check_parallel(rows: Sequence[Mapping[str, Any]], parallel: str) -> None:
    n = {row["name"]: row["documents"] for row in rows}
    if parallel not in n:
        raise ValueError(f"--parallel {parallel}: there is no document of this language; there are {', '.join(n)}")
    if unlike := [name for name in n if n[name] != n[parallel]]:
        raise ValueError(
            f"--parallel {parallel}: its {n[parallel]:,} documents are not those of {unlike[0]}, which has "
            f"{n[unlike[0]]:,}; parity compares translations of the same documents, with --max-bytes 0 and --lang-field"
        )
