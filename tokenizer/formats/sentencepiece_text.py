# SPDX-License-Identifier: Apache-2.0
"""sentencepiece's normalization and decoding for a model file: slow, in plain Python."""

import functools
from collections.abc import Sequence

from tokenmill.tokenizer.aligned import AlignedText
from tokenmill.tokenizer.decoders import characters_of
from tokenmill.tokenizer.formats.sentencepiece import NormalizerSpec, SentencePieceFile
from tokenmill.tokenizer.models.unigram import SPACE, PieceType
from tokenmill.tokenizer.normalizers.sentencepiece import SentencePieceNormalizer


def normalizer_of(model: SentencePieceFile) -> SentencePieceNormalizer:
    """Returns the normalizer of a model."""
    return _normalizer(
        model.normalizer,
        tuple(piece for _, piece in model.of_type(PieceType.USER_DEFINED)),
        model.trainer.treat_whitespace_as_suffix,
    )


def _normalizer(spec: NormalizerSpec, kept: tuple[str, ...] = (), at_end: bool = False) -> SentencePieceNormalizer:
    return SentencePieceNormalizer(
        precompiled_charsmap=spec.precompiled_charsmap,
        add_dummy_prefix=spec.add_dummy_prefix,
        remove_extra_whitespaces=spec.remove_extra_whitespaces,
        escape_whitespaces=spec.escape_whitespaces,
        treat_whitespace_as_suffix=at_end,
        user_defined_symbols=kept,
    )


_kept_normalizer = functools.lru_cache(maxsize=4)(normalizer_of)
"""Caches the last few normalizers, because checking a character map takes a moment."""


def normalize(text: str, model: SentencePieceFile) -> str:
    """Normalizes a text as sentencepiece does before its model, like `sp.normalize(text)`; slow."""
    return _kept_normalizer(model).normalize_aligned(AlignedText.original(text)).text


def decode(ids: Sequence[int], model: SentencePieceFile) -> str:
    """Decodes ids to text.

    Control pieces become nothing, the unknown piece `unk_surface`, byte pieces their bytes (each that is not part of
    valid UTF-8 becomes U+FFFD), "▁" a space. If normalization puts a "▁" at the start, that is removed; if it removes
    extra spaces, all "▁" in front of the text are.

    Raises:
      ValueError: if an id belongs to no piece.

    Source: sentencepiece `sentencepiece_processor.cc`, `Decode`.
    """
    spec = model.normalizer
    strip = spec.add_dummy_prefix or spec.remove_extra_whitespaces
    out = ""
    pending = bytearray()
    at_start, seen_space = True, False
    if any(not 0 <= i < len(model.pieces) for i in ids):
        wrong = next(i for i in ids if not 0 <= i < len(model.pieces))
        raise ValueError(f"id {wrong} belongs to no piece, there are {len(model.pieces)}")
    for i in [*ids, -1]:
        kind = PieceType.UNUSED if i < 0 else model.types[i]
        if kind == PieceType.BYTE:
            pending.append(int(model.pieces[i][3:5], 16))
            continue
        out += characters_of(pending)
        pending.clear()
        if i < 0:
            break
        if seen_space or out:
            at_start = False
        seen_space = False
        piece = model.pieces[i]
        if kind == PieceType.CONTROL:
            continue
        if kind == PieceType.UNKNOWN:
            out += model.trainer.unk_surface
            continue
        if at_start and strip and piece.startswith(SPACE):
            piece = piece.removeprefix(SPACE)
            # If extra spaces are removed, the next piece may lose its "▁" too.
            seen_space = not spec.remove_extra_whitespaces
        out += piece.replace(SPACE, " ")
    if model.denormalizer is not None and model.denormalizer.precompiled_charsmap:
        out = _normalizer(model.denormalizer).normalize_aligned(AlignedText.original(out)).text
    return out
