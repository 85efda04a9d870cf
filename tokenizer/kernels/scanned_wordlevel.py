# SPDX-License-Identifier: Apache-2.0
"""WordLevel fused with the scanners that are in front of it; every kernel has the name of its scanner."""

from tokenizer.kernels import ascii_blocks, scanners
from tokenizer.kernels.compiling import kernel, kernel_part
from tokenizer.kernels.scanned_words import encode_apart, encode_automata, encode_joined, encode_listed
from tokenizer.kernels.word_encoding import encode_word
from tokenizer.kernels.words_wordlevel import tokenize


@kernel_part
def _encode_found(data, i, stop, n_readable, is_asked, model, model_scratch, work, tallying, o):
    return encode_listed(
        encode_word, tokenize, data, i, stop, n_readable, is_asked, model, model_scratch, work, tallying, o
    )


@kernel
def gpt2(classes, rows, added, model, model_scratch, work, tallying):
    return encode_joined(
        scanners.next_gpt2, ascii_blocks.gpt2_starts, _encode_found,
        classes, rows, added, model, model_scratch, work, tallying,
    )  # fmt: skip


@kernel
def nonspace(classes, rows, added, model, model_scratch, work, tallying):
    return encode_apart(
        scanners.next_nonspace, ascii_blocks.nonspace_starts, ascii_blocks.nonspace_stops, _encode_found,
        classes, rows, added, model, model_scratch, work, tallying,
    )  # fmt: skip


@kernel
def unicode_words(classes, rows, added, model, model_scratch, work, tallying):
    return encode_apart(
        scanners.next_unicode_words, ascii_blocks.unicode_words_starts, ascii_blocks.unicode_words_stops, _encode_found,
        classes, rows, added, model, model_scratch, work, tallying,
    )  # fmt: skip


@kernel
def bert(classes, rows, added, model, model_scratch, work, tallying):
    return encode_apart(
        scanners.next_bert, ascii_blocks.bert_starts, ascii_blocks.bert_stops, _encode_found,
        classes, rows, added, model, model_scratch, work, tallying,
    )  # fmt: skip


@kernel
def automata(classes, rows, added, model, model_scratch, work, tallying):
    return encode_automata(_encode_found, classes, rows, added, model, model_scratch, work, tallying)
