# SPDX-License-Identifier: Apache-2.0
"""sentencepiece's decoding of a model file, in plain Python."""

from collections.abc import Sequence

from tokenmill.tokenizer.decoders import characters_of
from tokenmill.tokenizer.formats.sentencepiece import SentencePieceFile
from tokenmill.tokenizer.models.unigram import SPACE, PieceType


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
    return out
