# SPDX-License-Identifier: Apache-2.0
"""Writes a tokenizer in the format of another library.

Such a file holds less than a `tokenizer.json`: a reader knows the parts around the model from its family. So a
tokenizer is written only if reading the file gives the same one back; otherwise the error says which part differs.
"""

import base64
import dataclasses
import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tokenmill.tokenizer.compositions import bert_parts
from tokenmill.tokenizer.decoders import Denormalizer
from tokenmill.tokenizer.decoders import Sequence as Decoders
from tokenmill.tokenizer.encoder import Encoder
from tokenmill.tokenizer.formats import bpe_files, files, sentencepiece, tokenizer_json, vocab_txt
from tokenmill.tokenizer.formats.sentencepiece import BPE as BPE_MODEL
from tokenmill.tokenizer.formats.sentencepiece import (
    UNIGRAM,
    NormalizerSpec,
    SentencePieceFile,
    TrainerSpec,
    tokenizer_parts,
)
from tokenmill.tokenizer.models import BPE, Unigram, WordPiece
from tokenmill.tokenizer.models.bpe import BYTE_ALPHABET
from tokenmill.tokenizer.models.unigram import PieceType
from tokenmill.tokenizer.models.vocabulary import ScoredTokens, Tokens
from tokenmill.tokenizer.normalizers import BertNormalizer, SentencePieceNormalizer
from tokenmill.tokenizer.parts import Parts
from tokenmill.tokenizer.pre_tokenizers.known_patterns import TIKTOKEN_PATTERNS
from tokenmill.tokenizer.pre_tokenizers.pattern_automata import find_automaton
from tokenmill.tokenizer.pre_tokenizers.sequence import scanner_of
from tokenmill.tokenizer.pre_tokenizers.situations import cut_alike

_VERSION_LINE = "#version: 0.2\n"
_CLIP = "clip"
"""The format of CLIP's gzip of merges, which is read, but not written."""
_BY_SUFFIX = {".txt": "vocab.txt", ".model": "sentencepiece", ".tiktoken": "tiktoken", ".gz": _CLIP}


def format_of(path: Path) -> str:
    """Returns the format that a file name implies, `tokenizer.json` if it implies no other."""
    return "vocab.json" if path.name == "vocab.json" else _BY_SUFFIX.get(path.suffix, "tokenizer.json")


def contents(parts: Parts, path: Path, file_format: str | None = None, pretty: bool = True) -> dict[str, bytes]:
    """Returns the files that `save` writes beside each other, by name."""
    file_format = file_format or format_of(path)
    if file_format == "tokenizer.json":
        return {path.name: tokenizer_json.write(parts, pretty).encode()}
    if file_format == _CLIP:
        raise ValueError(
            f"{path}: CLIP's gzip of merges is not written; save as vocab.json, and compress the merges.txt beside it "
            "with gzip, which is such a file"
        )
    if file_format not in _WRITERS:
        raise ValueError(f"format must be one of {', '.join(FORMATS)}, got {file_format!r}")
    try:
        return {name or path.name: data for name, data in _WRITERS[file_format](parts).items()}
    except _CannotHoldError as error:
        raise ValueError(f"{path}: {error.file or file_format} cannot {error}; save as tokenizer.json") from error


def left_out(parts: Parts, path: Path, file_format: str | None = None) -> list[str]:
    """Returns what `save` leaves out of a file, as readers of the format have it from elsewhere; a phrase each."""
    file_format = file_format or format_of(path)
    if file_format == "tiktoken":
        found = [f"how text is split, which is pattern={tiktoken_pattern(parts)!r}"]
        if parts.added_tokens:
            found.append(f"{len(parts.added_tokens)} special tokens, such as {parts.added_tokens[0].content!r}")
        return found + (["what is put around texts"] if parts.post_processor is not None else [])
    if file_format == "vocab.txt" and isinstance(parts.model, WordPiece):
        is_lower, _ = vocab_txt.assume_case(parts.model.vocab, str(path))
        try:
            again = bert_parts(parts.model.vocab, BertNormalizer(lowercase=is_lower))
        except ValueError as error:
            return [f"anything but the vocabulary, which is not BERT's: {error}"]
        return [f"this {name.replace('_', ' ')}: {had}" for name, had in _differing(parts, again)]
    return []


