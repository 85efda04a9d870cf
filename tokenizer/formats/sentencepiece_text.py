# SPDX-License-Identifier: Apache-2.0
"""What sentencepiece does to a text before and after its model, for one model file: slow, in plain Python."""

import functools
from collections.abc import Sequence

from tokenizer.aligned import AlignedText
from tokenizer.decoders import characters_of
from tokenizer.formats.sentencepiece import NormalizerSpec, SentencePieceFile
from tokenizer.models.unigram import SPACE, PieceType
from tokenizer.normalizers.sentencepiece import SentencePieceNormalizer


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
"""The last few: checking a character map takes a moment."""


def normalize(text: str, model: SentencePieceFile) -> str:
    """Returns a text as sentencepiece's model sees it; the slow way, equal to `sp.normalize(text)`."""
    return _kept_normalizer(model).normalize_aligned(AlignedText.original(text)).text


def decode(ids: Sequence[int], model: SentencePieceFile) -> str:
    """Returns the text that ids stand for.

    Control pieces stand for nothing, the unknown piece for `unk_surface`, byte pieces for their bytes (each one that
    is not part of valid UTF-8 for U+FFFD), "▁" for a space. A "▁" at the start is left out where normalization puts
    one there; all of those in front of the text are where it removes extra spaces.

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
            # Where extra spaces are removed, the next piece may lose its own too.
            seen_space = not spec.remove_extra_whitespaces
        out += piece.replace(SPACE, " ")
    if model.denormalizer is not None and model.denormalizer.precompiled_charsmap:
        out = _normalizer(model.denormalizer).normalize_aligned(AlignedText.original(out)).text
    return out
