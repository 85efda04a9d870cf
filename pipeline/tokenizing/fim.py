# SPDX-License-Identifier: Apache-2.0
"""Fill in the middle: some documents are cut into prefix, middle and suffix, and the middle is put last.

Cuts are between characters of the text, so that a model learns to begin in the middle of a token, as in an editor; or
between tokens, if the config says so. No document has a piece of another.

Source: Bavarian et al., "Efficient Training of Language Models to Fill in the Middle", 2022, section 3: PSM and SPM.
"""

from collections.abc import Sequence
from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tokenmill.pipeline.config.output import FimConfig
from tokenmill.pipeline.hashing import FILLING, document_keys, mix
from tokenmill.tokenizer import Tally, Tokenizer, unchecked_text_rows
from tokenmill.tokenizer.reference_encoding import TextByText

TOKENS = {
    "prefix": ("<|fim_prefix|>", "<fim_prefix>", "<fim-prefix>", "<PRE>", "<|fim▁begin|>", "<｜fim▁begin｜>"),
    "suffix": ("<|fim_suffix|>", "<fim_suffix>", "<fim-suffix>", "<SUF>", "<|fim▁hole|>", "<｜fim▁hole｜>"),
    "middle": ("<|fim_middle|>", "<fim_middle>", "<fim-middle>", "<MID>", "<|fim▁end|>", "<｜fim▁end｜>"),
}
"""Names under which the tokens of models are found if the config does not name them."""


class FillInMiddle:
    """Encodes documents, some of them with their middle last."""

    def __init__(self, config: FimConfig, tokenizer: Tokenizer, ids: Sequence[int], room: int | None = None) -> None:
        """Takes what `of` found: the ids of the tokens in front of prefix, suffix and middle."""
        self._room = room
        self._config = config
        self._tokenizer = tokenizer
        self._ids = ids

    @classmethod
    def of(cls, config: FimConfig, tokenizer: Tokenizer, room: int | None = None) -> Self:
        """Finds the tokens of a tokenizer.

        A document of more than `room` tokens would be cut by what follows, and half of it would teach that a middle
        ends anywhere. So it stays as it is.

        Raises:
          ValueError: if it has no such tokens, or puts something in front of every piece of a text.
        """
        ids = []
        for role, known in TOKENS.items():
            given = getattr(config, role)
            found = [i for name in ([given] if given else known) if (i := tokenizer.token_to_id(name)) is not None]
            if not found:
                what = f"{given!r}: the tokenizer has no such token" if given else f"the tokenizer has none of {known}"
                raise ValueError(f"output.fim.{role}: {what}; name the token in front of the {role}")
            ids.append(found[0])
        if len({*ids}) < len(ids):
            named = ", ".join(f"{role} {tokenizer.id_to_token(i)!r}" for role, i in zip(TOKENS, ids, strict=True))
            raise ValueError(f"output.fim: {named}: must be three tokens, or a model cannot tell the parts apart")
        if config.level == "token":
            return cls(config, tokenizer, ids, room)
        piece = tokenizer.encode("a", add_special_tokens=False).ids
        if tokenizer.decode([*piece, *piece], skip_special_tokens=False) != "aa":
            what = "the tokenizer puts a space in front of every piece of a text"
            raise ValueError(f"output.fim: {what}; set level: token, or take another")
        return cls(config, tokenizer, ids, room)

    def encode(
        self,
        documents: pa.RecordBatch,
        text: pa.Array,
        names: Sequence[str],
        tally: Tally | None = None,
        by: TextByText | None = None,
    ) -> pa.LargeListArray:
        """Returns the tokens of documents.

        Args:
          documents: `schemas.DOCUMENTS`.
          text: string[n] or large_string[n], valid, no nulls: their texts.
          names: as for `document_keys`: what becomes of a document depends on its place and the seed alone.
          tally: as for `Tokenizer.encode_bare`.
          by: what encodes instead of the tokenizer; None: the tokenizer.
        """
        encode = self._tokenizer.encode_bare if by is None else by.encode_bare
        rows = unchecked_text_rows(text)
        values, offsets = rows.values, rows.offsets
        at_tokens = self._config.level == "token"
        if at_tokens:
            bare = encode(rows, tally)
            values, offsets = bare.values, bare.offsets.to_numpy()
        keys = document_keys(FILLING, self._config.seed, names, documents)
        is_chosen = keys < np.uint64(min(self._config.rate, 1 - 2**-53) * 2.0**64)
        is_chosen |= self._config.rate == 1
        sizes = np.diff(offsets)
        cuts = _chosen(sizes, mix(keys)) if at_tokens else cut(values, offsets, mix(keys))
        if self._room is not None:
            n_ids = sizes
            # As many tokens as bytes at most, unless a normalizer makes more of them.
            asked = is_chosen & (sizes + 3 > (self._room if self._tokenizer.normalizer is None else 0))
            if not at_tokens and asked.any():
                some = unchecked_text_rows(text.filter(pa.array(asked)))
                bounds = _bounds(some.offsets, cuts[asked])
                n_ids = np.zeros_like(sizes)
                ids = encode(some._replace(offsets=bounds))
                n_ids[asked] = np.diff(ids.offsets.to_numpy()[::3])
            is_chosen &= ~asked | (n_ids + 3 <= self._room)
        offsets = _bounds(offsets, np.where(is_chosen[:, None], cuts, sizes[:, None]))
        if at_tokens:
            pieces = pa.LargeListArray.from_arrays(pa.array(offsets), values)
        else:
            pieces = encode(rows._replace(offsets=offsets), tally)
        is_spm = (mix(mix(keys)) & np.uint64(1)).astype(bool) if self._config.mode == "both" else None
        if is_spm is None:
            is_spm = np.full(sizes.size, self._config.mode == "spm")
        return self._arranged(pieces, is_chosen, is_spm)

    def _arranged(
        self, pieces: pa.LargeListArray, is_chosen: npt.NDArray[np.bool_], is_spm: npt.NDArray[np.bool_]
    ) -> pa.LargeListArray:
        """Returns rows of pieces in their order, with the tokens in front of them."""
        n = is_chosen.size
        ends = pieces.offsets.to_numpy()
        values = np.concatenate([pieces.values.to_numpy(), np.array(self._ids, np.int32)])
        first = pieces.values.to_numpy().size  # where the three tokens are
        starts, sizes = ends[:-1].reshape(n, 3), np.diff(ends).reshape(n, 3)
        token = np.broadcast_to(np.array([first, first + 1, first + 2]), (n, 3))
        one, none = np.ones(n, np.int64), np.zeros(n, np.int64)
        prefix, middle, suffix = ((starts[:, i], sizes[:, i]) for i in range(3))
        pre, suf, mid = ((token[:, i], one) for i in range(3))
        # SPM as models are trained on it: its variant in which the middle follows the prefix without a token.
        psm = pre, prefix, suf, suffix, mid, middle
        spm = pre, (token[:, 1], one), suffix, mid, prefix, middle
        places = np.where(is_spm[:, None], np.column_stack([p for p, _ in spm]), np.column_stack([p for p, _ in psm]))
        lengths = np.where(is_spm[:, None], np.column_stack([s for _, s in spm]), np.column_stack([s for _, s in psm]))
        plain = np.column_stack([starts[:, 0], *[none] * 5]), np.column_stack([sizes[:, 0], *[none] * 5])
        places = np.where(is_chosen[:, None], places, plain[0])
        lengths = np.where(is_chosen[:, None], lengths, plain[1])
        flat, flat_places = lengths.ravel(), places.ravel()
        before = np.cumsum(flat) - flat
        taken = np.arange(int(flat.sum())) - np.repeat(before, flat) + np.repeat(flat_places, flat)
        offsets = np.concatenate(([0], np.cumsum(lengths.sum(axis=1))))
        return pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), pa.array(values[taken].astype(np.int32)))


