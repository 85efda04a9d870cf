# SPDX-License-Identifier: Apache-2.0
"""SentencePiece `.model` files: read, checked, written, and turned into the parts of a `tokenizer.json`.

The file is a protocol buffer, which the library `protobuf` reads and writes. Fields that TokenMill does not use, mostly
how the model was trained, are passed over. As a tokenizer a model gives sentencepiece's ids on every text: the
normalizer is a type of our own; Unigram uses `piece_types`, BPE `merge_ranks`, which HF's models do not have.
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tokenmill.tokenizer import decoders, models
from tokenmill.tokenizer.added_tokens import AddedToken
from tokenmill.tokenizer.compositions import sentencepiece_decoder
from tokenmill.tokenizer.errors import TokenizerFileError
from tokenmill.tokenizer.formats import files
from tokenmill.tokenizer.models.bpe_merges import MergesOfIds, merges_of_pieces
from tokenmill.tokenizer.models.bpe_tables import Merges
from tokenmill.tokenizer.models.unigram import PieceType
from tokenmill.tokenizer.models.vocabulary import MAX_ID, ScoredTokens, Tokens, Vocabulary, padded_bytes
from tokenmill.tokenizer.normalizers import SentencePieceNormalizer
from tokenmill.tokenizer.parts import Parts
from tokenmill.tokenizer.ragged import read_only

UNIGRAM, BPE, WORD, CHAR = 1, 2, 3, 4
"""Values of `TrainerSpec.model_type`."""

_MODEL_TYPES = {UNIGRAM: "unigram", BPE: "bpe", WORD: "word", CHAR: "char"}
_TEXT_TYPES = (PieceType.NORMAL, PieceType.USER_DEFINED, PieceType.UNUSED)
"""The types of pieces that match text; the texts of the other types are a separate namespace."""


def _field(number: int, default: Any) -> Any:
    return dataclasses.field(default=default, metadata={"number": number})


@dataclasses.dataclass(frozen=True)
class TrainerSpec:
    """The training options that encoding and decoding depend on. Ids are -1 if there is no such piece."""

    model_type: int = _field(3, UNIGRAM)
    treat_whitespace_as_suffix: bool = _field(24, False)
    byte_fallback: bool = _field(35, False)
    unk_id: int = _field(40, 0)
    bos_id: int = _field(41, 1)
    eos_id: int = _field(42, 2)
    pad_id: int = _field(43, -1)
    unk_surface: str = _field(44, " \u2047 ")
    unk_piece: str = _field(45, "<unk>")
    bos_piece: str = _field(46, "<s>")
    eos_piece: str = _field(47, "</s>")
    pad_piece: str = _field(48, "<pad>")


@dataclasses.dataclass(frozen=True)
class NormalizerSpec:
    """How text is normalized before the model sees it, or after decoding."""

    name: str = _field(1, "")
    precompiled_charsmap: bytes = _field(2, b"")
    add_dummy_prefix: bool = _field(3, True)
    remove_extra_whitespaces: bool = _field(4, True)
    escape_whitespaces: bool = _field(5, True)


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
        self._check_all(np.isfinite(self.scores), self.scores, "score", "finite")
        known = (self.types >= min(PieceType)) & (self.types <= max(PieceType))
        self._check_all(known, self.types, "type", "one of 1..6")
        if not self.pieces.lengths.all():
            raise ValueError(f"piece {int(np.argmin(self.pieces.lengths))} is empty")
        if self.trainer.model_type not in _MODEL_TYPES:
            raise ValueError(f"model_type must be one of 1..4, got {self.trainer.model_type!r}")
        seen: set[tuple[bool, str]] = set()
        for i, piece in enumerate(self.pieces if self.pieces.numbered is None else ()):
            key = (self.types[i] in _TEXT_TYPES, piece)
            if key in seen:
                raise ValueError(f"piece {i}, {piece!r}, stands in the model twice")
            seen.add(key)
        self._check_unknown_and_bytes()

    def _check_all(self, are_right: npt.NDArray[np.bool_], values: npt.NDArray[Any], what: str, wanted: str) -> None:
        if not are_right.all():
            i = int(np.argmin(are_right))
            raise ValueError(f"{what} of piece {i}, {self.pieces[i]!r}, must be {wanted}, got {values[i].item()!r}")

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


# Reading and writing.


@functools.cache
def _model_classes() -> tuple[Any, Any]:
    """Returns protobuf's class of a model, and one that leaves its pieces unread, which takes a quarter of the memory.

    Texts are bytes, so that messages can say which one is not UTF-8.
    """
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory  # type: ignore[import-untyped]

    scalar = descriptor_pb2.FieldDescriptorProto
    kinds = {int: scalar.TYPE_INT32, bool: scalar.TYPE_BOOL, str: scalar.TYPE_BYTES, bytes: scalar.TYPE_BYTES}
    file = descriptor_pb2.FileDescriptorProto(name="sentencepiece_model", syntax="proto2")
    piece = file.message_type.add(name="Piece").field
    piece.add(name="piece", number=1, type=scalar.TYPE_BYTES, label=scalar.LABEL_OPTIONAL)
    piece.add(name="score", number=2, type=scalar.TYPE_FLOAT, label=scalar.LABEL_OPTIONAL)
    piece.add(name="type", number=3, type=scalar.TYPE_INT32, label=scalar.LABEL_OPTIONAL, default_value="1")
    for spec in (TrainerSpec, NormalizerSpec):
        message = file.message_type.add(name=spec.__name__).field
        for field in dataclasses.fields(spec):
            kind, number = kinds[type(field.default)], field.metadata["number"]
            message.add(name=field.name, number=number, type=kind, label=scalar.LABEL_OPTIONAL)
    model = file.message_type.add(name="Model").field
    model.add(name="pieces", number=1, type_name="Piece", label=scalar.LABEL_REPEATED)
    for number, (name, of) in _SPECS.items():
        model.add(name=name, number=number, type_name=of.__name__, label=scalar.LABEL_OPTIONAL)
    outline = file.message_type.add(name="Outline").field
    outline.add(name="pieces", number=1, type=scalar.TYPE_BYTES, label=scalar.LABEL_REPEATED)
    pool = descriptor_pool.DescriptorPool()  # of our own: sentencepiece has messages of these names, too
    pool.Add(file)
    model_class, outline_class = map(pool.FindMessageTypeByName, ("Model", "Outline"))
    return message_factory.GetMessageClass(model_class), message_factory.GetMessageClass(outline_class)


_SPECS = {2: ("trainer", TrainerSpec), 3: ("normalizer", NormalizerSpec), 5: ("denormalizer", NormalizerSpec)}


def looks_like_model(data: bytes) -> bool:
    """Whether a file may be a `.model`, by its first bytes: a first field that is a piece, with its text first."""
    # Field 1, a message; then its length; then field 1 of that, the text.
    return len(data) > 4 and data[0] == 0x0A and 0x0A in data[2:4]


MAX_MODEL_BYTES = 32 << 20
"""The largest file to read; the largest known model has five megabytes."""
_MAX_PIECES = 1 << 21
"""The most pieces to read: of two bytes each, those of such a file would take more than a gigabyte."""


def read(data: bytes, source: str) -> SentencePieceFile:
    """Reads the bytes of a `.model`; `source` is its name in messages.

    Raises:
      TokenizerFileError: if it is broken, or a model that sentencepiece would not load.
    """
    if len(data) > MAX_MODEL_BYTES:
        raise TokenizerFileError(f"{source}: longer than {MAX_MODEL_BYTES} bytes, which no sentencepiece model is")
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    model, outline = _model_classes()
    try:
        if (n := len(outline.FromString(data).pieces)) > _MAX_PIECES:
            raise TokenizerFileError(f"{source}: has {n} pieces; a sentencepiece model has at most {_MAX_PIECES}")
        message = model.FromString(data)
    except DecodeError as error:
        raise TokenizerFileError(
            f"{source}: no sentencepiece model, or not all of one: {len(data)} bytes; get the file again"
        ) from error
    texts, scores, types = [], [], []
    for number, piece in enumerate(message.pieces):
        if not (text := piece.piece):
            raise TokenizerFileError(f"{source}: piece {number} is empty")
        texts.append(text)
        scores.append(piece.score)
        types.append(piece.type)
    tokens = Tokens(*padded_bytes(texts))
    if (number := tokens.first_broken()) >= 0:
        raise TokenizerFileError(f"{source}: piece {number} is not UTF-8: {texts[number][:40]!r}")
    specs = {
        name: _read_spec(getattr(message, name), kind, f"{source}: {name}_spec")
        for name, kind in _SPECS.values()
        if name != "denormalizer" or message.HasField(name)
    }
    with files.named_in_errors(source):
        return SentencePieceFile(tokens, np.array(scores, np.float64), np.array(types, np.int64), **specs)


def _read_spec(message: Any, kind: type, source: str) -> Any:
    values = {}
    for field in dataclasses.fields(kind):
        if message.HasField(field.name):
            value = getattr(message, field.name)
            try:
                values[field.name] = value.decode() if isinstance(field.default, str) else value
            except UnicodeDecodeError as error:
                raise TokenizerFileError(f"{source}.{field.name} is not UTF-8: {value[:40]!r}") from error
    return kind(**values)


def write(model: SentencePieceFile) -> bytes:
    """Returns the bytes of a `.model` that sentencepiece loads, with the same ids and scores."""
    message = _model_classes()[0]()
    for text, score, kind in zip(model.pieces, model.scores.tolist(), model.types.tolist(), strict=True):
        piece = message.pieces.add(piece=text.encode(), score=score)
        if kind != PieceType.NORMAL:
            piece.type = kind
    for name, _ in _SPECS.values():
        spec = getattr(model, name)
        if spec is None:
            continue
        getattr(message, name).SetInParent()
        for field in dataclasses.fields(spec):
            if (value := getattr(spec, field.name)) != field.default:
                setattr(getattr(message, name), field.name, value.encode() if isinstance(value, str) else value)
    return bytes(message.SerializeToString(deterministic=True))


# As a tokenizer.


def tokenizer_parts(model: SentencePieceFile, source: str = "model") -> Parts:
    """Returns the parts of a tokenizer.

    There is no pre-tokenizer: a normalized row is one word. The normalizer leaves user-defined pieces alone. Unigram
    then knows them by `piece_types`; for BPE they are added tokens, cut out of the normalized text before it merges.

    Raises:
      TokenizerFileError: if the model has a type or content that the parts cannot represent, or its normalizer is
        broken; the message says what.
    """
    if model.trainer.model_type == WORD:
        raise TokenizerFileError(
            f"{source}: {model!r}: models of words are not supported; use one of type unigram, bpe or char"
        )
    with files.named_in_errors(source):
        return Parts(
            model=unigram_of(model) if model.trainer.model_type == UNIGRAM else bpe_of(model, source),
            normalizer=normalizer_of(model),
            decoder=_decoder(model),
            added_tokens=_added_tokens(model),
        )


def normalizer_of(model: SentencePieceFile) -> SentencePieceNormalizer:
    """Returns the normalizer of a model."""
    return dataclasses.replace(
        _normalizer(model.normalizer),
        treat_whitespace_as_suffix=model.trainer.treat_whitespace_as_suffix,
        user_defined_symbols=tuple(piece for _, piece in model.of_type(PieceType.USER_DEFINED)),
    )


def _normalizer(spec: NormalizerSpec) -> SentencePieceNormalizer:
    return SentencePieceNormalizer(
        precompiled_charsmap=spec.precompiled_charsmap,
        add_dummy_prefix=spec.add_dummy_prefix,
        remove_extra_whitespaces=spec.remove_extra_whitespaces,
        escape_whitespaces=spec.escape_whitespaces,
    )


def unigram_of(model: SentencePieceFile) -> models.Unigram:
    """Returns the model of a Unigram file, under sentencepiece's rules.

    Raises:
      TokenizerFileError: if the file holds another type of model.
    """
    if model.trainer.model_type != UNIGRAM:
        raise TokenizerFileError(f"expected a Unigram model (model_type 1), got {model!r}")
    vocab = ScoredTokens(model.pieces, model.scores)
    return models.Unigram(vocab, model.unk_id, model.trainer.byte_fallback, model.types)


def bpe_of(model: SentencePieceFile, source: str = "model") -> models.BPE:
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
    if model.trainer.model_type == BPE:
        merges, ranks = _merges(model, vocab, source)
    return models.BPE(
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
    missing = {characters[i] for i in np.flatnonzero(is_missing).tolist()}
    for i, piece in model.of_type(PieceType.NORMAL) if missing else ():
        # No text becomes a piece that has no two such parts: `<mask>`, where neither `<mask` nor `mask>` is a piece.
        splits = [(piece[:k], piece[k:]) for k in range(1, len(piece))]
        if not missing.isdisjoint(piece) and any(all(len(p) == 1 or p in vocab for p in parts) for parts in splits):
            character = next(c for c in piece if c in missing)
            raise TokenizerFileError(
                f"{source}: piece {i}, {piece!r}, is made of {character!r}, which is no piece; merges cannot express "
                "that"
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


def _decoder(model: SentencePieceFile) -> decoders.Decoder:
    spec = model.denormalizer
    return sentencepiece_decoder(
        has_bytes=model.trainer.byte_fallback,
        adds_prefix=model.normalizer.add_dummy_prefix,
        removes_spaces=model.normalizer.remove_extra_whitespaces,
        denormalizer=None if spec is None or not spec.precompiled_charsmap else _normalizer(spec),
    )
