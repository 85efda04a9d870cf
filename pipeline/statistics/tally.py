# SPDX-License-Identifier: Apache-2.0
"""Counts of the tokens that a vocabulary makes of a corpus: exact integers that add up in any order.

Its reference implementation is in `tests/pipeline/statistics/test_tally.py`.
"""

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tokenmill.pipeline import schemas
from tokenmill.pipeline.books.counts import STEP, Counts, Ints
from tokenmill.pipeline.books.json_files import MOST_TOKENS
from tokenmill.pipeline.books.ledger import LedgerEntry
from tokenmill.pipeline.books.quantities import BooksError
from tokenmill.pipeline.statistics import words
from tokenmill.pipeline.statistics.vocabulary import ratio
from tokenmill.tokenizer import Tally
from tokenmill.tokenizer.compiling.kernel import kernel

if TYPE_CHECKING:
    from tokenmill.tokenizer.text import StepReport

EXACT_LENGTHS = 4096
"""Rows of fewer tokens than this are counted by their exact length."""

LENGTH_BUCKETS = EXACT_LENGTHS + 19
"""Exact lengths, then one bucket for each power of two: bucket `4096 + j` holds lengths of [4096 * 2**j, 8192 * 2**j).

The last ends at 2**31, more than a row can have.
"""

MAX_OOV_WORDS = 1 << 20
"""At most this many distinct words with an unknown token are kept; the rarest are dropped, in reverse byte order."""


_SPARSE = (
    ("token_ids", "token_counts", pa.int32(), None),
    ("length_buckets", "length_counts", pa.int32(), LENGTH_BUCKETS),
    ("oov_chars", "oov_char_counts", pa.int32(), 0x110000),
    ("oov_words", "oov_word_counts", pa.large_binary(), None),
)
"""Columns of keys, in ascending order, and of their counts; only what occurred is there. Then the type of the keys, and
where keys are numbers, the number that all are below; of ids, the size."""

STATISTICS = pa.schema(
    [
        pa.field("vocab_size", pa.int64(), nullable=False),
        *(
            pa.field(name, pa.large_list(type_), nullable=False)
            for keys, counts, key_type, _ in _SPARSE
            for name, type_ in ((keys, key_type), (counts, pa.int64()))
        ),
    ]
)
"""The schema of the columns and the words of a `Statistics` as one row; its numbers are in the ledger entry."""

MAX_RESIZED = 0.01
"""The share of a language's characters that a step may add or remove before the summary names it."""

ADDED, SPANS = "added tokens", "spans"
"""Groups of numbers: how often the text of each special or other added token, and each span, occurred in documents."""

BEFORE, AFTER = "characters before:", "characters after:"
"""What the names of numbers of a step begin with: the characters of documents in a language, by its code."""


def _fixed(array: np.ndarray) -> np.ndarray:
    """Returns a read-only view, like Arrow's arrays, so that kernels are compiled for one type of array only."""
    view = array.view()
    view.flags.writeable = False
    return view


@kernel
def count_rows(
    ids: Any, starts: Any, stops: Any, unk_id: int, token_counts: Any, length_counts: Any, n_oov: Any
) -> int | np.int64:
    """Counts tokens, lengths and unknown tokens of rows.

    Args:
      ids: int32[n_ids].
      starts: int64[n], where the tokens of each row start in `ids`.
      stops: int64[n], where they end.
      unk_id: the unknown token, or -1.
      token_counts: int64[vocab_size], added to.
      length_counts: int64[LENGTH_BUCKETS], added to.
      n_oov: int32[n], filled with the unknown tokens of each row.

    Returns:
      Position in `ids` of the first id that is not in the vocabulary, with rows from there on not counted; -1 if none.
    """
    size = np.uint32(token_counts.size)
    for row in range(n_oov.size):
        before = token_counts[unk_id] if unk_id >= 0 else 0
        # Numbers that cannot be below zero save numba a look at every index.
        for i in range(np.uint64(starts[row]), np.uint64(stops[row])):
            token_id = np.uint32(ids[i])  # below zero is above all
            if token_id >= size:
                return np.int64(i)
            token_counts[token_id] += 1
        n_oov[row] = token_counts[unk_id] - before if unk_id >= 0 else 0
        length = stops[row] - starts[row]
        bucket = length
        if length >= EXACT_LENGTHS:
            bucket = EXACT_LENGTHS
            while length >= 2 * EXACT_LENGTHS:
                length >>= 1
                bucket += 1
        length_counts[bucket] += 1
    return -1