def save(parts: Parts, path: Path, file_format: str | None, pretty: bool) -> None:
    """Writes a tokenizer, each file whole or not at all; see `Tokenizer.save`."""
    for name, data in contents(parts, path, file_format, pretty).items():
        files.write_bytes(path.with_name(name), data)


class _CannotHoldError(Exception):
    """Says what a format cannot hold; file: which of its files, if there are several."""

    def __init__(self, problem: str, file: str = "", verb: str = "hold") -> None:
        super().__init__(f"{verb} {problem}")
        self.file = file


def _same_again(parts: Parts, again: Parts) -> None:
    """Raises an error if the parts that are read back differ from those that were written."""
    for name, had in _differing(parts, again):
        raise _CannotHoldError(f"this {name.replace('_', '-')}: {had}")


def _differing(parts: Parts, again: Parts) -> Iterator[tuple[str, str]]:
    """Yields the fields of a `tokenizer.json` that differ from those of other parts, and the beginning of each."""
    ours, theirs = (json.loads(tokenizer_json.write(each, pretty=False)) for each in (parts, again))
    for name in ours:
        if ours[name] != theirs[name]:
            yield name, json.dumps(ours[name], ensure_ascii=False)[:120]


def _vocab_txt(parts: Parts) -> dict[str, bytes]:
    model = parts.model
    if not isinstance(model, WordPiece):
        raise _CannotHoldError(f"{model!r}, only WordPiece")
    by_id = sorted(model.vocab.items(), key=lambda item: item[1])
    for position, (token, token_id) in enumerate(by_id):
        if token_id != position:
            raise _CannotHoldError(f"a gap in the ids, but no token has id {position}")
        if "\n" in token or token.endswith("\r"):
            raise _CannotHoldError(f"token {token!r} with a line end")
        if position == 0 and token.startswith("\ufeff"):
            raise _CannotHoldError(f"token {token!r}", verb="begin with")
    return {"": "".join(f"{token}\n" for token, _ in by_id).encode()}


def _checked_bpe(parts: Parts) -> BPE:
    if not isinstance(parts.model, BPE):
        raise _CannotHoldError(f"{parts.model!r}, only BPE")
    return parts.model


def _merges_text(model: BPE) -> str:
    for merge in model.merges:
        if any(c in token for token in merge for c in " \r\n") or "" in merge:
            raise _CannotHoldError(
                f"the merge {tuple(merge)!r}, whose tokens are not free of white space", "merges.txt"
            )
    return "".join(f"{left} {right}\n" for left, right in model.merges)


def _vocab_and_merges(parts: Parts) -> dict[str, bytes]:
    model = _checked_bpe(parts)
    merges = _merges_text(model)
    pairs = list(model.merges)
    try:
        again = bpe_files.vocab_and_merges(model.vocab, pairs)
    except ValueError as error:
        # The words were made by steps other than GPT-2's: say which part of the tokenizer does that.
        gpt2 = bpe_files.parts_of("gpt2", model.vocab, pairs)
        _same_again(parts, dataclasses.replace(gpt2, added_tokens=parts.added_tokens))
        raise _CannotHoldError(f"tokens that show another pre-tokenizer ({error})") from error
    _same_again(parts, again)
    vocab = dict(sorted(model.vocab.items(), key=lambda item: item[1]))
    text = json.dumps(vocab, ensure_ascii=False, separators=(",", ":"))
    return {"merges.txt": (_VERSION_LINE + merges).encode(), "": text.encode()}


def tiktoken_pattern(parts: Parts) -> str | None:
    """Returns the name of the first of tiktoken's patterns that splits text as a tokenizer does, None if none does."""
    scanner = scanner_of(parts.pre_tokenizer) if parts.pre_tokenizer is not None else None
    if scanner is None:
        return None
    if scanner.automata.spelled.size > 1 or scanner.are_apart:
        return None
    for name, text in TIKTOKEN_PATTERNS.items():
        known = find_automaton(text)
        if known is not None and cut_alike(known, scanner.automata):
            return name
    return None


