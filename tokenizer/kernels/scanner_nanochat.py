# SPDX-License-Identifier: Apache-2.0
"""The scanner of nanochat's pattern: cl100k's as tiktoken once had it, with at most two digits in a pre-token."""

from tokenizer.compiling.kernel import kernel_part
from tokenizer.kernels.scanner_cl100k import like_cl100k_starts, next_like_cl100k
from tokenizer.kernels.scanners_parts import LETTER

PATTERN = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,2}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
)


@kernel_part
def next_nanochat(data, i, end, classes):
    """Returns where the pre-token that begins at i ends."""
    return next_like_cl100k(data, i, end, classes, LETTER, 2, False, True)


@kernel_part
def nanochat_starts(data, i):
    """Returns where pre-tokens start in the 64 bytes from i on."""
    return like_cl100k_starts(data, i, 2)
