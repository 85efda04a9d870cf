# SPDX-License-Identifier: Apache-2.0
"""How a tokenizer cuts counted words, and how two tokenizers cut them differently, by language and source."""

import abc
import dataclasses
import html
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tokenmill.tokenizer.core import Tokenizer
from tokenmill.tokenizer.models import BPE
from tokenmill.tokenizer.models.byte_alphabet import BYTE_ALPHABET
from tokenmill.tokenizer.pre_tokenizers import ByteLevel, is_byte_level
from tokenmill.tokenizer.ragged import id_rows
from tokenmill.tokenizer.trainers.word_counts import words_as_bytes, words_as_code_points

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Counts: TypeAlias = pa.Table | Iterable[pa.Table]
"""Word counts, a table with the columns `word`, `count` and any labels; or several, which can be read again and again.
Then memory holds one of them at a time."""

_ROWS = 1 << 19
"""Words that are cut at once."""


def portions(counts: Counts) -> Iterator["CountedWords"]:
    """Yields counted words, so many at a time that what is made of them needs little memory.

    Raises:
      TypeError, ValueError: as `Trainer.train`, for words that are text; if there is no word.
    """
    total, n = 0.0, 0
    for table in [counts] if isinstance(counts, pa.Table) else counts:
        for start in range(0, table.num_rows, _ROWS):
            words = CountedWords.of(table.slice(start, _ROWS))
            total += float(np.dot(pc.binary_length(words.words).to_numpy().astype(np.float64), words.counts))
            if total > 1 << 62:  # so that sums of tokens are below 2**63, too
                raise ValueError("word_counts: the counts add up to more than 2**62 bytes of text; scale them down")
            n += 1
            yield words
    if not n:
        CountedWords.of(pa.table({"word": pa.array([], pa.large_binary()), "count": pa.array([], pa.int64())}))


def model_alone(tokenizer: Tokenizer) -> Tokenizer:
    """Returns a tokenizer that takes each text as one word: without normalizer, pre-tokenizer and template."""
    spells_bytes = ByteLevel(add_prefix_space=False, use_regex=False)
    return tokenizer.replace(
        normalizer=None, pre_tokenizer=spells_bytes if is_byte_level(tokenizer.pre_tokenizer) else None,
        post_processor=None, truncation=None, padding=None, special="plain",
    )  # fmt: skip


class Cuts(NamedTuple):
    """The tokens of each word."""

    values: npt.NDArray[np.int32]
    """int32[n_tokens]."""
    offsets: Ints
    """int64[n + 1], from 0."""
    unknown: Ints
    """int64[n]: the unknown tokens among them."""

    @property
    def lengths(self) -> Ints:
        """int64[n]: the number of tokens."""
        return np.diff(self.offsets)

    @property
    def rows(self) -> Ints:
        """int64[n_tokens]: the number of the word of each."""
        return np.repeat(np.arange(self.unknown.size), self.lengths)

    def have(self, wanted: Flags) -> Flags:
        """Returns bool[n]: which words have a token of those that are wanted, bool[n_ids]."""
        return np.bincount(self.rows, wanted[self.values], self.unknown.size) > 0

    def renumbered(self, id_of: Ints) -> "Cuts":
        """Returns the tokens by other ids."""
        return self._replace(values=id_of.astype(np.int32)[self.values])

    def neighbours(self) -> tuple[Ints, Ints]:
        """Returns the pairs of neighbours in words, left << 32 | right, and where each begins in `values`."""
        rows = self.rows
        at = np.flatnonzero(rows[:-1] == rows[1:])
        return self.values[at].astype(np.int64) << 32 | self.values[at + 1], at


@dataclasses.dataclass(frozen=True, eq=False)
class CountedWords:
    """Distinct words of each group, as a counts artifact has them."""

    words: pa.LargeStringArray
    counts: Ints
    """int64[n], all positive."""
    labels: Mapping[str, pa.DictionaryArray]
    """By kind, as `lang` and `source`: the label of each word, dictionary<int32, string>[n]."""

    @classmethod
    def of(cls, table: pa.Table) -> "CountedWords":
        """Checks a table with the columns `word` and `count`, and any columns of labels.

        Raises:
          TypeError, ValueError: as `Trainer.train`, for words that are text.
        """
        words_as_bytes(table)  # so that sums of tokens are below 2**63, too
        table = table.filter(pc.and_(pc.greater(table["count"], 0), pc.greater(pc.binary_length(table["word"]), 0)))
        table = table.combine_chunks()
        try:
            words = table["word"].combine_chunks().cast(pa.large_string())
        except pa.ArrowInvalid:
            words_as_code_points(table)  # which says what word is not UTF-8
            raise
        labels = {
            name: table[name].cast(pa.string()).combine_chunks().dictionary_encode()
            for name in table.column_names
            if name not in ("word", "count")
        }
        return cls(words, table["count"].to_numpy().astype(np.int64), labels)

    def table(self) -> pa.Table:
        """Returns words and counts as trainers take them."""
        return pa.table({"word": self.words.cast(pa.large_binary()), "count": self.counts})


