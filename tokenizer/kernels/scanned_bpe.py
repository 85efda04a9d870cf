# SPDX-License-Identifier: Apache-2.0
"""BPE fused with each scanner: one kernel per pattern that byte-level models ship, from raw bytes to ids.

Every kernel is `word_encoding.encode_scanned` for its scanner; its name is the scanner's.
"""

from tokenizer.kernels import ascii_blocks, scanners
from tokenizer.kernels.compiling import kernel, kernel_part
from tokenizer.kernels.scanners_parts import skip_spaces
from tokenizer.kernels.word_encoding import encode_scanned
from tokenizer.kernels.words_bpe import next_cut, tokenize


@kernel_part
def _nothing_between(data, i, end, classes):
    return i


@kernel
def gpt2(classes, rows, added, model, model_scratch, work, tallying):
    return encode_scanned(
        tokenize, next_cut, scanners.next_gpt2, _nothing_between, ascii_blocks.gpt2_starts,
        classes, rows, added, model, model_scratch, work, tallying,
    )  # fmt: skip


@kernel
def gpt2_digits(classes, rows, added, model, model_scratch, work, tallying):
    return encode_scanned(
        tokenize, next_cut, scanners.next_gpt2_digits, _nothing_between, ascii_blocks.no_starts,
        classes, rows, added, model, model_scratch, work, tallying,
    )  # fmt: skip


@kernel
def cl100k(classes, rows, added, model, model_scratch, work, tallying):
    return encode_scanned(
        tokenize, next_cut, scanners.next_cl100k, _nothing_between, ascii_blocks.cl100k_starts,
        classes, rows, added, model, model_scratch, work, tallying,
    )  # fmt: skip


@kernel
def cl100k_ascii(classes, rows, added, model, model_scratch, work, tallying):
    return encode_scanned(
        tokenize, next_cut, scanners.next_cl100k_ascii, _nothing_between, ascii_blocks.cl100k_starts,
        classes, rows, added, model, model_scratch, work, tallying,
    )  # fmt: skip


@kernel
def cl100k_tiktoken(classes, rows, added, model, model_scratch, work, tallying):
    return encode_scanned(
        tokenize, next_cut, scanners.next_cl100k_tiktoken, _nothing_between, ascii_blocks.cl100k_starts,
        classes, rows, added, model, model_scratch, work, tallying,
    )  # fmt: skip


@kernel
def cl100k_ruby(classes, rows, added, model, model_scratch, work, tallying):
    return encode_scanned(
        tokenize, next_cut, scanners.next_cl100k_ruby, _nothing_between, ascii_blocks.cl100k_ruby_starts,
        classes, rows, added, model, model_scratch, work, tallying,
    )  # fmt: skip


@kernel
def qwen2(classes, rows, added, model, model_scratch, work, tallying):
    return encode_scanned(
        tokenize, next_cut, scanners.next_qwen2, _nothing_between, ascii_blocks.qwen2_starts,
        classes, rows, added, model, model_scratch, work, tallying,
    )  # fmt: skip


@kernel
def qwen2_ascii(classes, rows, added, model, model_scratch, work, tallying):
    return encode_scanned(
        tokenize, next_cut, scanners.next_qwen2_ascii, _nothing_between, ascii_blocks.qwen2_starts,
        classes, rows, added, model, model_scratch, work, tallying,
    )  # fmt: skip


@kernel
def qwen35(classes, rows, added, model, model_scratch, work, tallying):
    return encode_scanned(
        tokenize, next_cut, scanners.next_qwen35, _nothing_between, ascii_blocks.qwen2_starts,
        classes, rows, added, model, model_scratch, work, tallying,
    )  # fmt: skip


@kernel
def o200k(classes, rows, added, model, model_scratch, work, tallying):
    return encode_scanned(
        tokenize, next_cut, scanners.next_o200k, _nothing_between, ascii_blocks.o200k_starts,
        classes, rows, added, model, model_scratch, work, tallying,
    )  # fmt: skip


@kernel
def tekken(classes, rows, added, model, model_scratch, work, tallying):
    return encode_scanned(
        tokenize, next_cut, scanners.next_tekken, _nothing_between, ascii_blocks.tekken_starts,
        classes, rows, added, model, model_scratch, work, tallying,
    )  # fmt: skip


@kernel
def deepseek(classes, rows, added, model, model_scratch, work, tallying):
    return encode_scanned(
        tokenize, next_cut, scanners.next_deepseek, _nothing_between, ascii_blocks.no_starts,
        classes, rows, added, model, model_scratch, work, tallying,
    )  # fmt: skip


@kernel
def clip(classes, rows, added, model, model_scratch, work, tallying):
    return encode_scanned(
        tokenize, next_cut, scanners.next_clip, skip_spaces, ascii_blocks.no_starts,
        classes, rows, added, model, model_scratch, work, tallying,
    )  # fmt: skip


@kernel
def clip_openai(classes, rows, added, model, model_scratch, work, tallying):
    return encode_scanned(
        tokenize, next_cut, scanners.next_clip_openai, skip_spaces, ascii_blocks.no_starts,
        classes, rows, added, model, model_scratch, work, tallying,
    )  # fmt: skip


@kernel
def nonspace(classes, rows, added, model, model_scratch, work, tallying):
    return encode_scanned(
        tokenize, next_cut, scanners.next_nonspace, skip_spaces, ascii_blocks.no_starts,
        classes, rows, added, model, model_scratch, work, tallying,
    )  # fmt: skip


@kernel
def unicode_words(classes, rows, added, model, model_scratch, work, tallying):
    return encode_scanned(
        tokenize, next_cut, scanners.next_unicode_words, skip_spaces, ascii_blocks.no_starts,
        classes, rows, added, model, model_scratch, work, tallying,
    )  # fmt: skip
