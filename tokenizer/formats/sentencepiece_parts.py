# SPDX-License-Identifier: Apache-2.0
"""A SentencePiece model as the parts of a `tokenizer.json`: normalizer, pre-tokenizer, model, added tokens, decoder.

Two readings of the same file:

- `exact_parts`: what gives sentencepiece's ids on every text. Its normalizer is a type of ours,
  `SentencePieceNormalizer`; its Unigram carries `piece_types`, its BPE `merge_ranks`, which HF ignores.
- `hf_parts`: HF's own types alone, as its converters choose them. HF then gives sentencepiece's ids on ordinary text,
  but not on every text: graphemes instead of longest match, double precision, words that each begin at zero, "▁" in
  the text.
"""

import base64
import itertools
import reprlib
from typing import Any, NamedTuple

from tokenizer.errors import TokenizerFileError
from tokenizer.formats.sentencepiece import BPE, CHAR, UNIGRAM, SentencePieceFile
from tokenizer.formats.sentencepiece_json import SPACE, hf_steps
from tokenizer.models.unigram import PieceType, Unigram

_SUPPORTED = {UNIGRAM: "unigram", BPE: "bpe", CHAR: "bpe"}
"""Models of characters are BPE without merges."""


_ALL_SPACES = (1 << 31) - 1
_MAX_MERGES = 1 << 21
"""Merges of a BPE model; the largest known vocabulary, of 256,000 pieces, has half a million."""
_MAX_READ = 1 << 32
"""Characters looked at to find them, a few seconds; a real vocabulary takes a thousandth."""


class Parts(NamedTuple):
    """Values of the fields of a `tokenizer.json` with the same names."""

    normalizer: dict[str, Any] | None
    pre_tokenizer: dict[str, Any] | None
    model: dict[str, Any]
    added_tokens: list[dict[str, Any]]
    decoder: dict[str, Any]


def unigram_of(model: SentencePieceFile) -> Unigram:
    """Returns the model of a Unigram file, under sentencepiece's rules.

    Raises:
      TokenizerFileError: if the file holds another type of model.
    """
    if model.trainer.model_type != UNIGRAM:
        raise TokenizerFileError(f"expected a Unigram model (model_type 1), got {model!r}")
    vocab = tuple(zip(model.pieces, model.scores, strict=True))
    return Unigram(vocab, model.unk_id, model.trainer.byte_fallback, model.types)


def exact_parts(model: SentencePieceFile, source: str = "model") -> Parts:
    """Returns parts that give sentencepiece's ids on every text.

    The pre-tokenizer is None: a normalized row is one word. The normalizer keeps user-defined pieces whole. Unigram
    then knows them by `piece_types`; of BPE they are added tokens, cut out of the normalized text before it merges.

    Raises:
      TokenizerFileError: if the model is of a type, or holds something, that the parts cannot represent; says what.
    """
    fields = _model_fields(model, source)
    if fields["type"] == "Unigram":
        fields["piece_types"] = list(model.types)
    else:
        fields["merge_ranks"] = _ranks(model, fields["merges"])
    return Parts(_normalizer(model), None, fields, _added_tokens(model), _decoder(model, source))


def _normalizer(model: SentencePieceFile) -> dict[str, Any]:
    spec = model.normalizer
    return {
        "type": "SentencePieceNormalizer",
        "precompiled_charsmap": base64.b64encode(spec.precompiled_charsmap).decode(),
        "add_dummy_prefix": spec.add_dummy_prefix,
        "remove_extra_whitespaces": spec.remove_extra_whitespaces,
        "escape_whitespaces": spec.escape_whitespaces,
        "treat_whitespace_as_suffix": model.trainer.treat_whitespace_as_suffix,
        "user_defined_symbols": [piece for _, piece in model.of_type(PieceType.USER_DEFINED)],
    }


def _added_tokens(model: SentencePieceFile) -> list[dict[str, Any]]:
    """Returns the pieces that are no text; and of BPE the user-defined ones, which nothing merges with.

    Unigram has those among its pieces; cut out as added tokens, what follows them would get a "▁" of its own in HF.
    """
    tokens = [_added(i, piece, True) for i, piece in model.of_type(PieceType.UNKNOWN, PieceType.CONTROL)]
    if model.trainer.model_type != UNIGRAM:
        tokens += [_added(i, piece, False) for i, piece in model.of_type(PieceType.USER_DEFINED)]
    return sorted(tokens, key=lambda token: token["id"])


def hf_parts(model: SentencePieceFile, source: str = "model") -> Parts:
    """Returns parts that HF tokenizers loads, close to sentencepiece; see the module for where they differ.

    Raises:
      TokenizerFileError: as `exact_parts`, and for white space that HF has no words for (suffixes, unescaped spaces).
    """
    is_unigram = model.trainer.model_type == UNIGRAM
    try:
        steps, metaspace = hf_steps(
            _normalizer(model), is_bpe=not is_unigram, splits=is_unigram and unigram_of(model).splits_at_spaces
        )
    except ValueError as error:
        raise TokenizerFileError(f"{source}: {error}") from error
    return Parts(steps, metaspace, _model_fields(model, source), _added_tokens(model), _decoder(model, source))