def _tiktoken(parts: Parts) -> dict[str, bytes]:
    """Writes ranks. As in tiktoken's own files, special tokens are left out."""
    model = _checked_bpe(parts)
    if parts.normalizer is not None:
        raise _CannotHoldError(f"the normalizer {parts.normalizer!r}")
    if tiktoken_pattern(parts) is None:
        raise _CannotHoldError(f"the pre-tokenizer {parts.pre_tokenizer!r}, which is no named pattern")
    if plain := [t.content for t in parts.added_tokens if not t.special]:
        raise _CannotHoldError(f"the added token {plain[0]!r}, which is not special")
    special = {t.content for t in parts.added_tokens}
    order = sorted((i, t) for t, i in model.vocab.items() if t not in special)
    of_byte = {c: b for b, c in enumerate(BYTE_ALPHABET)}
    if not model.byte_level or any(c not in of_byte for _, token in order for c in token):
        raise _CannotHoldError("a vocabulary that is not byte-level")
    ranks = {bytes(of_byte[c] for c in token): i for i, token in order}
    try:
        again = BPE.from_ranks(ranks)
    except ValueError as error:
        raise _CannotHoldError(f"this vocabulary ({error})") from error
    options = (model.dropout, model.prefix, model.suffix, model.unk_token, model.byte_fallback)
    if any(options) or [tuple(m) for m in model.merges] != list(again.merges):
        raise _CannotHoldError(f"{model!r}: its merges are not in the order of the ids they make")
    if again.tables.longest_whole and not model.ignore_merges:
        raise _CannotHoldError(f"{model!r}, in which merges never make some token, but tiktoken would use it")
    lines = [f"{base64.b64encode(token).decode()} {rank}\n" for token, rank in ranks.items()]
    return {"": "".join(lines).encode()}


def _sentencepiece(parts: Parts) -> dict[str, bytes]:
    model, normalizer = parts.model, parts.normalizer
    if not isinstance(normalizer, SentencePieceNormalizer):
        raise _CannotHoldError(
            f"the normalizer {normalizer!r}: it has its own, SentencePieceNormalizer; train with normalizer "
            "sentencepiece and pre-tokenizer none",
        )
    if parts.pre_tokenizer is not None:
        raise _CannotHoldError(f"the pre-tokenizer {parts.pre_tokenizer!r}: it has none")
    if isinstance(model, Unigram) and model.piece_types is not None:
        file = _unigram_file(model, normalizer)
    elif isinstance(model, BPE):
        file = _bpe_file(parts, normalizer)
    else:
        raise _CannotHoldError(f"{model!r}: it has its own rules")
    steps = parts.decoder.flat() if isinstance(parts.decoder, Decoders) else []
    if steps and isinstance(steps[-1], Denormalizer):
        file = dataclasses.replace(file, denormalizer=_spec(steps[-1].normalizer))
    again = tokenizer_parts(file, "this tokenizer")
    if isinstance(model, BPE) and model.merge_ranks is None:
        # The model has one way to make each piece, the file has all; `_check_merges` shows that ids are the same.
        again = dataclasses.replace(again, model=model)
    _same_again(parts, again)
    return {"": sentencepiece.write(file)}


def _check_merges(model: BPE) -> None:
    """Checks that BPE without `merge_ranks` gives the ids of sentencepiece, which merges any two that make a piece.

    It does if no piece is made by two merges, and each piece, as a word, becomes itself. For then, wherever a piece's
    text occurs, at the time of its merge there are either its two parts, or symbols that reach beyond that text, just
    as in the piece alone; so no other two neighbours that make the piece ever meet.
    """
    options = {
        "dropout": model.dropout, "continuing_subword_prefix": model.prefix, "end_of_word_suffix": model.suffix,
        "ignore_merges": model.ignore_merges, "byte_level": model.byte_level,
    }  # fmt: skip
    if given := [f"{name}={value!r}" for name, value in options.items() if value]:
        raise _CannotHoldError(f"BPE with {given[0]}")
    if not model.fuse_unk and model.unk_token is not None and not model.byte_fallback:
        raise _CannotHoldError("BPE without fuse_unk: it makes one unknown token of neighbours")
    if model.unk_token is None:
        raise _CannotHoldError("BPE without an unknown token")
    made = [left + right for left, right in model.merges]
    if twice := [piece for piece, n in Counter(made).items() if n > 1]:
        raise _CannotHoldError(f"the token {twice[0]!r}, which two merges make")
    for piece, row in zip(made, Encoder(model=model).encode_arrow(made).to_pylist(), strict=True):
        if row != [model.vocab[piece]]:
            raise _CannotHoldError(f"the token {piece!r}, which its own merges do not make of its text")


