# SPDX-License-Identifier: Apache-2.0
"""Scanners over columns: every pre-token of every piece of text, as where it starts and stops.

All kernels take `values` uint8[n], pieces `values[starts[k]:stops[k]]`, not empty, and fill `out_starts`, `out_stops`
int64 with the pre-tokens and `counts` int64[n_pieces + 1] with how many there are up to each piece; `counts[0]` must
be 0. A pre-token has a byte of its own, so there are no more of them than bytes in the pieces.
"""

from tokenizer.kernels import scanners
from tokenizer.kernels.automata import next_automata
from tokenizer.kernels.compiling import kernel, kernel_part
from tokenizer.kernels.scanners_parts import skip_spaces
from tokenizer.kernels.utf8 import decode_utf8


@kernel_part
def _split(next_one, drops_spaces, values, starts, stops, classes, out_starts, out_stops, counts):
    n = 0
    for k in range(starts.size):
        i = starts[k]
        end = stops[k]
        while i < end:
            if drops_spaces:
                i = skip_spaces(values, i, end, classes)
                if i >= end:
                    break
            stop = next_one(values, i, end, classes)
            out_starts[n] = i
            out_stops[n] = stop
            n += 1
            i = stop
        counts[k + 1] = n


@kernel
def gpt2(values, starts, stops, classes, out_starts, out_stops, counts):
    """Splits with `scanners.next_gpt2`."""
    _split(scanners.next_gpt2, False, values, starts, stops, classes, out_starts, out_stops, counts)


@kernel
def gpt2_digits(values, starts, stops, classes, out_starts, out_stops, counts):
    """Splits with `scanners.next_gpt2_digits`."""
    _split(scanners.next_gpt2_digits, False, values, starts, stops, classes, out_starts, out_stops, counts)


@kernel
def cl100k(values, starts, stops, classes, out_starts, out_stops, counts):
    """Splits with `scanners.next_cl100k`."""
    _split(scanners.next_cl100k, False, values, starts, stops, classes, out_starts, out_stops, counts)


@kernel
def cl100k_ascii(values, starts, stops, classes, out_starts, out_stops, counts):
    """Splits with `scanners.next_cl100k_ascii`."""
    _split(scanners.next_cl100k_ascii, False, values, starts, stops, classes, out_starts, out_stops, counts)


@kernel
def cl100k_tiktoken(values, starts, stops, classes, out_starts, out_stops, counts):
    """Splits with `scanners.next_cl100k_tiktoken`."""
    _split(scanners.next_cl100k_tiktoken, False, values, starts, stops, classes, out_starts, out_stops, counts)


@kernel
def cl100k_ruby(values, starts, stops, classes, out_starts, out_stops, counts):
    """Splits with `scanners.next_cl100k_ruby`."""
    _split(scanners.next_cl100k_ruby, False, values, starts, stops, classes, out_starts, out_stops, counts)


@kernel
def qwen2(values, starts, stops, classes, out_starts, out_stops, counts):
    """Splits with `scanners.next_qwen2`."""
    _split(scanners.next_qwen2, False, values, starts, stops, classes, out_starts, out_stops, counts)


@kernel
def qwen2_ascii(values, starts, stops, classes, out_starts, out_stops, counts):
    """Splits with `scanners.next_qwen2_ascii`."""
    _split(scanners.next_qwen2_ascii, False, values, starts, stops, classes, out_starts, out_stops, counts)


@kernel
def qwen35(values, starts, stops, classes, out_starts, out_stops, counts):
    """Splits with `scanners.next_qwen35`."""
    _split(scanners.next_qwen35, False, values, starts, stops, classes, out_starts, out_stops, counts)


@kernel
def o200k(values, starts, stops, classes, out_starts, out_stops, counts):
    """Splits with `scanners.next_o200k`."""
    _split(scanners.next_o200k, False, values, starts, stops, classes, out_starts, out_stops, counts)


@kernel
def tekken(values, starts, stops, classes, out_starts, out_stops, counts):
    """Splits with `scanners.next_tekken`."""
    _split(scanners.next_tekken, False, values, starts, stops, classes, out_starts, out_stops, counts)


