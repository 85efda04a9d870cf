# SPDX-License-Identifier: Apache-2.0
"""Counting words that a pre-tokenizer has found, and the characters of counted words."""

from tokenizer.kernels import word_encoding
from tokenizer.kernels.compiling import kernel
from tokenizer.kernels.utf8 import add_characters


@kernel
def count_words(words, counter, position):
    """Counts words until they are done or the counter is full.

    Args:
      words: words.Words; counter: caches.CounterArrays.
      position: int64[4], zeros to begin with; says where to go on.

    Returns:
      True when all words are done, False when the counter must grow first.
    """
    return word_encoding.count_words(words, counter, position)


@kernel
def count_characters(values, offsets, counts, characters):
    """Adds up how often each character occurs in words that occur `counts` times.

    Args:
      values uint8[n], offsets int64[n_words + 1]: words of valid UTF-8; counts: int64[n_words].
      characters: int64[0x110000], added to.
    """
    for i in range(counts.size):
        add_characters(values, offsets[i], offsets[i + 1], counts[i], characters)