def _added(token_id: int, content: str, special: bool) -> dict[str, Any]:
    return {
        "id": token_id,
        "content": content,
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": not special,
        "special": special,
    }


def _model_fields(model: SentencePieceFile, source: str) -> dict[str, Any]:
    kind = _SUPPORTED.get(model.trainer.model_type)
    if kind is None:
        raise TokenizerFileError(f"{source}: {model!r}: models of words are not supported")
    if kind == "unigram":
        return {
            "type": "Unigram",
            "unk_id": model.unk_id,
            "vocab": [list(pair) for pair in zip(model.pieces, model.scores, strict=True)],
            "byte_fallback": model.trainer.byte_fallback,
        }
    if unused := model.of_type(PieceType.UNUSED):
        raise TokenizerFileError(f"{source}: unused pieces of a BPE model are not supported: {unused[0][1]!r}")
    if len(set(model.pieces)) != len(model.pieces):
        raise TokenizerFileError(f"{source}: a BPE model cannot have two pieces of the same text")
    others = model.of_type(PieceType.UNKNOWN, PieceType.CONTROL)
    if short := [piece for _, piece in others if len(piece) == 1]:
        raise TokenizerFileError(f"{source}: a BPE model cannot have the character {short[0]!r} as a piece of no text")
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": model.pieces[model.unk_id],
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": True,
        "byte_fallback": model.trainer.byte_fallback,
        "ignore_merges": False,
        "vocab": {piece: i for i, piece in enumerate(model.pieces)},
        "merges": [list(pair) for pair in bpe_merges(model, source)] if model.trainer.model_type == BPE else [],
    }


def bpe_merges(model: SentencePieceFile, source: str = "model") -> list[tuple[str, str]]:
    """Returns the merges of a BPE model, best first: every way to make a piece of two others, by its score.

    sentencepiece merges whatever two neighbours make a piece, best score first, leftmost first among equals. Where two
    ways to make one piece compete (`ab a ba` may become `aba ba` or `ab aba`), it takes the leftmost, and a list of
    merges the first in the list; `merge_ranks` in `exact_parts` gives such merges one rank, so that position decides.
    User-defined pieces take no part: normalization and the model cut them out before merging begins, so that nothing
    can merge into one.

    Raises:
      TokenizerFileError: if a piece is made of characters that are no pieces: sentencepiece merges those too, merges
        cannot; or if there are so many ways to make pieces, or long pieces, as no training leaves.
    """
    ids = {piece: i for i, piece in model.of_type(PieceType.NORMAL)}
    if missing := set("".join(ids)) - ids.keys():
        piece, i = next((piece, i) for piece, i in ids.items() if not missing.isdisjoint(piece))
        character = next(c for c in piece if c in missing)
        raise TokenizerFileError(
            f"{source}: piece {i}, {piece!r}, is made of {character!r}, which is no piece; merges cannot express that"
        )
    # One string for each piece, however many merges name it; and no look at what cannot be a piece by its length.
    pieces = {piece: piece for piece in ids}
    lengths = {len(piece) for piece in ids}
    ascending = sorted(lengths)
    merges: list[tuple[str, str]] = []
    n_read = 0
    for piece, i in sorted(ids.items(), key=lambda item: (-model.scores[item[1]], item[1])):
        for k in itertools.takewhile(len(piece).__gt__, ascending):
            if len(piece) - k not in lengths:
                continue
            n_read += len(piece)
            left = pieces.get(piece[:k])
            if left is not None and (right := pieces.get(piece[k:])) is not None:
                merges.append((left, right))
        if n_read > _MAX_READ or len(merges) > _MAX_MERGES:
            raise TokenizerFileError(
                f"{source}: piece {i}, {reprlib.repr(piece)}, can be made in more ways than training leaves"
            )
    return merges


def _ranks(model: SentencePieceFile, merges: list[list[str]]) -> list[int]:
    """Returns for every merge the rank of the score of what it makes, 0 for the best: equal scores, equal ranks."""
    scores = dict(zip(model.pieces, model.scores, strict=True))
    order = {score: rank for rank, score in enumerate(sorted({scores[a + b] for a, b in merges}, reverse=True))}
    return [order[scores[a + b]] for a, b in merges]


def _decoder(model: SentencePieceFile, source: str) -> dict[str, Any]:
    if model.denormalizer is not None and model.denormalizer.precompiled_charsmap:
        raise TokenizerFileError(f"{source}: a denormalizer has no counterpart among decoders")
    steps: list[dict[str, Any]] = [{"type": "Replace", "pattern": {"String": SPACE}, "content": " "}]
    if model.trainer.byte_fallback:
        steps.append({"type": "ByteFallback"})
    steps.append({"type": "Fuse"})
    if model.normalizer.add_dummy_prefix or model.normalizer.remove_extra_whitespaces:
        # Where extra spaces are removed, every piece in front of the text loses the space it begins with.
        n_spaces = _ALL_SPACES if model.normalizer.remove_extra_whitespaces else 1
        steps.append({"type": "Strip", "content": " ", "start": n_spaces, "stop": 0})
    return {"type": "Sequence", "decoders": steps}
