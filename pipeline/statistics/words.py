# SPDX-License-Identifier: Apache-2.0
"""Spaced words: the words between white space, as `str.split` cuts them, so the same ones for all tokenizers.

Pre-tokens, in contrast, depend on the tokenizer. So tokens per spaced word is a number that compares tokenizers.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tokenmill.pipeline.columns import children
from tokenmill.pipeline.statistics.words_kernels import READS, count_characters_and_words
from tokenmill.tokenizer import Tokenizer
from tokenmill.tokenizer.reach import encode_parts

Ints = npt.NDArray[np.int64]


def count(texts: pa.Array) -> tuple[Ints, Ints]:
    """Returns the characters and the spaced words of each text of a column without nulls, int64[n] each."""
    offsets, values = children(texts)
    data = values.to_numpy()
    end = np.zeros(2 * READS, np.uint8)
    last = data[-READS:]
    end[: last.size] = last
    for array in (offsets, data, end):
        array.flags.writeable = False
    n_characters, n_words = np.empty(len(texts), np.int64), np.empty(len(texts), np.int64)
    count_characters_and_words(data, offsets, end, n_characters, n_words)
    return n_characters, n_words


def split(texts: pa.Array) -> tuple[pa.LargeStringArray, Ints]:
    """Returns the spaced words of all texts, and int64[n_words]: the index of the text of each."""
    lists = _lists(texts.cast(pa.large_string()))
    words, rows = pc.list_flatten(lists), pc.list_parent_indices(lists)
    is_word = pc.not_equal(words, "")  # a text without a word has an empty one
    return words.filter(is_word), rows.filter(is_word).to_numpy()


def join(texts: pa.LargeStringArray) -> pa.LargeStringArray:
    """Returns texts without their white space."""
    return pc.binary_join(_lists(texts), pa.scalar("", texts.type))


def _lists(texts: pa.LargeStringArray) -> pa.ListArray:
    # If a text ends in white space, utf8_split_whitespace of pyarrow 25 reads beyond the text.
    return pc.utf8_split_whitespace(pc.utf8_trim_whitespace(texts))


class Encoded(NamedTuple):
    """How many tokens words become, int64[n] each; -1 where the tokenizer fails."""

    alone: Ints
    """Tokens of each word as a text by itself."""
    in_text: Ints
    """Tokens of each word after a space, as byte-level vocabularies spell words, or alone, whichever takes fewer."""
    n_unknown: Ints
    """Unknown tokens among those of `alone`."""

    @property
    def is_whole(self) -> npt.NDArray[np.bool_]:
        """bool[n]: which words are kept as one token; an unknown token does not count."""
        return (self.in_text == 1) & (self.n_unknown == 0)


def encode(tokenizer: Tokenizer, words: pa.Array) -> Encoded:
    """Returns how many tokens a tokenizer makes of words."""
    alone, n_unknown = encode_each(tokenizer, words)
    in_text, several = alone.copy(), np.flatnonzero(alone > 1)
    behind_space = pc.binary_join_element_wise(
        pa.scalar(" ", words.type), words.take(pa.array(several)), pa.scalar("", words.type)
    )
    in_text[several] = np.minimum(alone[several], encode_each(tokenizer, behind_space)[0])
    return Encoded(alone, in_text, n_unknown)


def encode_each(tokenizer: Tokenizer, words: pa.Array) -> tuple[Ints, Ints]:
    """Returns how many tokens each word becomes as a text of its own, and how many of them are unknown, int64[n] each.

    Both are -1 where the tokenizer fails.
    """
    failed = np.array([-1])
    parts = [
        (failed, failed) if ids is None else (np.diff(ids.offsets.to_numpy()), unknown(tokenizer, ids))
        for ids in encode_parts(tokenizer, words)
    ]
    sizes, n_unknown = (np.concatenate(column) for column in zip(*parts, strict=True))
    return sizes, n_unknown


def unknown(tokenizer: Tokenizer, ids: pa.LargeListArray) -> Ints:
    """Returns how many unknown tokens each row has, int64[n]."""
    if tokenizer.unk_token_id is None:
        return np.zeros(len(ids), np.int64)
    values, offsets = ids.values.to_numpy(), ids.offsets.to_numpy()
    before = np.concatenate([[0], np.cumsum(values == tokenizer.unk_token_id)])
    return np.diff(before[offsets])
