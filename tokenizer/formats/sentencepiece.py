# SPDX-License-Identifier: Apache-2.0
"""SentencePiece `.model` files: read, checked, written back, and turned into the parts of a `tokenizer.json`.

The file is a protocol buffer. Fields that TokenMill does not use (mostly how the model was trained) are kept as they
are, so that a file that is read and written is the same model to sentencepiece.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tokenmill.tokenizer.errors import TokenizerFileError
from tokenmill.tokenizer.formats import files, protobuf
from tokenmill.tokenizer.formats.protobuf import Field
from tokenmill.tokenizer.formats.sentencepiece_kernels import read_pieces
from tokenmill.tokenizer.models.ids import MAX_ID
from tokenmill.tokenizer.models.unigram import PieceType
from tokenmill.tokenizer.models.vocabulary import WORD_PADDING, Tokens

UNIGRAM, BPE, WORD, CHAR = 1, 2, 3, 4
"""Values of `TrainerSpec.model_type`."""

_MODEL_TYPES = {UNIGRAM: "unigram", BPE: "bpe", WORD: "word", CHAR: "char"}
_TEXT_TYPES = (PieceType.NORMAL, PieceType.USER_DEFINED, PieceType.UNUSED)
"""The types of pieces that match text; the texts of the other types are a separate namespace."""


@dataclasses.dataclass(frozen=True)
class TrainerSpec:
    """The training options that encoding and decoding depend on. Ids are -1 if there is no such piece."""

    model_type: int = UNIGRAM
    treat_whitespace_as_suffix: bool = False
    byte_fallback: bool = False
    unk_id: int = 0
    bos_id: int = 1
    eos_id: int = 2
    pad_id: int = -1
    unk_surface: str = " \u2047 "
    unk_piece: str = "<unk>"
    bos_piece: str = "<s>"
    eos_piece: str = "</s>"
    pad_piece: str = "<pad>"
    others: tuple[Field, ...] = ()
    """Every other field, as it stood."""


@dataclasses.dataclass(frozen=True)
class NormalizerSpec:
    """How text is normalized before the model sees it, or after decoding."""

    name: str = ""
    precompiled_charsmap: bytes = b""
    add_dummy_prefix: bool = True
    remove_extra_whitespaces: bool = True
    escape_whitespaces: bool = True
    others: tuple[Field, ...] = ()


_TRAINER_FIELDS: dict[int, tuple[str, type]] = {
    3: ("model_type", int),
    24: ("treat_whitespace_as_suffix", bool),
    35: ("byte_fallback", bool),
    40: ("unk_id", int),
    41: ("bos_id", int),
    42: ("eos_id", int),
    43: ("pad_id", int),
    44: ("unk_surface", str),
    45: ("unk_piece", str),
    46: ("bos_piece", str),
    47: ("eos_piece", str),
    48: ("pad_piece", str),
}
_NORMALIZER_FIELDS: dict[int, tuple[str, type]] = {
    1: ("name", str),
    2: ("precompiled_charsmap", bytes),
    3: ("add_dummy_prefix", bool),
    4: ("remove_extra_whitespaces", bool),
    5: ("escape_whitespaces", bool),
}


@dataclasses.dataclass(frozen=True, eq=False)
class SentencePieceFile:
    """A SentencePiece model, as in the file. The id of a piece is its position.

    Raises:
      ValueError: for what sentencepiece would not load: an empty piece, a piece that occurs twice, no unknown piece or
        two, byte pieces without `byte_fallback`, `byte_fallback` without all 256 of them; and for scores that are not
        finite.
    """

    pieces: Tokens
    scores: npt.NDArray[np.float64]
    """float64[n], rounded to single precision."""
    types: npt.NDArray[np.int64]
    """int64[n], values of `PieceType`."""
    trainer: TrainerSpec = TrainerSpec()
    normalizer: NormalizerSpec = NormalizerSpec()
    denormalizer: NormalizerSpec | None = None
    others: tuple[Field, ...] = ()
    """Every other field of the file, as it stood."""

    @classmethod
    def of(
        cls, pieces: Sequence[str], scores: Sequence[float], types: Sequence[int], *rest: Any, **others: Any
    ) -> "SentencePieceFile":
        """Makes a model of Python lists; the other fields come after."""
        return cls(Tokens.of(pieces), np.array(scores, np.float64), np.array(types, np.int64), *rest, **others)

    def __post_init__(self) -> None:
        n = len(self.pieces)
        if not 1 <= n <= MAX_ID + 1:
            raise ValueError(f"a model has 1..{MAX_ID + 1} pieces, got {n}")
        if not len(self.scores) == len(self.types) == n:
            raise ValueError(f"{n} pieces need as many scores and types, got {len(self.scores)} and {len(self.types)}")
        finite = np.isfinite(self.scores)
        if not finite.all():
            i = int(np.argmin(finite))
            raise ValueError(f"score of piece {i}, {self.pieces[i]!r}, must be finite, got {float(self.scores[i])!r}")
        known = (self.types >= min(PieceType)) & (self.types <= max(PieceType))
        if not known.all():
            i = int(np.argmin(known))
            raise ValueError(f"type of piece {i}, {self.pieces[i]!r}, must be one of 1..6, got {int(self.types[i])!r}")
        if not self.pieces.lengths.all():
            raise ValueError(f"piece {int(np.argmin(self.pieces.lengths))} is empty")
        if self.trainer.model_type not in _MODEL_TYPES:
            raise ValueError(f"model_type must be one of 1..4, got {self.trainer.model_type!r}")
        if self.pieces.numbered is None:
            self._check_distinct()
        self._check_unknown_and_bytes()

    def _check_distinct(self) -> None:
        seen: set[tuple[bool, str]] = set()
        for i, piece in enumerate(self.pieces):
            key = (self.types[i] in _TEXT_TYPES, piece)
            if key in seen:
                raise ValueError(f"piece {i}, {piece!r}, stands in the model twice")
            seen.add(key)

    def _check_unknown_and_bytes(self) -> None:
        n_unknown = self.ids_of_type(PieceType.UNKNOWN).size
        if n_unknown != 1:
            raise ValueError(f"a model has exactly one unknown piece (type 2), got {n_unknown}")
        spelled = {piece for _, piece in self.of_type(PieceType.BYTE)}
        wanted = {f"<0x{b:02X}>" for b in range(256)}
        if not self.trainer.byte_fallback and spelled:
            raise ValueError(f"byte piece {min(spelled)!r} stands in a model whose byte_fallback is false")
        if self.trainer.byte_fallback and spelled != wanted:
            wrong = min(spelled - wanted, default=None) or min(wanted - spelled)
            raise ValueError(f"byte_fallback needs the byte pieces <0x00> to <0xFF> and no other; look at {wrong!r}")

    def __repr__(self) -> str:
        return f"SentencePieceFile({_MODEL_TYPES[self.trainer.model_type]}, {len(self.pieces)} pieces)"

    @property
    def unk_id(self) -> int:
        """Id of the unknown piece; like sentencepiece it goes by the type, not by `trainer.unk_id`."""
        return int(self.ids_of_type(PieceType.UNKNOWN)[0])

    def of_type(self, *kinds: PieceType) -> list[tuple[int, str]]:
        """Returns id and text of the pieces of some types, in order."""
        return [(i, self.pieces[i]) for i in self.ids_of_type(*kinds).tolist()]

    def ids_of_type(self, *kinds: PieceType) -> npt.NDArray[np.int64]:
        """Returns the ids of the pieces of some types, int64[n]."""
        return np.flatnonzero(np.logical_or.reduce([self.types == kind for kind in kinds]))


# Reading.


def looks_like_model(data: bytes) -> bool:
    """Whether a file may be a `.model`, by its first bytes: a first field that is a piece, with its text first."""
    # Field 1, a message; then its length; then field 1 of that, the text.
    return len(data) > 4 and data[0] == 0x0A and 0x0A in data[2:4]


MAX_MODEL_BYTES = 32 << 20
"""The largest file to read; the largest known model has five megabytes."""


def read(data: bytes, source: str) -> SentencePieceFile:
    """Reads the bytes of a `.model`; `source` is its name in messages.

    Raises:
      TokenizerFileError: if it is broken, or a model that sentencepiece would not load.
    """
    if len(data) > MAX_MODEL_BYTES:
        raise TokenizerFileError(f"{source}: longer than {MAX_MODEL_BYTES} bytes, which no sentencepiece model is")
    tokens, scores, types, rest = _read_pieces(data, source)
    more: list[tuple[str, float, int]] = []
    specs: dict[int, list[Field]] = {2: [], 3: [], 5: []}
    others = []
    for field in protobuf.read_fields(data[rest:], source):
        if field.number == 1:
            number = len(tokens) + len(more)
            piece, score, kind = _read_piece(field.as_bytes(source), f"{source}: piece {number}")
            if not piece:
                raise TokenizerFileError(f"{source}: piece {number} is empty")
            more.append((piece, score, kind))
            if number > MAX_ID:
                raise TokenizerFileError(f"{source}: more than {MAX_ID + 1} pieces")
        elif field.number in specs:
            # A message field that occurs twice is merged: fields of the second one win.
            specs[field.number] += protobuf.read_fields(field.as_bytes(source), f"{source}: field {field.number}")
        else:
            others.append(field)
    if more:
        pieces, more_scores, more_types = zip(*more, strict=True)
        tokens = Tokens.joined([tokens, Tokens.of(pieces)])
        scores, types = np.append(scores, np.array(more_scores)), np.append(types, np.array(more_types, np.int64))
    with files.named_in_errors(source):
        return SentencePieceFile(
            pieces=tokens,
            scores=scores,
            types=types,
            trainer=TrainerSpec(**_read_spec(specs[2], _TRAINER_FIELDS, f"{source}: trainer_spec")),
            normalizer=NormalizerSpec(**_read_spec(specs[3], _NORMALIZER_FIELDS, f"{source}: normalizer_spec")),
            denormalizer=NormalizerSpec(**_read_spec(specs[5], _NORMALIZER_FIELDS, f"{source}: denormalizer_spec"))
            if specs[5]
            else None,
            others=tuple(others),
        )


def _read_pieces(data: bytes, source: str) -> tuple[Tokens, npt.NDArray[np.float64], npt.NDArray[np.int64], int]:
    """Reads pieces as long as they are written the usual way; there may be a quarter of a million of them.

    Also returns where it stopped; the general reader goes on from there.
    """
    n_most = min(len(data) // 9, MAX_ID + 1)
    text, offsets = np.empty(len(data) + WORD_PADDING, np.uint8), np.zeros(n_most + 1, np.int64)
    scores, types = np.empty((n_most, 4), np.uint8), np.empty(n_most, np.int64)
    n, at = read_pieces(np.frombuffer(data, np.uint8), text, offsets, scores, types)
    tokens = Tokens(text[: offsets[n] + WORD_PADDING].copy(), offsets[: n + 1].copy())
    number = tokens.first_broken()
    if number >= 0:
        found = tokens.values[tokens.offsets[number] : tokens.offsets[number + 1]].tobytes()
        raise TokenizerFileError(f"{source}: piece {number} is not UTF-8: {found[:40]!r}")
    return tokens, scores[:n].view("<f4").ravel().astype(np.float64), types[:n].copy(), at


def _read_piece(data: bytes, source: str) -> tuple[str, float, int]:
    piece, score, kind = "", 0.0, int(PieceType.NORMAL)
    for field in protobuf.read_fields(data, source):
        if field.number == 1:
            piece = field.as_text(source)
        elif field.number == 2:
            score = field.as_float(source)
        elif field.number == 3:
            kind = field.as_int32(source)
    return piece, score, kind


def _read_spec(fields: Iterable[Field], known: Mapping[int, tuple[str, type]], source: str) -> dict[str, Any]:
    values: dict[str, Any] = {}
    others = []
    for field in fields:
        if field.number not in known:
            others.append(field)
            continue
        name, kind = known[field.number]
        read_as = {int: field.as_int32, bool: field.as_bool, str: field.as_text, bytes: field.as_bytes}[kind]
        values[name] = read_as(f"{source}.{name}")
    return {**values, "others": tuple(others)}


# Writing.


def write(model: SentencePieceFile) -> bytes:
    """Returns the bytes of a `.model` that sentencepiece loads, with the same ids and scores."""
    out = bytearray()
    for piece, score, kind in zip(model.pieces, model.scores.tolist(), model.types.tolist(), strict=True):
        body = protobuf.write_bytes(1, piece.encode()) + protobuf.write_float(2, score)
        if kind != PieceType.NORMAL:
            body += protobuf.write_int(3, kind)
        out += protobuf.write_bytes(1, body)
    specs: list[tuple[int, Any, Mapping[int, tuple[str, type]], Any]] = [
        (2, model.trainer, _TRAINER_FIELDS, TrainerSpec()),
        (3, model.normalizer, _NORMALIZER_FIELDS, NormalizerSpec()),
    ]
    if model.denormalizer is not None:
        specs.append((5, model.denormalizer, _NORMALIZER_FIELDS, NormalizerSpec()))
    for number, spec, known, default in specs:
        out += protobuf.write_bytes(number, _write_spec(spec, known, default))
    for field in model.others:
        out += protobuf.write_field(field)
    return bytes(out)


def _write_spec(spec: Any, known: Mapping[int, tuple[str, type]], default: Any) -> bytes:
    fields = {field.number: b"" for field in spec.others}
    for field in spec.others:
        fields[field.number] += protobuf.write_field(field)
    for number, (name, kind) in known.items():
        value = getattr(spec, name)
        if value == getattr(default, name):
            continue
        if kind is str:
            value = value.encode()
        fields[number] = (
            protobuf.write_bytes(number, value) if kind in (str, bytes) else protobuf.write_int(number, value)
        )
    return b"".join(fields[number] for number in sorted(fields))
