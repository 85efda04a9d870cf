# SPDX-License-Identifier: Apache-2.0
"""The scanners, and the kernels that are made of them: to split a column, to count words, to encode with any model.

A scanner finds where the pre-token that begins at a byte ends: `next_<name>(data, i, end, classes) -> stop`.
`data[i:end]` is valid UTF-8 and not empty, and the pre-token is `data[i:stop]`, `i < stop <= end`. `classes`,
uint8[0x110000], has the bits of each code point; `pre_tokenizers/scanner_patterns.py` says which table belongs to which
scanner. No scanner looks at the bytes before i, so pre-tokens may be found from any boundary on. None looks at the same
byte more than a few times, however long the text. Bytes after `end` may be read, never beyond the array, but do not
affect the result. A scanner may have functions that find where pre-tokens start and stop in a block of ASCII, see
`ascii_blocks`.

Each scanner is a line of `SCANNERS`. Kernels are made and compiled when they are first asked for, and are named after
their parts.

Its reference implementation is `tokenmill.tokenizer.pre_tokenizers.patterns.find_segments`;
`tests/parity/test_pre_tokenizers.py` compares them.
"""

import functools
from typing import Any, NamedTuple

from tokenmill.tokenizer.compiling.kernel import kernel_part, made_kernel
from tokenmill.tokenizer.compiling.references import refer
from tokenmill.tokenizer.kernels import scanner_cl100k, scanner_gpt2, scanner_words, spans, word_models
from tokenmill.tokenizer.kernels.ascii_blocks import no_starts
from tokenmill.tokenizer.kernels.automata import next_automata, next_referred, referred_starts
from tokenmill.tokenizer.kernels.encode_loop import (
    APART,
    FLAGGED,
    JOINED,
    emit_all,
    encode_rows,
    nothing_at_end,
    tally_has_room,
)
from tokenmill.tokenizer.kernels.scanners_parts import skip_spaces
from tokenmill.tokenizer.kernels.word_counting import NO_ADDED, NO_MODEL, count_all, miss_count
from tokenmill.tokenizer.kernels.word_models import align_words, count_swallowed


class ScannerParts(NamedTuple):
    """The functions of a scanner."""

    next_stop: Any
    starts: Any = no_starts
    stops: Any = None
    """None if words follow one another directly; otherwise white space separates them."""


SCANNERS = {
    "gpt2": ScannerParts(scanner_gpt2.next_gpt2, scanner_gpt2.gpt2_starts),
    "cl100k": ScannerParts(scanner_cl100k.next_cl100k, scanner_cl100k.cl100k_starts),
    "cl100k_ascii": ScannerParts(scanner_cl100k.next_cl100k_ascii, scanner_cl100k.cl100k_starts),
    "cl100k_tiktoken": ScannerParts(scanner_cl100k.next_cl100k_tiktoken, scanner_cl100k.cl100k_starts),
    "cl100k_ruby": ScannerParts(scanner_cl100k.next_cl100k_ruby, scanner_cl100k.cl100k_ruby_starts),
    "qwen2": ScannerParts(scanner_cl100k.next_qwen2, scanner_cl100k.qwen2_starts),
    "qwen2_ascii": ScannerParts(scanner_cl100k.next_qwen2_ascii, scanner_cl100k.qwen2_starts),
    "qwen35": ScannerParts(scanner_cl100k.next_qwen35, scanner_cl100k.qwen2_starts),
    "o200k": ScannerParts(scanner_cl100k.next_o200k, scanner_cl100k.o200k_starts),
    "clip": ScannerParts(scanner_gpt2.next_clip, scanner_gpt2.clip_starts, scanner_gpt2.clip_stops),
    "nonspace": ScannerParts(scanner_words.next_nonspace, scanner_words.nonspace_starts, scanner_words.nonspace_stops),
    "unicode_words": ScannerParts(
        scanner_words.next_unicode_words, scanner_words.unicode_words_starts, scanner_words.unicode_words_stops
    ),
    "bert": ScannerParts(scanner_words.next_bert, scanner_words.bert_starts, scanner_words.bert_stops),
}
AUTOMATA = "automata"
"""The name of the scanner that runs `automata.Automata`; its `classes` are an `Automata`."""


class ModelParts(NamedTuple):
    """The functions of a model in the encode loop."""

    miss: Any
    """A kernel, see `word_models.miss_by`."""
    tokenize: Any
    """See `word_models`."""
    cut: Any = None
    """`cut(data, at, stop, model, tallying)`, see `spans.scanned_spans`; None if words are not cut."""


MODELS = {
    "bpe": ModelParts(word_models.miss, word_models.tokenize, word_models.next_cut),
    "unigram": ModelParts(word_models.miss_unigram, word_models.tokenize_unigram),
    "wordlevel": ModelParts(word_models.miss_wordlevel, word_models.tokenize_wordlevel),
    "wordpiece": ModelParts(word_models.miss_wordpiece, word_models.tokenize_wordpiece),
}


@kernel_part
def _nothing_between(data, i, end, classes):
    return i


@kernel_part
def _automata_starts(data, i, end, reference):
    return referred_starts(no_starts, data, i, end, reference)


def _next_start(parts: ScannerParts) -> Any:
    return _nothing_between if parts.stops is None else skip_spaces


def _starts_of(word_starts: Any) -> Any:
    @kernel_part
    def find_starts(data, i, end, classes):
        return spans.ascii_starts(word_starts, data, i, end)

    return find_starts


