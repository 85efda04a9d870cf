# SPDX-License-Identifier: Apache-2.0
"""Checks tables of word counts, and lowers them to arrays."""

import reprlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tokenmill.tokenizer.added_tokens import AddedToken, AddedTokenMatcher
from tokenmill.tokenizer.counting import checked_word_counts
from tokenmill.tokenizer.pre_tokenizers.spelled_bytes import spelled_words
from tokenmill.tokenizer.ragged import Ragged, gathered
from tokenmill.tokenizer.words import Words

MAX_TOTAL = 2**63 - 1
"""The largest sum of counts, each times its word's characters; keeps every sum of a training an int64."""

MAX_CHARACTERS = 2**29
"""The most characters of all distinct words together: each makes up to three pairs, which are numbered in 31 bits."""


_NO_WORDS = "word_counts holds no words to learn from; is the input empty?"


class CountedWords(NamedTuple):
    """Words, none empty and all with positive counts; their bytes or code points are in one array."""

    values: npt.NDArray[Any]
    """uint8[n_bytes] bytes, or int32[n_characters] code points."""
    offsets: npt.NDArray[np.int64]
    """int64[n_words + 1], from 0."""
    counts: npt.NDArray[np.int64]
    """int64[n_words], all positive."""


def words_as_bytes(word_counts: pa.Table, cut_at: Sequence[str] = ()) -> CountedWords:
    """Returns the checked words as bytes, in the order of the table.

    Args:
      word_counts: as in `Trainer.train`.
      cut_at: strings that are taken out of words; the text on either side becomes a separate word. The leftmost is
        found first, and the longest of those that begin there.

    Raises:
      TypeError: if a column is missing or of another type.
      ValueError: if there is no word, a count is negative or null, or the sums are too large; see `Trainer.train`.
    """
    words = _read(word_counts, cut_at)
    _check_sums(words, "bytes")
    return words


def words_as_code_points(word_counts: pa.Table, cut_at: Sequence[str] = ()) -> CountedWords:
    """Returns the checked words as code points, in the order of the table; the arguments are those of `words_as_bytes`.

    Raises:
      TypeError, ValueError: as `words_as_bytes`.
      ValueError: if a word is not UTF-8.
    """
    data, byte_offsets, counts = _read(word_counts, cut_at)
    begins_character = (data & 0xC0) != 0x80
    is_whole = begins_character[byte_offsets[:-1]]  # words may be valid together, but one begin inside a character
    if not is_whole.all():
        raise ValueError(_not_utf8(data, byte_offsets, int(np.argmin(is_whole))))
    try:
        text = data.tobytes().decode()
    except UnicodeDecodeError as error:
        row = int(np.searchsorted(byte_offsets, error.start, side="right")) - 1
        raise ValueError(_not_utf8(data, byte_offsets, row)) from error
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(begins_character, dtype=np.int64)])[byte_offsets]
    words = CountedWords(np.frombuffer(text.encode("utf-32-le"), np.int32), offsets, counts)
    _check_sums(words, "characters")
    return words


def distinct_words(word_counts: pa.Table) -> pa.Table:
    """Returns the checked words, which are UTF-8, each once with its total count; in no particular order.

    Raises:
      TypeError, ValueError: as `words_as_code_points`.
    """
    words_as_code_points(word_counts)
    used = word_counts.filter(pc.and_(pc.greater(word_counts["count"], 0), pc.not_equal(word_counts["word"], b"")))
    summed = used.group_by("word", use_threads=False).aggregate([("count", "sum")])
    return summed.rename_columns(["word", "count"])


def spelled_word_counts(word_counts: pa.Table) -> pa.Table:
    """Returns word counts with the bytes of words spelled in GPT-2's alphabet.

    This is how HF's trainers see words after a `ByteLevel`. `BPETrainer` with `byte_level` takes bytes as they are.

    Raises:
      TypeError, ValueError: as `words_as_bytes`.
    """
    found = words_as_bytes(word_counts)
    words = spelled_words(Words(found.values, found.offsets[:-1], found.offsets[1:], np.array([0, found.counts.size])))
    offsets = np.append(words.starts, words.values.size)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(words.values))]
    spelled = pa.LargeBinaryArray.from_buffers(pa.large_binary(), found.counts.size, buffers)
    return pa.table({"word": spelled, "count": found.counts})


def _read(word_counts: pa.Table, cut_at: Sequence[str]) -> CountedWords:
    word_counts = checked_word_counts(word_counts)
    lowest = pc.min(word_counts["count"]).as_py()
    if lowest is not None and lowest < 0:
        raise ValueError(f"word_counts: counts must not be negative, got {lowest!r}")
    word_counts = word_counts.filter(
        pc.and_(pc.greater(word_counts["count"], 0), pc.greater(pc.binary_length(word_counts["word"]), 0))
    )
    if not word_counts.num_rows:
        raise ValueError(_NO_WORDS)
    words = word_counts["word"].combine_chunks()
    counts = word_counts["count"].combine_chunks().to_numpy()
    offsets = np.frombuffer(words.buffers()[1], np.int64)[words.offset : words.offset + len(words) + 1]
    values = np.frombuffer(words.buffers()[2], np.uint8)[offsets[0] : offsets[-1]]
    found = CountedWords(values, offsets - offsets[0], counts)
    if cut_at:
        found = _cut(found, cut_at)
        if not found.counts.size:
            raise ValueError(_NO_WORDS)
    return found


def _cut(words: CountedWords, cut_at: Sequence[str]) -> CountedWords:
    matcher = AddedTokenMatcher([AddedToken(i, text) for i, text in enumerate(cut_at)], cut_at, "split")
    segments = matcher.cut(Ragged(words.values, words.offsets))
    if segments is None:
        return words
    starts, stops = segments.rows.offsets[:-1], segments.rows.offsets[1:]
    is_part = (segments.tokens < 0) & (starts < stops)
    starts, stops = starts[is_part], stops[is_part]
    counts = np.repeat(words.counts, np.diff(segments.row_segments))[is_part]
    return CountedWords(*gathered(words.values, starts, stops), counts)


def _check_sums(words: CountedWords, unit: str) -> None:
    if words.values.size > MAX_CHARACTERS:
        raise ValueError(
            f"word_counts: the words have {words.values.size} {unit}, more than {MAX_CHARACTERS}; drop the rarest words"
        )
    # The sum of floats is exact to many digits, so only those near the limit need Python's integers.
    lengths = np.diff(words.offsets)
    if np.dot(lengths.astype(np.float64), words.counts.astype(np.float64)) > MAX_TOTAL / 2:
        total = sum(length * count for length, count in zip(lengths.tolist(), words.counts.tolist(), strict=True))
        if total > MAX_TOTAL:
            raise ValueError(f"word_counts: the counts add up to {total} {unit}, more than 2**63 - 1; scale them down")


def _not_utf8(data: npt.NDArray[np.uint8], byte_offsets: npt.NDArray[np.int64], row: int) -> str:
    word = data[byte_offsets[row] : byte_offsets[row + 1]].tobytes()
    return f"word_counts: words must be UTF-8, got {reprlib.repr(word)}"