@kernel
def kimi_k2(values, starts, stops, classes, out_starts, out_stops, counts):
    """Splits with `scanners.next_kimi_k2`."""
    _split(scanners.next_kimi_k2, False, values, starts, stops, classes, out_starts, out_stops, counts)


@kernel
def deepseek(values, starts, stops, classes, out_starts, out_stops, counts):
    """Splits with `scanners.next_deepseek`."""
    _split(scanners.next_deepseek, False, values, starts, stops, classes, out_starts, out_stops, counts)


@kernel
def bloom(values, starts, stops, classes, out_starts, out_stops, counts):
    """Splits with `scanners.next_bloom`."""
    _split(scanners.next_bloom, False, values, starts, stops, classes, out_starts, out_stops, counts)


@kernel
def clip(values, starts, stops, classes, out_starts, out_stops, counts):
    """Splits with `scanners.next_clip`."""
    _split(scanners.next_clip, True, values, starts, stops, classes, out_starts, out_stops, counts)


@kernel
def clip_openai(values, starts, stops, classes, out_starts, out_stops, counts):
    """Splits with `scanners.next_clip_openai`."""
    _split(scanners.next_clip_openai, True, values, starts, stops, classes, out_starts, out_stops, counts)


@kernel
def nonspace(values, starts, stops, classes, out_starts, out_stops, counts):
    """Splits with `scanners.next_nonspace`."""
    _split(scanners.next_nonspace, True, values, starts, stops, classes, out_starts, out_stops, counts)


@kernel
def unicode_words(values, starts, stops, classes, out_starts, out_stops, counts):
    """Splits with `scanners.next_unicode_words`."""
    _split(scanners.next_unicode_words, True, values, starts, stops, classes, out_starts, out_stops, counts)


@kernel
def digits(values, starts, stops, classes, out_starts, out_stops, counts):
    """Splits with `scanners.next_digits`."""
    _split(scanners.next_digits, False, values, starts, stops, classes, out_starts, out_stops, counts)


@kernel
def digit(values, starts, stops, classes, out_starts, out_stops, counts):
    """Splits with `scanners.next_digit`."""
    _split(scanners.next_digit, False, values, starts, stops, classes, out_starts, out_stops, counts)


@kernel
def bert(values, starts, stops, classes, out_starts, out_stops, counts):
    """Splits with `scanners.next_bert`."""
    _split(scanners.next_bert, True, values, starts, stops, classes, out_starts, out_stops, counts)


@kernel
def automata(values, starts, stops, classes, out_starts, out_stops, counts):
    """Splits with `automata.next_automata`; `classes` is an `Automata`."""
    n = 0
    for k in range(starts.size):
        i = starts[k]
        while i < stops[k]:
            stop = next_automata(values, i, stops[k], classes)
            out_starts[n] = i
            out_stops[n] = stop
            n += 1
            i = stop
        counts[k + 1] = n


@kernel
def scripts(values, starts, stops, classes, out_starts, out_stops, counts):
    """Splits where the script changes, `classes` uint8[0x110000] holding the script of each code point, 0 for any.

    What precedes the first character of a script is dropped, as HF drops it.
    """
    n = 0
    for k in range(starts.size):
        i = starts[k]
        last = 0
        while i < stops[k]:
            if values[i] < 128:
                script = classes[values[i]]
                after = i + 1
            else:
                code_point, after = decode_utf8(values, i)
                script = classes[code_point]
            if script != 0 and script != last:
                if last != 0:
                    out_stops[n] = i
                    n += 1
                out_starts[n] = i
                last = script
            i = after
        if last != 0:
            out_stops[n] = i
            n += 1
        counts[k + 1] = n


@kernel
def fixed_length(values, starts, stops, length, out_starts, out_stops, counts):
    """Splits after every `length` characters."""
    n = 0
    for k in range(starts.size):
        n_characters = 0
        for i in range(starts[k], stops[k]):
            if values[i] & 0xC0 == 0x80:
                continue
            if n_characters % length == 0:
                if n_characters > 0:
                    out_stops[n] = i
                    n += 1
                out_starts[n] = i
            n_characters += 1
        out_stops[n] = stops[k]
        n += 1
        counts[k + 1] = n