def _spans_of(scanner: str, cut: Any, flagged: bool) -> tuple[Any, int, tuple[Any, ...]]:
    """Returns `next_spans` for the encode loop, the kind of spans, and the parts that it is made of."""
    cuts, cut = cut is not None, cut or spans.never_cut
    if scanner == AUTOMATA:
        parts = ScannerParts(next_referred)
        find_starts = _automata_starts
    else:
        parts = SCANNERS[scanner]
        find_starts = _starts_of(parts.starts)
    next_stop = parts.next_stop
    are_apart = parts.stops is not None
    kind = FLAGGED if flagged else APART if are_apart else JOINED
    next_start = _next_start(parts)
    word_stops = parts.stops or no_starts

    @kernel_part
    def next_spans(data, i, inner, end, classes, model, work, n, n_readable, o):
        return spans.scanned_spans(
            kind, are_apart, cuts, next_start, find_starts, word_stops, next_stop, cut, data, i, inner, end, classes,
            model, work, n, n_readable, o,
        )  # fmt: skip

    return next_spans, kind, (spans.scanned_spans, next_stop, parts.starts, word_stops, cut)


@functools.cache
def encode_kernel(scanner: str, model: str, *, flagged: bool = False) -> Any:
    """Makes the kernel that finds words with a scanner and encodes them with a model.

    Args:
      scanner: a name in `SCANNERS`, or AUTOMATA.
      model: a name in `MODELS`.
      flagged: whether the last part of a word has other ids than the same bytes before another part.

    Returns:
      A kernel `encode(model, rows, added, classes, model_scratch, work) -> whether all is done`, see
      `encode_loop.encode_rows`; rows: ragged.Ragged of bytes.
    """
    next_spans, kind, parts = _spans_of(scanner, MODELS[model].cut, flagged)
    miss = MODELS[model].miss
    if scanner == AUTOMATA:

        def encode(model, rows, added, classes, model_scratch, work):
            """See `encode_loop.encode_rows`; rows: ragged.Ragged of bytes; work: encode_loop.Work, changed."""
            data, offsets = rows
            return encode_rows(
                next_spans, kind, tally_has_room, emit_all, miss, nothing_at_end,
                refer((data, model, model_scratch, work)), data, offsets, added, refer((data, classes)), model, work,
            )  # fmt: skip

    else:

        def encode(model, rows, added, classes, model_scratch, work):
            """See `encode_loop.encode_rows`; rows: ragged.Ragged of bytes; work: encode_loop.Work, changed."""
            data, offsets = rows
            return encode_rows(
                next_spans, kind, tally_has_room, emit_all, miss, nothing_at_end,
                refer((data, model, model_scratch, work)), data, offsets, added, classes, model, work,
            )  # fmt: skip

    return made_kernel(f"encode_{scanner}_{model}{'_flagged' * flagged}", encode, encode_rows, miss, *parts)


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
def count_kernel(scanner: str) -> Any:
    """Makes the kernel that finds words with a scanner and counts them.

    Args:
      scanner: a name in `SCANNERS`.

    Returns:
      A kernel `count(rows, classes, work) -> whether all is done`, see `encode_loop.encode_rows` and `word_counting`.
    """
    next_spans, kind, parts = _spans_of(scanner, None, False)

    def count(rows, classes, work):
        """See `encode_loop.encode_rows`; rows: ragged.Ragged of bytes; work: encode_loop.Work, changed."""
        data, offsets = rows
        return encode_rows(
            next_spans, kind, tally_has_room, count_all, miss_count, nothing_at_end, refer((data, work)), data,
            offsets, NO_ADDED, classes, NO_MODEL, work,
        )  # fmt: skip

    return made_kernel(f"count_{scanner}", count, encode_rows, count_all, *parts)


@functools.cache
def split_kernel(scanner: str) -> Any:
    """Makes the kernel that finds the pre-tokens of pieces of text with a scanner, see `split_by`."""
    parts = ScannerParts(next_automata) if scanner == AUTOMATA else SCANNERS[scanner]
    next_start, next_stop = _next_start(parts), parts.next_stop

    def split(values, starts, stops, classes, out_starts, out_stops, counts):
        """See `split_by`."""
        split_by(next_start, next_stop, values, starts, stops, classes, out_starts, out_stops, counts)

    return made_kernel(f"split_{scanner}", split, split_by, next_stop)


@kernel_part
def split_by(next_start, next_stop, values, starts, stops, classes, out_starts, out_stops, counts):
    """Finds where every pre-token of every piece of text starts and stops.

    Args:
      next_start, next_stop: as in `spans.scanned_spans`.
      values: uint8[n]; starts, stops: int64[n_pieces]: the pieces `values[starts[k]:stops[k]]`, not empty.
      classes: uint8[0x110000], or Automata, as the scanner needs.
      out_starts, out_stops: int64[n_bytes], filled; no pre-token is empty, so there are no more than bytes.
      counts: int64[n_pieces + 1], filled with the number of pre-tokens before each piece; `counts[0]` must be 0.
    """
    n = 0
    for k in range(starts.size):
        i = starts[k]
        end = stops[k]
        while i < end:
            i = next_start(values, i, end, classes)
            if i >= end:
                break
            stop = next_stop(values, i, end, classes)
            out_starts[n] = i
            out_stops[n] = stop
            n += 1
            i = stop
        counts[k + 1] = n