def _unigram_file(model: Unigram, normalizer: SentencePieceNormalizer) -> SentencePieceFile:
    vocab = ScoredTokens.of(model.vocab)
    return _file(UNIGRAM, model.byte_fallback, normalizer, vocab.tokens, vocab.scores, np.array(model.piece_types))


def _bpe_file(parts: Parts, normalizer: SentencePieceNormalizer) -> SentencePieceFile:
    model, vocab = parts.model, parts.get_vocab()
    if sorted(vocab.values()) != list(range(len(vocab))):
        raise _CannotHoldError("a gap in the ids")
    if model.merge_ranks is None:
        _check_merges(model)
    pieces = sorted(vocab, key=vocab.__getitem__)
    kinds = dict.fromkeys((t.content for t in parts.added_tokens if t.special), PieceType.CONTROL)
    kinds |= dict.fromkeys(normalizer.user_defined_symbols, PieceType.USER_DEFINED)
    if model.byte_fallback:
        kinds |= {f"<0x{b:02X}>": PieceType.BYTE for b in range(256)}
    if model.unk_token is not None:
        kinds[model.unk_token] = PieceType.UNKNOWN
    types = np.array([kinds.get(piece, PieceType.NORMAL) for piece in pieces], np.int64)
    # Only the order of scores matters: a merged piece gets its rank, characters come after.
    merge_ranks = range(len(model.merges)) if model.merge_ranks is None else np.asarray(model.merge_ranks).tolist()
    ranks = {left + right: rank for (left, right), rank in zip(model.merges, merge_ranks, strict=True)}
    if marks := [piece for piece in ranks if kinds.get(piece, PieceType.NORMAL) != PieceType.NORMAL]:
        raise _CannotHoldError(f"the token {marks[0]!r}, which is both special and made by a merge")
    last = max(ranks.values(), default=0)
    scores = -np.array([ranks.get(piece, last + 1 + i) for i, piece in enumerate(pieces)], np.float64)
    scores[types != PieceType.NORMAL] = 0
    return _file(BPE_MODEL, model.byte_fallback, normalizer, Tokens.of(pieces), scores, types)


def _file(
    model_type: int, byte_fallback: bool, normalizer: SentencePieceNormalizer, pieces: Tokens,
    scores: npt.NDArray[np.float64], types: npt.NDArray[np.int64],
) -> SentencePieceFile:  # fmt: skip
    control = {pieces[i]: i for i in np.flatnonzero(types == PieceType.CONTROL).tolist()}
    unk_id = int(np.argmax(types == PieceType.UNKNOWN))
    trainer = TrainerSpec(
        model_type, normalizer.treat_whitespace_as_suffix, byte_fallback, unk_id, control.get("<s>", -1),
        control.get("</s>", -1), control.get("<pad>", -1), unk_piece=pieces[unk_id],
    )  # fmt: skip
    return SentencePieceFile(pieces, scores, types, trainer, _spec(normalizer))


def _spec(normalizer: SentencePieceNormalizer) -> NormalizerSpec:
    return NormalizerSpec(
        "user_defined" if normalizer.precompiled_charsmap else "identity", normalizer.precompiled_charsmap,
        normalizer.add_dummy_prefix, normalizer.remove_extra_whitespaces, normalizer.escape_whitespaces,
    )  # fmt: skip


_WRITERS: dict[str, Callable[[Parts], dict[str, bytes]]] = {
    "vocab.txt": _vocab_txt,
    "vocab.json": _vocab_and_merges,
    "sentencepiece": _sentencepiece,
    "tiktoken": _tiktoken,
}
"""Format -> function that makes its files: file name next to the path, or empty for the path itself -> content."""

FORMATS = ("tokenizer.json", *_WRITERS)
"""The formats that can be written."""