class Statistics(Counts):
    """Counts of one split, or of many merged.

    Merging adds. It is associative and commutative with one exception: more than `MAX_OOV_WORDS` distinct words with an
    unknown token are cut back, and which rare ones survive depends on the order, so merge in the order of splits. What
    was cut is counted in `n_oov_words_dropped`.

    Numbers of all documents, in the group "":

    - n_documents, n_text_bytes, n_chars, n_words: of the text that was tokenized; bytes of UTF-8, code points,
      pre-tokens; n_spaced_words: its words between white space;
    - n_text_tokens: tokens that the tokenizer made of it;
    - n_cut_tokens: how many of them truncation cut off; n_cut_documents: from how many documents;
    - n_special_tokens: tokens that the tokenizer's template puts around documents; n_added_tokens: those that the
      config puts at their ends; n_unknown_marks: those of both that are the unknown token, as with CLIP;
    - n_tokens: tokens of rows: those of texts that were not cut, special and added ones, without padding;
    - n_oov_tokens: how many of them are the unknown token, not counting special and added ones;
    - n_oov_chars: characters of normalized text that were lost to unknown tokens; n_oov_words: pre-tokens with an
      unknown token, all occurrences;
    - min_tokens, max_tokens: tokens of the shortest and the longest row, if there are rows;
    - n_sampled_documents, ...: each number of `sample.COUNTED`, of a sample of the documents.

    Groups `counts.LANGUAGE`: see `languages.summary`. Groups `counts.STEP`: what each step changed in the text before
    tokenization, see `_counts_of`. Groups `ADDED` and `SPANS`: by the token.
    """

    def __init__(self, vocab_size: int, unk_id: int | None) -> None:
        """Starts at zero.

        Args:
          vocab_size: every id is below this.
          unk_id: the unknown token; None where the tokenizer has none.

        Raises:
          ValueError: if the unknown token is none of the vocabulary.
        """
        super().__init__()
        self.unk_id = -1 if unk_id is None else unk_id
        if not -1 <= self.unk_id < vocab_size:
            raise ValueError(f"the unknown token {unk_id} is not in a vocabulary of {vocab_size} tokens")
        self.column("tokens", vocab_size)
        self.column("lengths", LENGTH_BUCKETS)
        self._oov_words = schemas.WORD_COUNTS.empty_table()
        self._unfolded: list[pa.Table] = []

    @property
    def token_counts(self) -> Ints:
        """int64[vocab_size], how often each token occurred."""
        return self.columns["tokens"]

    @property
    def length_counts(self) -> Ints:
        """int64[LENGTH_BUCKETS], rows by number of tokens."""
        return self.columns["lengths"]

    def update(
        self,
        text: pa.StringArray,
        ids: np.ndarray,
        starts: np.ndarray,
        stops: np.ndarray,
        n_unknown_marks: int = 0,
        counted: tuple[np.ndarray, np.ndarray] | None = None,
    ) -> np.ndarray:
        """Counts the rows of a batch.

        Args:
          text: the documents, no nulls.
          ids: int32, the rows.
          starts: int64[n], where the tokens of each row, without padding, start in `ids`.
          stops: int64[n], where they end.
          n_unknown_marks: how many unknown tokens of each row are marks around the text.
          counted: `words.count` of the text, if it is known already.

        Returns:
          int32[n]: how many tokens of each row are the unknown token, without these.

        Raises:
          ValueError: if an id is not in the vocabulary; nothing of these statistics can be used then.
        """
        n_oov = np.empty(len(text), np.int32)
        bad = count_rows(*map(_fixed, (ids, starts, stops)), self.unk_id, self.token_counts, self.length_counts, n_oov)
        if bad >= 0:
            raise ValueError(f"id {ids[bad]} is not in the vocabulary of {self.token_counts.size} tokens")
        n_oov -= n_unknown_marks
        n_tokens = stops - starts
        if n_tokens.size:
            self.add({"min_tokens": int(n_tokens.min()), "max_tokens": int(n_tokens.max())})
        n_chars, n_words = words.count(text) if counted is None else counted
        self.add(
            {
                "n_documents": len(text),
                "n_text_bytes": pc.sum(pc.binary_length(text)).as_py() or 0,
                "n_chars": int(n_chars.sum()),
                "n_spaced_words": int(n_words.sum()),
                "n_tokens": int(n_tokens.sum()),
                "n_oov_tokens": int(n_oov.sum(dtype=np.int64)),
                "n_unknown_marks": n_unknown_marks * len(text),
            }
        )
        return n_oov

    def set_lengths(self, lengths: np.ndarray) -> None:
        """Replaces the lengths of the counted rows by the lengths of documents in tokens, int64[n]."""
        self.length_counts[:] = 0
        ends = np.cumsum(lengths)
        nothing, scratch = np.zeros(int(lengths.sum()), np.int32), np.zeros(1, np.int64)
        rows = map(_fixed, (nothing, ends - lengths, ends))
        count_rows(*rows, -1, scratch, self.length_counts, np.empty(lengths.size, np.int32))

    def add_layout(self, lengths: np.ndarray, kept: np.ndarray, n_special: int, n_added: int) -> None:
        """Counts where the tokens of rows come from; once for each row that `update` counts.

        Args:
          lengths: int64[n], the tokens that each text gave.
          kept: int64[n], how many of them are in the row.
          n_special: tokens that the template puts around each.
          n_added: tokens that the config puts around each.
        """
        self.add(
            {
                "n_text_tokens": int(lengths.sum()),
                "n_cut_tokens": int((lengths - kept).sum()),
                "n_cut_documents": int((kept < lengths).sum()),
                "n_special_tokens": n_special * lengths.size,
                "n_added_tokens": n_added * lengths.size,
            }
        )

    def add_sample(self, counts: Mapping[str, np.ndarray]) -> None:
        """Adds what was counted of sampled documents, `sample.COUNTED`."""
        self.add({f"n_{name}": int(numbers.sum()) for name, numbers in counts.items()})

    def add_text(self, steps: "Sequence[StepReport]", spans: Mapping[str, int]) -> None:
        """Adds what the steps of a text pipeline changed, and how often it found each span."""
        self.add_groups(_counts_of(steps))
        self.add(spans, SPANS)

    def add_tally(self, tally: Tally) -> None:
        """Adds what the tokenizer counted while it encoded these rows; once per tally."""
        unknown = tally.oov_words()
        n_listed, n_untracked = pc.sum(unknown.column("count")).as_py() or 0, tally.n_oov_words_untracked
        self.add(
            {
                "n_words": tally.n_words,
                "n_oov_chars": tally.n_oov_characters,
                "n_oov_words": n_listed + n_untracked,
                "n_oov_words_dropped": n_untracked,
            }
        )
        if tally.added_token_hits:
            self.add(tally.added_token_hits, ADDED)
        code_points, counts = tally.oov_characters()
        if code_points.size:
            self.column("oov_chars", int(code_points.max()) + 1)[code_points] += counts
        self._add_words(unknown)

    def merge(self, other: Self) -> Self:
        """Adds all of `other` to this and returns this; `other` stays as it is.

        Raises:
          ValueError: if they count another vocabulary.
        """
        ours, theirs = (self.token_counts.size, self.unk_id), (other.token_counts.size, other.unk_id)
        if ours != theirs:
            raise ValueError(f"statistics of different vocabularies: (size, unknown token) {ours} and {theirs}")
        unknown = other.oov_words()  # may drop some, which is counted
        super().__iadd__(other)
        self._add_words(unknown)
        return self

    @property
    def n_oov_words_dropped(self) -> int:
        """How many occurrences counted in `n_oov_words` are of words that `oov_words` does not list."""
        self._fold()
        return self["n_oov_words_dropped"]

    def oov_words(self) -> pa.Table:
        """Returns the words that contain an unknown token, as `schemas.WORD_COUNTS`, in the order of their bytes."""
        self._fold()
        return self._oov_words

    def oov_chars(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns (code points int32[k], ascending, counts int64[k]) of the characters lost to unknown tokens."""
        return _used(self.column("oov_chars"))

    def to_arrow(self) -> pa.RecordBatch:
        """Returns the columns and the words as one row of `STATISTICS`."""
        columns = (_used(self.columns[name]) for name in ("tokens", "lengths"))
        sparse = *columns, self.oov_chars(), (column.combine_chunks() for column in self.oov_words().itercolumns())
        values = [self.token_counts.size, *itertools.chain.from_iterable(sparse)]
        return pa.record_batch(list(map(_one_row, values, STATISTICS)), schema=STATISTICS)

    @classmethod
    def from_arrow(cls, row: pa.RecordBatch, unk_id: int | None = None) -> Self:
        """Returns statistics with the columns and the words that `to_arrow` turned into `row`.

        Raises:
          ValueError: if it is not one row of `STATISTICS`.
        """
        if "languages" in row.schema.names:
            raise ValueError("statistics of an earlier version: only the TokenMill that wrote the folder verifies it")
        if row.num_rows != 1 or not row.schema.equals(STATISTICS):
            raise ValueError(f"not one row of statistics: {row.num_rows} rows of {row.schema.to_string()!r}")
        row.validate(full=True)
        values = {name: row.column(name)[0] for name in STATISTICS.names}
        if wrong := [name for name, value in values.items() if not value.is_valid]:
            raise ValueError(f"{wrong[0]} of statistics is null")
        _check_sparse(values)
        statistics = cls(values["vocab_size"].as_py(), unk_id)
        (ids, n_ids), (buckets, n_lengths), (chars, n_chars), unknown = (
            (values[keys].values, values[counts].values) for keys, counts, *_ in _SPARSE
        )
        statistics.token_counts[ids.to_numpy()] = n_ids.to_numpy()
        statistics.length_counts[buckets.to_numpy()] = n_lengths.to_numpy()
        if len(chars):
            statistics.column("oov_chars", chars[-1].as_py() + 1)[chars.to_numpy()] = n_chars.to_numpy()
        statistics._oov_words = pa.table(list(unknown), schema=schemas.WORD_COUNTS)
        return statistics

    def to_bytes(self) -> bytes:
        """Returns columns and words as an Arrow IPC file, compressed with zstd; the same bytes for the same counts."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, STATISTICS, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
            writer.write_batch(self.to_arrow())
        return sink.getvalue().to_pybytes()

    @classmethod
    def from_bytes(cls, data: bytes, unk_id: int | None = None) -> Self:
        """Returns statistics with the columns and the words that `to_bytes` turned into `data`.

        Raises:
          ValueError: if `data` is something else.
        """
        try:
            # Handing columns of some kilobytes to Arrow's threads takes longer than decompressing them.
            file = pa.ipc.open_file(pa.py_buffer(data), options=pa.ipc.IpcReadOptions(use_threads=False))
            return cls.from_arrow(file.get_batch(0), unk_id)
        except (pa.ArrowException, OSError) as error:
            raise ValueError(f"not an Arrow file of statistics: {error}") from error

    def _add_words(self, words: pa.Table) -> None:
        if words.num_rows:
            self._unfolded.append(words.cast(schemas.WORD_COUNTS))
        if sum(table.num_rows for table in self._unfolded) > MAX_OOV_WORDS:
            self._fold()

    def _fold(self) -> None:
        if not self._unfolded:
            return
        words = (
            pa.concat_tables([self._oov_words, *self._unfolded])
            .group_by("word", use_threads=False)
            .aggregate([("count", "sum")])
        )
        words = words.select(["word", "count_sum"]).rename_columns(["word", "count"])
        if words.num_rows > MAX_OOV_WORDS:
            words = words.sort_by([("count", "descending"), ("word", "ascending")])
            self.add({"n_oov_words_dropped": pc.sum(words.column("count").slice(MAX_OOV_WORDS)).as_py()})
            words = words.slice(0, MAX_OOV_WORDS)
        self._oov_words = words.sort_by("word").cast(schemas.WORD_COUNTS).combine_chunks()
        self._unfolded = []


def _counts_of(steps: "Sequence[StepReport]") -> dict[str, dict[str, int]]:
    """Returns the numbers of the steps of a text pipeline by groups, whose names have the steps in order."""
    groups = {}
    for i, step in enumerate(steps):
        numbers = {name: n for name, n in vars(step).items() if name.startswith("n_")}
        for code, (before, after) in step.by_language.items():
            numbers |= {f"{BEFORE}{code}": before, f"{AFTER}{code}": after}
        groups[f"{STEP}{i:02}:{step.step}"] = numbers
    return groups


def _used(column: Ints) -> tuple[np.ndarray, np.ndarray]:
    """Returns the places of a column that are not zero, int32, and their numbers."""
    places = np.flatnonzero(column)
    return places.astype(np.int32), column[places]


def _check_sparse(values: Mapping[str, Any]) -> None:
    """Raises ValueError if the columns of a row of `STATISTICS` are not such as kernels and summaries may rely on."""
    if not 0 <= (vocab_size := values["vocab_size"].as_py()) <= MOST_TOKENS:
        raise ValueError(f"statistics of {vocab_size} tokens")
    for names, counts, _, limit in _SPARSE:
        keys, numbers = values[names].values, values[counts].values
        if keys.null_count or numbers.null_count or len(keys) != len(numbers):
            raise ValueError(f"{names} and {counts} of statistics are not as many, or some are null")
        if len(numbers) and numbers.to_numpy().min() < 0:
            raise ValueError(f"{counts} of statistics are negative")
        if pa.types.is_integer(keys.type) and len(keys):
            limit = vocab_size if limit is None else limit
            places = keys.to_numpy()
            if places[0] < 0 or places[-1] >= limit or (places[1:] <= places[:-1]).any():
                raise ValueError(f"{names} of statistics do not ascend from 0 to {limit - 1}")


def _one_row(value: Any, field: pa.Field) -> pa.Array:
    if not pa.types.is_large_list(field.type):
        return pa.array([value], field.type)
    values = pa.array(value, field.type.value_type)
    return pa.LargeListArray.from_arrays(pa.array([0, len(value)], pa.int64()), values, type=field.type)


def summarize_text(steps: Mapping[str, Mapping[str, int]], spans: Mapping[str, int]) -> dict[str, Any]:
    """Returns the part of stats.json about steps, the groups `counts.STEP`, and about spans by their tokens."""
    return {"steps": [_summary_of_step(name, numbers) for name, numbers in sorted(steps.items())], "spans": dict(spans)}


def _summary_of_step(name: str, n: Mapping[str, int]) -> dict[str, Any]:
    codes = sorted(each.removeprefix(BEFORE) for each in n if each.startswith(BEFORE))
    sizes: list[tuple[str | None, int, int]] = [(None, n["n_chars"], n["n_chars_after"])]
    if codes:
        sizes = [(code, n[f"{BEFORE}{code}"], n[f"{AFTER}{code}"]) for code in codes]
    return {
        "step": name.partition(":")[2],
        "documents": n["n_documents"],
        "documents_changed": n["n_documents_changed"],
        "documents_rejected": n["n_documents_rejected"],
        "characters": n["n_chars"],
        "characters_after": n["n_chars_after"],
        "characters_changed": n["n_chars_changed"],
        "resized": [
            {"language": code, "characters": before, "characters_after": after, "share": ratio(after - before, before)}
            for code, before, after in sizes
            if abs(after - before) > MAX_RESIZED * before
        ],
    }


def disagreements(entry: LedgerEntry, statistics: Statistics) -> list[str]:
    """Returns a line for every column of a split's statistics that does not add up to the numbers of its entry."""
    n_listed = pc.sum(statistics.oov_words().column("count")).as_py() or 0
    pairs = [
        ("sum of the tokens' counts", int(statistics.token_counts.sum()), "tokens", entry.n_tokens),
        ("sum of the lengths' counts", int(statistics.length_counts.sum()), "documents", entry.n_documents),
        (
            "sum of the unknown characters' counts",
            int(statistics.column("oov_chars").sum()),
            "lost",
            entry["n_oov_chars"],
        ),
        (
            *("sum of the unknown words' counts", n_listed + entry["n_oov_words_dropped"]),
            *("unknown words", entry["n_oov_words"]),
        ),
    ]
    if statistics.unk_id >= 0:
        unknown = int(statistics.token_counts[statistics.unk_id])
        n_unknown = entry.n_oov_tokens + entry["n_unknown_marks"]
        pairs.append(("count of the unknown token", unknown, "unknown tokens", n_unknown))
    return [
        f"split {entry.split_id}: {left} {ours} != {right} {theirs}"
        for left, ours, right, theirs in pairs
        if ours != theirs
    ]


def check_agreement(entry: LedgerEntry, statistics: Statistics) -> None:
    """Raises BooksError naming every number of `disagreements`."""
    if wrong := disagreements(entry, statistics):
        raise BooksError("\n".join(wrong))
