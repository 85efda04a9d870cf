# SPDX-License-Identifier: Apache-2.0
"""A SentencePiece model as the parts of a tokenizer that gives sentencepiece's ids on every text.

The normalizer is a type of our own; Unigram uses `piece_types`, BPE `merge_ranks`, which HF's models do not have.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from tokenmill.tokenizer import decoders
from tokenmill.tokenizer.added_tokens import AddedToken
from tokenmill.tokenizer.errors import TokenizerFileError
from tokenmill.tokenizer.formats import files
from tokenmill.tokenizer.formats.sentencepiece import BPE as BPE_MODEL
from tokenmill.tokenizer.formats.sentencepiece import UNIGRAM, WORD, SentencePieceFile
from tokenmill.tokenizer.models import BPE, Unigram
from tokenmill.tokenizer.models.bpe_merges import MergesOfIds, merges_of_pieces
from tokenmill.tokenizer.models.bpe_tables import Merges
from tokenmill.tokenizer.models.unigram import PieceType
from tokenmill.tokenizer.models.vocabulary import ScoredTokens, Vocabulary
from tokenmill.tokenizer.normalizers import SentencePieceNormalizer
from tokenmill.tokenizer.parts import Parts
from tokenmill.tokenizer.ragged import read_only


def tokenizer_parts(model: SentencePieceFile, source: str = "model") -> Parts:
    """Returns the parts of a tokenizer.

    There is no pre-tokenizer: a normalized row is one word. The normalizer leaves user-defined pieces alone. Unigram
    then knows them by `piece_types`; for BPE they are added tokens, cut out of the normalized text before it merges.

    Raises:
      TokenizerFileError: if the model has a type or content that the parts cannot represent, or its normalizer is
        broken; the message says what.
    """
    if model.trainer.model_type == WORD:
        raise TokenizerFileError(f"{source}: {model!r}: models of words are not supported")
    with files.named_in_errors(source):
        return Parts(
            model=unigram_of(model) if model.trainer.model_type == UNIGRAM else bpe_of(model, source),
            normalizer=normalizer_of(model),
            decoder=_decoder(model, source),
            added_tokens=_added_tokens(model),
        )


def normalizer_of(model: SentencePieceFile) -> SentencePieceNormalizer:
    """Returns the normalizer of a model."""
    spec = model.normalizer
    return SentencePieceNormalizer(
        precompiled_charsmap=spec.precompiled_charsmap,
        add_dummy_prefix=spec.add_dummy_prefix,
        remove_extra_whitespaces=spec.remove_extra_whitespaces,
        escape_whitespaces=spec.escape_whitespaces,
        treat_whitespace_as_suffix=model.trainer.treat_whitespace_as_suffix,
        user_defined_symbols=tuple(piece for _, piece in model.of_type(PieceType.USER_DEFINED)),
    )


def unigram_of(model: SentencePieceFile) -> Unigram:
    """Returns the model of a Unigram file, under sentencepiece's rules.

    Raises:
      TokenizerFileError: if the file holds another type of model.
    """
    if model.trainer.model_type != UNIGRAM:
        raise TokenizerFileError(f"expected a Unigram model (model_type 1), got {model!r}")
    vocab = ScoredTokens(model.pieces, model.scores)
    return Unigram(vocab, model.unk_id, model.trainer.byte_fallback, model.types)


def bpe_of(model: SentencePieceFile, source: str = "model") -> BPE:
    """Returns the model of a BPE file, or of a character model, which is BPE without merges.

    The merges are all ways to make a piece of two others, by the score of the piece, best first: sentencepiece merges
    any two neighbours that make a piece, best score first, leftmost first among equals. If two ways to make one piece
    compete (`ab a ba` may become `aba ba` or `ab aba`), sentencepiece takes the leftmost, but a list of merges the
    first in the list; `merge_ranks` give such merges one rank, so that position decides. User-defined pieces take no
    part: they are cut out before merging begins, so that nothing can merge into one.

    Raises:
      TokenizerFileError: if there are unused pieces, or two with the same text; if a piece has characters that are no
        pieces, which sentencepiece merges too, but a list of merges cannot; or if there are more ways to make pieces,
        or longer pieces, than training can leave.
    """
    if unused := model.of_type(PieceType.UNUSED):
        raise TokenizerFileError(f"{source}: unused pieces of a BPE model are not supported: {unused[0][1]!r}")
    vocab = model.pieces.numbered
    if vocab is None:
        raise TokenizerFileError(f"{source}: a BPE model cannot have two pieces of the same text")
    others = model.of_type(PieceType.UNKNOWN, PieceType.CONTROL)
    if short := [piece for _, piece in others if len(piece) == 1]:
        raise TokenizerFileError(f"{source}: a BPE model cannot have the character {short[0]!r} as a piece of no text")
    merges, ranks = Merges(*np.zeros((3, 0), np.int32)), np.zeros(0, np.int64)
    if model.trainer.model_type == BPE_MODEL:
        merges, ranks = _merges(model, vocab, source)
    return BPE(
        vocab,
        MergesOfIds(merges, vocab),
        unk_token=model.pieces[model.unk_id],
        fuse_unk=True,
        byte_fallback=model.trainer.byte_fallback,
        merge_ranks=read_only(ranks),
    )


def _merges(model: SentencePieceFile, vocab: Vocabulary, source: str) -> tuple[Merges, npt.NDArray[np.int64]]:
    """Returns the merges, and for each the rank of its product's score, int64[n_merges]: equal scores, equal ranks."""
    is_normal = model.types == PieceType.NORMAL
    is_used = np.zeros(0x110000, np.bool_)
    is_used[model.pieces.characters.take(is_normal).points] = True
    characters = list(map(chr, np.flatnonzero(is_used).tolist()))
    found = vocab.find(characters)
    is_missing = (found < 0) | ~is_normal[found]
    if is_missing.any():
        missing = {characters[i] for i in np.flatnonzero(is_missing).tolist()}
        i, piece = next((i, piece) for i, piece in model.of_type(PieceType.NORMAL) if not missing.isdisjoint(piece))
        character = next(c for c in piece if c in missing)
        raise TokenizerFileError(
            f"{source}: piece {i}, {piece!r}, is made of {character!r}, which is no piece; merges cannot express that"
        )
    scores = model.scores
    try:
        merges = merges_of_pieces(vocab, is_normal, scores)
    except ValueError as error:
        raise TokenizerFileError(f"{source}: {error}") from error
    of_merge = scores[merges.products]
    return merges, np.cumsum(np.diff(of_merge, prepend=of_merge[:1]) != 0)


def _added_tokens(model: SentencePieceFile) -> list[AddedToken]:
    """Returns the pieces that do not match text; and for BPE the user-defined ones, which nothing merges with.

    Unigram has these among its pieces: were they added tokens, HF would put a "▁" in front of the text after each.
    """
    tokens = [AddedToken(i, piece) for i, piece in model.of_type(PieceType.UNKNOWN, PieceType.CONTROL)]
    if model.trainer.model_type != UNIGRAM:
        pieces = model.of_type(PieceType.USER_DEFINED)
        tokens += [AddedToken(i, piece, normalized=True, special=False) for i, piece in pieces]
    return sorted(tokens, key=lambda token: token.id)


def _decoder(model: SentencePieceFile, source: str) -> Any:
    if model.denormalizer is not None and model.denormalizer.precompiled_charsmap:
        raise TokenizerFileError(f"{source}: a denormalizer has no counterpart among decoders")
    return decoders.of_sentencepiece(
        has_bytes=model.trainer.byte_fallback,
        adds_prefix=model.normalizer.add_dummy_prefix,
        removes_spaces=model.normalizer.remove_extra_whitespaces,
    )
