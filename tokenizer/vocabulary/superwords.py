# SPDX-License-Identifier: Apache-2.0
"""`superwords`: a tokenizer whose words may be several, so that `extend` merges across spaces, as SuperBPE does."""

from tokenmill.tokenizer.core import Tokenizer
from tokenmill.tokenizer.pre_tokenizers import ByteLevel, Sequence, Split, is_byte_level
from tokenmill.tokenizer.pre_tokenizers.known_patterns import GPT2_PATTERN
from tokenmill.tokenizer.pre_tokenizers.sequence import flat


def superwords(tokenizer: Tokenizer, n: int = 4) -> Tokenizer:
    """Returns a tokenizer with the same ids, in whose counts up to `n` words with single spaces between are one.

    It cuts text as before, since no entry crosses a space yet: the first stage of SuperBPE. Count text with it, and
    `extend` is the second stage. The bound keeps counts finite, and a long text as fast as many short ones.

    Args:
      tokenizer: byte-level BPE whose pre-tokenizer is a pattern, as in GPT-2, Llama 3, Qwen.
      n: the most words, at least 2.

    Raises:
      ValueError: for another tokenizer, or an `n` out of range.

    Source: Liu et al. 2025, "SuperBPE: Space Travel for Language Models"; there nothing but a text's end is a bound.
    """
    if not 2 <= n <= 64:
        raise ValueError(f"n must be in 2..64, got {n!r}")
    steps = [] if tokenizer.pre_tokenizer is None else flat(tokenizer.pre_tokenizer)
    last = steps[-1] if steps else None
    if not isinstance(last, ByteLevel) or not is_byte_level(tokenizer.pre_tokenizer) or last.add_prefix_space:
        raise ValueError(
            f"superwords needs byte-level BPE without a space put in front, got {tokenizer.pre_tokenizer!r}"
        )
    *before, cut = [*steps[:-1], Split(GPT2_PATTERN, "isolated", is_regex=True)] if last.use_regex else steps[:-1]
    if before or not isinstance(cut, Split) or not cut.is_regex or cut.behavior != "isolated" or cut.invert:
        raise ValueError(f"superwords needs one pattern that words match, got {tokenizer.pre_tokenizer!r}")
    letters = r"[\p{L}\p{M}]" if r"\p{M}" in cut.pattern else r"\p{L}"
    pattern = rf" ?{letters}+(?: {letters}+){{1,{n - 1}}}|{cut.pattern}"
    split = Split(pattern, "isolated", is_regex=True, unicode=cut.unicode)
    return tokenizer.replace(pre_tokenizer=Sequence((split, ByteLevel(add_prefix_space=False, use_regex=False))))