def _bounds(offsets: npt.NDArray[np.int64], cuts: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Returns the offsets of pieces side by side: prefix, middle, suffix; of other documents the first piece is all."""
    bounds = np.column_stack([np.zeros_like(offsets[:-1]), cuts]) + offsets[:-1, None]
    return np.append(bounds.ravel(), offsets[-1]).astype(offsets.dtype)


def cut(
    values: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64], keys: npt.NDArray[np.uint64]
) -> npt.NDArray[np.int64]:
    """Returns int64[n, 2]: where the middle of each row begins and ends, in bytes, between two characters.

    Args:
      values: the rows, valid UTF-8.
      offsets: int64[n + 1], where they begin in `values`.
      keys: random numbers, one for each row.
    """
    places = _chosen(np.diff(offsets), keys) + offsets[:-1, None]
    # Back to the first byte of a character, at most three bytes away.
    padded = np.append(values, np.uint8(0))
    for _ in range(3):
        places -= (padded[places] & 0xC0 == 0x80) & (places < offsets[1:, None])
    return places - offsets[:-1, None]


def _chosen(sizes: npt.NDArray[np.int64], keys: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
    """Returns int64[n, 2]: two places in each row, in order, from 0 to its size."""
    chosen = [mix(keys ^ np.uint64(salt)) % (sizes.astype(np.int64) + 1).astype(np.uint64) for salt in (1, 2)]
    return np.sort(np.column_stack(chosen).astype(np.int64), axis=1)
