# SPDX-License-Identifier: Apache-2.0
"""Which tokens of conversations are trained: the spans of `spans.Marker`, in characters, mapped to tokens."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tokenmill.tokenizer.chat.spans import Span


class TokenMask(NamedTuple):
    """Which tokens of a column of texts are trained."""

    trained: npt.NDArray[np.bool_]
    """bool[n_tokens]."""
    n_straddling: int
    """Trained tokens with bytes on both sides of the border of a span."""
    by_source: npt.NDArray[np.int64]
    """int64[n_sources + 1]: how many tokens begin in each source; the last: in none."""


def weigh_tokens(
    tokenizer: Any, texts: pa.Array, ids: pa.LargeListArray, steps: Sequence[Sequence[tuple[int, float]]]
) -> npt.NDArray[np.float32]:
    """Returns float32[n_tokens]: the weight where the last byte of each token is.

    Args:
      tokenizer, texts, ids: as for `mask_tokens`.
      steps: for each text (character, weight), in order: the weight from there on; 1 before the first.
    """
    _, stops = tokenizer.token_offsets(texts, ids)
    found = np.ones(len(stops), np.float32)
    bounds = ids.offsets.to_numpy()
    for first, last, text, its in zip(bounds[:-1], bounds[1:], texts.to_pylist(), steps, strict=True):
        if its:
            places = byte_places(text, [place for place, _ in its])
            at = np.searchsorted(places, stops[first:last] - 1, "right")
            found[first:last] = np.array([1.0, *(weight for _, weight in its)], np.float32)[at]
    return found


def byte_places(text: str, places: Sequence[int]) -> list[int]:
    """Returns places in a text in UTF-8 bytes instead of characters; they are in order."""
    if text.isascii():
        return list(places)
    found, before, n_bytes = [], 0, 0
    for place in places:
        n_bytes += len(text[before:place].encode()) if place >= before else -len(text[place:before].encode())
        before = place
        found.append(n_bytes)
    return found


def mask_tokens(
    tokenizer: Any,
    texts: pa.Array,
    ids: pa.LargeListArray,
    spans: Sequence[Sequence[Span]],
    sources: Sequence[Sequence[tuple[int, int, int]]],
    n_sources: int,
) -> TokenMask:
    """Finds the tokens that are trained: those with at least one byte in a span.

    So a token that straddles the border of a span is trained, as `return_assistant_tokens_mask` of `transformers` has
    it; it is counted.

    Args:
      tokenizer: the `Tokenizer`.
      texts: string[n], without nulls.
      ids: their tokens, as `encode_bare` returns them.
      spans: for each text the trained characters, in order.
      sources: for each text (start, stop, source) of characters, in order.
      n_sources: sources are from 0 to below this.
    """
    starts, stops = tokenizer.token_offsets(texts, ids)
    sizes = np.array([len(text.as_buffer()) for text in texts], np.int64) if len(texts) else np.zeros(0, np.int64)
    first = np.concatenate(([0], np.cumsum(sizes)))
    edges: list[int] = []
    source_of = np.full(first[-1] + 1, n_sources, np.int8)
    for at, text, of_text, from_text in zip(first.tolist(), texts.to_pylist(), spans, sources, strict=False):
        edges += [at + place for place in byte_places(text, [place for span in of_text for place in span])]
        places = byte_places(text, [place for start, stop, _ in from_text for place in (start, stop)])
        for start, stop, (_, _, source) in zip(places[::2], places[1::2], from_text, strict=True):
            source_of[at + start : at + stop] = source
    base = np.repeat(first[:-1], np.diff(ids.offsets.to_numpy()))
    starts, stops = base + starts, base + stops
    begins, ends = np.array(edges, np.int64).reshape(-1, 2).T
    # Spans are in order, and each token is compared with the first that ends behind its beginning. Tokens are in the
    # order of their beginnings alone: two may take the same white space.
    of_token = np.searchsorted(ends, starts, "right")
    begins, ends = (np.append(edge, first[-1] + 1)[of_token] for edge in (begins, ends))
    trained = (begins < stops) & (stops > starts)
    n_straddling = int((trained & ((starts < begins) | (stops > ends))).sum())
    by_source = np.bincount(source_of[starts], minlength=n_sources + 1)
    return TokenMask(trained, n_straddling, by_source)