def cutter(tokenizer: Tokenizer, *, whole: bool = True) -> Callable[[CountedWords], Cuts]:
    """Returns what says which tokens the model of a tokenizer makes of words, unless `whole` cut as its words are."""
    alone = model_alone(tokenizer)
    if not whole:
        alone = alone.replace(pre_tokenizer=tokenizer.pre_tokenizer)
    apart = _apart_at_spaces(tokenizer) if whole else np.zeros(256, np.bool_)

    def cut(counted: CountedWords) -> Cuts:
        words, firsts = _cut_at_spaces(counted.words, apart)
        ids = id_rows(alone.encode_bare(words))
        offsets = ids.offsets[firsts]
        cuts = Cuts(ids.values, offsets, np.zeros(offsets.size - 1, np.int64))
        if tokenizer.unk_token_id is not None:
            is_unknown = ids.values == tokenizer.unk_token_id
            cuts = cuts._replace(unknown=np.bincount(cuts.rows[is_unknown], minlength=offsets.size - 1))
        return cuts

    return cut


def _apart_at_spaces(tokenizer: Tokenizer) -> Flags:
    """Returns bool[256]: after which bytes no entry of a byte-level BPE goes on with a space.

    No merge joins what is on both sides then: each side is cut as by itself.
    """
    model = tokenizer.model
    if not (isinstance(model, BPE) and model.byte_level and is_byte_level(tokenizer.pre_tokenizer)):
        return np.zeros(256, np.bool_)
    space = BYTE_ALPHABET[0x20]
    entries = [*tokenizer.get_vocab(), *(token.content.replace(" ", space) for token in tokenizer.added_tokens)]
    before = {entry[at - 1] for entry in entries for at in range(1, len(entry)) if entry[at] == space}
    return np.array([letter not in before for letter in BYTE_ALPHABET])


def _cut_at_spaces(words: pa.LargeStringArray, apart: Flags) -> tuple[pa.LargeStringArray, Ints]:
    """Returns words, cut before the spaces that come after certain bytes, and where each begins, int64[n + 1].

    Words of several are seldom seen twice, but their parts are, which is four times as fast to encode.
    """
    offsets = np.frombuffer(words.buffers()[1], np.int64)[words.offset : words.offset + len(words) + 1]
    data = np.frombuffer(words.buffers()[2] or b"", np.uint8)[offsets[0] : offsets[-1]]
    begins = np.append(data == 0x20, True)
    begins[1:-1] &= apart[data[:-1]]
    begins[offsets - offsets[0]] = True
    starts = np.flatnonzero(begins) + offsets[0]
    if starts.size == offsets.size:
        return words, np.arange(offsets.size)
    parts = pa.LargeStringArray.from_buffers(starts.size - 1, pa.py_buffer(starts), words.buffers()[2])
    return parts, np.searchsorted(starts, offsets)


class Printed(abc.ABC):
    """A result that says itself in lines, in notebooks too."""

    @abc.abstractmethod
    def lines(self) -> Iterator[str]:
        """Yields what it says, for people."""

    def __repr__(self) -> str:
        return "\n".join(self.lines())

    def _repr_html_(self) -> str:
        return "".join(f"<div>{html.escape(line)}</div>" for line in self.lines())


class Tally:
    """Sums of numbers about words, for all words and by label."""

    def __init__(self) -> None:
        """Has no sums yet."""
        self._names: list[str] = []
        self._sums: dict[str, dict[str, Ints]] = {}

    def add(self, words: CountedWords, columns: Mapping[str, Ints]) -> None:
        """Adds numbers of each word, int64[n], always of the same names."""
        self._names = list(columns)
        values = np.stack(list(columns.values()), axis=1)
        for kind, labels in {"all": pa.repeat("all", len(values)).dictionary_encode(), **words.labels}.items():
            sums = np.zeros((len(labels.dictionary), len(columns)), np.int64)
            np.add.at(sums, labels.indices.to_numpy(), values)
            so_far = self._sums.setdefault(kind, {})
            for name, row in zip(labels.dictionary.to_pylist(), sums, strict=True):
                so_far[name] = so_far.get(name, 0) + row

    def rows(self) -> dict[str, list[dict[str, Any]]]:
        """Returns the sums by kind of label, a row for each label."""
        return {
            kind: [
                {"name": name, **dict(zip(self._names, row.tolist(), strict=True))} for name, row in sorted(of.items())
            ]
            for kind, of in self._sums.items()
        }


def cut_differently(before: Cuts, after: Cuts) -> Flags:
    """Returns bool[n]: which words have other tokens."""
    changed = before.lengths != after.lengths
    in_both = np.repeat(~changed, before.lengths), np.repeat(~changed, after.lengths)
    differ = before.values[in_both[0]] != after.values[in_both[1]]
    changed[before.rows[in_both[0]][differ]] = True
    return changed


def token_counts(cuts: Cuts, counts: Ints, n_ids: int) -> Ints:
    """Returns how often each id occurs, int64[n_ids], if each word occurs so often."""
    sums = np.zeros(n_ids, np.int64)
    np.add.at(sums, cuts.values, np.repeat(counts, cuts.lengths))
    return sums
