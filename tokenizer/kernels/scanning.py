# SPDX-License-Identifier: Apache-2.0
"""Kernels that are made of parts: those that find words by patterns and count or encode them, and those of each model.

Kernels are made and compiled when they are first asked for, and are named after their parts. Patterns are data: one
kernel serves them all, and another one those that drop some of a text.

Its reference implementation is `tokenmill.tokenizer.pre_tokenizers.patterns.find_segments`, as to how words are found;
`tests/tokenizer/pre_tokenizers/test_automata.py` compares them.
"""

import functools
from typing import Any, NamedTuple

from tokenmill.tokenizer.compiling.kernel import kernel_part, made_kernel
from tokenmill.tokenizer.compiling.references import refer
from tokenmill.tokenizer.kernels import pattern_spans, spans, word_models
from tokenmill.tokenizer.kernels.automata import start_call
from tokenmill.tokenizer.kernels.encode_loop import (
    APART,
    FLAGGED,
    JOINED,
    emit_all,
    encode_rows,
    nothing_at_end,
    tally_has_room,
)
from tokenmill.tokenizer.kernels.word_counting import NO_ADDED, NO_MODEL, count_all, miss_count
from tokenmill.tokenizer.kernels.word_models import align_words, count_swallowed


class ModelParts(NamedTuple):
    """The functions of a model in the encode loop."""

    miss: Any
    """A kernel, see `word_models.miss_by`."""
    tokenize: Any
    """See `word_models`."""
    cut: Any = None
    """`cut(data, at, stop, model, tallying)`, see `pattern_spans.spans_of_patterns`; None if words are not cut."""


MODELS = {
    "bpe": ModelParts(word_models.miss, word_models.tokenize, word_models.next_cut),
    "unigram": ModelParts(word_models.miss_unigram, word_models.tokenize_unigram),
    "wordlevel": ModelParts(word_models.miss_wordlevel, word_models.tokenize_wordlevel),
    "wordpiece": ModelParts(word_models.miss_wordpiece, word_models.tokenize_wordpiece),
}


@functools.cache
def encode_kernel(model: str, *, are_apart: bool, flagged: bool = False) -> Any:
    """Makes the kernel that finds words by patterns and encodes them with a model.

    Args:
      model: a name in `MODELS`.
      are_apart: whether the patterns drop some of a text.
      flagged: whether the last part of a word has other ids than the same bytes before another part.

    Returns:
      A kernel `encode(model, rows, added, cuts, model_scratch, work) -> whether all is done`, see
      `encode_loop.encode_rows`; rows: ragged.Ragged of bytes; cuts: automata.Cuts.
    """
    kind = FLAGGED if flagged else APART if are_apart else JOINED
    cut, miss = MODELS[model].cut, MODELS[model].miss
    next_spans = pattern_spans.spans_of_patterns(kind, are_apart, cut)

    def encode(model, rows, added, cuts, model_scratch, work):
        """See `encode_loop.encode_rows`; rows: ragged.Ragged of bytes; cuts: automata.Cuts; work: encode_loop.Work.

        `cuts` and `work` are changed.
        """
        data, offsets = rows
        start_call(cuts, work.position, offsets)
        return encode_rows(
            next_spans, kind, tally_has_room, emit_all, miss, nothing_at_end,
            refer((data, model, model_scratch, work)), data, offsets, added, refer((data, cuts, offsets)), model, work,
        )  # fmt: skip

    name = f"encode_{'apart' if are_apart else 'joined'}_{model}{'_flagged' * flagged}"
    return made_kernel(name, encode, encode_rows, miss, start_call, next_spans, cut or spans.never_cut)


@functools.cache
def encode_found_kernel(model: str, *, flagged: bool = False) -> Any:
    """Makes the kernel that encodes words that have been found already; flagged: see `encode_kernel`.

    Returns:
      A kernel `encode(model, words, added, model_scratch, work) -> whether all is done`; words: words.Words.
    """
    miss = MODELS[model].miss
    cuts, cut = MODELS[model].cut is not None, MODELS[model].cut or spans.never_cut
    kind = FLAGGED if flagged else APART

    @kernel_part
    def next_spans(data, i, inner, end, words, model, work, n, n_readable, o):
        return spans.found_spans(kind, cuts, cut, words, i, inner, end, model, work, n, o)

    def encode(model, words, added, model_scratch, work):
        """See `encode_loop.encode_rows`; words: words.Words; work: encode_loop.Work, changed."""
        data, _, _, row_offsets = words
        return encode_rows(
            next_spans, kind, tally_has_room, emit_all, miss, nothing_at_end,
            refer((data, model, model_scratch, work)), data, row_offsets, added, words, model, work,
        )  # fmt: skip

    return made_kernel(f"encode_found_{model}{'_flagged' * flagged}", encode, encode_rows, miss, spans.found_spans, cut)


@functools.cache
def align_kernel(model: str) -> Any:
    """Makes the kernel `align(words, model, model_scratch, scratch, out, ends, numbers)`, see `word_models`."""
    tokenize = MODELS[model].tokenize

    def align(words, model, model_scratch, scratch, out, ends, numbers):
        """See `word_models.align_words`."""
        return align_words(tokenize, words, model, model_scratch, scratch, out, ends, numbers)

    return made_kernel(f"align_{model}", align, align_words, tokenize)


@functools.cache
def swallowed_kernel(model: str) -> Any:
    """Makes the kernel that counts the characters that unknown tokens swallow, see `word_models.count_swallowed`."""
    tokenize = MODELS[model].tokenize

    def count(words, counts, model, model_scratch, scratch, out, unk_id, characters):
        """See `word_models.count_swallowed`."""
        count_swallowed(tokenize, words, counts, model, model_scratch, scratch, out, unk_id, characters)

    return made_kernel(f"count_swallowed_{model}", count, count_swallowed, tokenize)


@functools.cache
def count_kernel(*, are_apart: bool) -> Any:
    """Makes the kernel that finds words by patterns and counts them; are_apart: see `encode_kernel`.

    Returns:
      A kernel `count(rows, cuts, work) -> whether all is done`, see `encode_loop.encode_rows` and `word_counting`.
    """
    kind = APART if are_apart else JOINED
    next_spans = pattern_spans.spans_of_patterns(kind, are_apart, None)

    def count(rows, cuts, work):
        """See `encode_loop.encode_rows`; rows: ragged.Ragged of bytes; cuts: automata.Cuts; work: encode_loop.Work.

        `cuts` and `work` are changed.
        """
        data, offsets = rows
        start_call(cuts, work.position, offsets)
        return encode_rows(
            next_spans, kind, tally_has_room, count_all, miss_count, nothing_at_end, refer((data, work)), data,
            offsets, NO_ADDED, refer((data, cuts, offsets)), NO_MODEL, work,
        )  # fmt: skip

    name = f"count_{'apart' if are_apart else 'joined'}"
    return made_kernel(name, count, encode_rows, count_all, start_call, next_spans)
