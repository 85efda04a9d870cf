# SPDX-License-Identifier: Apache-2.0
"""The parts of a `tokenizer.json`: a table per role lists HF's types; two functions read and write by these tables.

HF's types are our classes, so a field is read by the type that it has there. The tables say what differs.
"""

import base64
import binascii
import dataclasses
import functools
import inspect
import json
from collections.abc import Callable, Mapping
from types import NoneType, UnionType
from typing import Any, Literal, get_args, get_origin

import numpy as np
import numpy.typing as npt

from tokenmill.tokenizer import decoders, normalizers, post_processors, pre_tokenizers
from tokenmill.tokenizer.added_tokens import AddedToken
from tokenmill.tokenizer.formats.json_node import Node
from tokenmill.tokenizer.models import BPE, Unigram, WordLevel, WordPiece
from tokenmill.tokenizer.models.bpe_merges import MergesOfIds
from tokenmill.tokenizer.models.vocabulary import ScoredTokens, Tokens, Vocabulary

REQUIRED = object()
_MAX_PARTS = 256
_MAX_DEPTH = 32
"""The most levels of sequences in sequences; real files have two."""
_OWN = frozenset({"unicode", "oov_policy", "merge_ranks", "piece_types"})
"""Fields that are ours, and HF passes over."""


@dataclasses.dataclass(frozen=True)
class Field:
    """One field of a component: its name in JSON, its attribute, and how to read and write it."""

    json: str
    attribute: str
    read: Callable[[Node], Any]
    write: Callable[[Any], Any] = lambda value: value
    """Called with the value of `attribute`, or with the component if it has no such attribute."""
    default: Any = REQUIRED

    @property
    def is_own(self) -> bool:
        """Whether it is ours; then it is written only if it is not the default."""
        return self.json in _OWN


@dataclasses.dataclass(frozen=True)
class Spec:
    """One type of component."""

    make: Callable[..., Any]
    fields: tuple[Field, ...] = ()
    legacy: tuple[Field, ...] = ()
    """Fields of older files, which are read but not written."""


Table = Mapping[str, Spec]
"""HF's name of a type, which is also the name of our class -> its spec."""


def read(node: Node, table: Table) -> Any:
    """Reads a component; returns None for null.

    Raises:
      TokenizerFileError: if its type is not in the table, or a value is wrong.
    """
    if node.value is None:
        return None
    if node.path.count("].") > _MAX_DEPTH:
        raise node.fail(f"nested more than {_MAX_DEPTH} deep, which no tokenizer is")
    spec = node.child("type").one_of(dict(table))
    return read_fields(node, spec, f"{node.child('type').text()}: ")


def read_fields(node: Node, spec: Spec, prefix: str = "", **given: Any) -> Any:
    """Reads an object whose type is known; a field `type` is passed over.

    prefix: goes in front of the message if its values do not go together; given: more arguments of `spec.make`.

    Raises:
      TokenizerFileError: if a value is wrong.
    """
    fields = (*spec.fields, *spec.legacy)
    node.known("type", *(f.json for f in fields))
    given_fields = node.object()
    absent = {f.json for f in fields if f.default is not REQUIRED and f.json not in given_fields}
    flags = [f for f in fields if isinstance(f.default, bool) or f in spec.legacy]
    absent |= {f.json for f in flags if given_fields.get(f.json) is None}  # null, as in HF
    values = {f.attribute: f.default if f.json in absent else f.read(node.child(f.json)) for f in fields}
    try:
        return spec.make(**values, **given)
    except ValueError as error:
        raise node.fail(f"{prefix}{error}") from error


def read_model(node: Node, *, byte_level: bool) -> Any:
    """Reads a model, None for null; byte_level: whether the pre-tokenizer is ByteLevel, so that BPE works on bytes."""
    if node.value is None:
        return None
    fields, oldest = node.object(), "WordLevel"  # a file that is too old to name the type of its model
    for name, guess in (("unk_id", "Unigram"), ("max_input_chars_per_word", "WordPiece"), ("merges", "BPE")):
        oldest = guess if name in fields else oldest
    spec = node.child("type", oldest).one_of(MODELS)
    given: dict[str, Any] = {"byte_level": byte_level} if spec.make is BPE else {}
    return read_fields(node, spec, **given)


def write(component: Any, table: Table) -> dict[str, Any] | None:
    """Returns a component as JSON, None for None.

    Raises:
      ValueError: if its type is not in the table.
    """
    if component is None:
        return None
    name = type(component).__name__
    kind = inspect.unwrap(table[name].make) if name in table else None
    if kind is not type(component):  # text steps have some of HF's names
        raise ValueError(f"{component!r} cannot be written as tokenizer.json; it has no type for it")
    return {"type": name} | write_fields(component, table[name])


def write_fields(component: Any, spec: Spec) -> dict[str, Any]:
    """Returns the fields of a component as JSON, except for the columns of a model; see `is_column`."""
    written = [(field, field.write(getattr(component, field.attribute, component))) for field in spec.fields]
    return {field.json: value for field, value in written if not field.is_own or value != field.default}


# Columns of a model. For the 262,144 entries of Gemma 3 lists take 0.9 s and 175 MiB, these functions 0.5 s and 106.


def is_column(value: Any) -> bool:
    """Returns whether a value is a vocabulary or merges in columns."""
    return isinstance(value, Vocabulary | MergesOfIds)


def listed(column: Any) -> Any:
    """Returns a column as JSON: a vocabulary in the order of its ids."""
    return list(column) if isinstance(column, MergesOfIds) else dict(sorted(column.items(), key=lambda item: item[1]))


def column_text(column: Any) -> str:
    """Returns the text of `json.dumps(listed(column), ensure_ascii=False, separators=(",", ":"))`."""
    vocab: Vocabulary = column.vocab if isinstance(column, MergesOfIds) else column
    tokens, texts = vocab.tokens, np.arange(len(vocab))
    is_special = np.isin(tokens.values[: tokens.n_bytes], _ESCAPED)
    special = np.unique(np.searchsorted(tokens.offsets, np.flatnonzero(is_special), "right") - 1)
    escaped = [json.dumps(token, ensure_ascii=False)[1:-1] for token in tokens.take(special)]
    texts[special] = len(vocab) + np.arange(special.size)
    order = np.argsort(vocab.ids, kind="stable")
    around: tuple[str, ...]
    if isinstance(column, MergesOfIds):
        text_of = np.zeros(int(vocab.ids.max(initial=0)) + 1, np.int64)
        text_of[vocab.ids] = texts
        parts, numbers = (text_of[column.ids.lefts], text_of[column.ids.rights]), list[str]()
        around, outside = ('["', '","', '"],'), "[]"
    else:
        numbers, around, outside = [*map(str, vocab.ids[order].tolist())], ('"', '":', ","), "{}"
        parts = texts[order], len(vocab) + len(escaped) + np.arange(len(numbers))
    pool = Tokens.joined([tokens, Tokens.of([*escaped, *numbers, *around])])
    pieces = np.empty((parts[0].size, 5), np.int64)
    pieces[:, 1], pieces[:, 3] = parts
    pieces[:, ::2] = len(pool) - len(around) + np.arange(len(around))
    text = pool.take(pieces.ravel())
    return outside[0] + text.values[: text.n_bytes].tobytes().decode()[:-1] + outside[1]


_ESCAPED = np.array([*range(0x20), *b'"\\'], np.uint8)
"""The bytes that JSON spells otherwise in a string."""


# Values by their types.


def _of_type(kind: Any) -> tuple[Callable[[Node], Any], Callable[[Any], Any]]:
    """Returns what reads and what writes the values of a field that is annotated with a type."""
    if isinstance(kind, UnionType) and NoneType in get_args(kind):
        read_one, write_one = _of_type(get_args(kind)[0])
        return (lambda node: None if node.value is None else read_one(node)), write_one
    if get_origin(kind) is Literal:  # HF writes `merged_with_next` as `MergedWithNext`
        theirs = {"".join(map(str.title, name.split("_"))): name for name in get_args(kind)}
        ours = {name: title for title, name in theirs.items()}
        return (lambda node: node.one_of(theirs)), ours.__getitem__
    return _READERS[kind], _WRITERS.get(kind, lambda value: value)


def _read_base64(node: Node) -> bytes:
    try:
        return base64.b64decode(node.text(), validate=True)
    except binascii.Error as error:
        raise node.fail(f"not base64: {error}") from error


def _read_number(node: Node) -> float:
    if isinstance(node.value, bool) or not isinstance(node.value, (int, float)):
        raise node.fail(f"expected a number, got {json.dumps(node.value)[:80]}")
    return float(node.value)


def _read_token_and_id(node: Node) -> tuple[str, int]:
    items = node.items()
    if len(items) != 2:
        raise node.fail(f"expected [token, id], got {len(items)} values")
    return items[0].text(), items[1].integer()


def _read_template(node: Node) -> tuple[post_processors.TemplatePiece, ...]:
    def read_piece(node: Node) -> post_processors.TemplatePiece:
        name = node.only_one("Sequence", "SpecialToken")
        inner = node.child(name)
        return post_processors.TemplatePiece(
            inner.child("id").text(), inner.child("type_id").integer(), name == "Sequence"
        )

    return tuple(map(read_piece, node.items()))


def _write_template(template: tuple[post_processors.TemplatePiece, ...]) -> list[dict[str, Any]]:
    return [{"Sequence" if p.is_sequence else "SpecialToken": {"id": p.name, "type_id": p.type_id}} for p in template]


def _read_special_token(node: Node) -> post_processors.SpecialToken:
    node.known("id", "ids", "tokens")
    ids = tuple(n.integer() for n in node.child("ids").items())
    tokens = tuple(n.text() for n in node.child("tokens").items())
    if len(ids) != len(tokens):
        raise node.fail(f"has {len(ids)} ids but {len(tokens)} tokens")
    return post_processors.SpecialToken(ids, tokens)


def _write_special_tokens(tokens: Mapping[str, post_processors.SpecialToken]) -> dict[str, Any]:
    return {
        name: {"id": name, "ids": [*token.ids], "tokens": [*token.tokens]} for name, token in sorted(tokens.items())
    }


_READERS: dict[Any, Callable[[Node], Any]] = {
    bool: Node.flag,
    str: Node.text,
    int: Node.integer,
    float: _read_number,
    bytes: _read_base64,
    tuple[str, ...]: lambda node: tuple(item.text() for item in node.items()),
    tuple[str, int]: _read_token_and_id,
    Mapping[str, int]: Node.vocabulary,
    tuple[post_processors.TemplatePiece, ...]: _read_template,
    Mapping[str, post_processors.SpecialToken]: lambda node: {
        name: _read_special_token(node.child(name)) for name in node.object()
    },
}
_WRITERS: dict[Any, Callable[[Any], Any]] = {
    bytes: lambda value: base64.b64encode(value).decode(),
    tuple[str, ...]: list,
    tuple[str, int]: list,
    Mapping[str, int]: Vocabulary.of,
    tuple[post_processors.TemplatePiece, ...]: _write_template,
    Mapping[str, post_processors.SpecialToken]: _write_special_tokens,
}


def _spec(kind: Any, order: str | None = None, make: Any = None, **others: Field) -> Spec:
    """Returns the spec of a dataclass.

    Args:
      kind: the class.
      order: the attributes that the file has, in this order, a "!" behind those that no file leaves out although the
        class has a default; None for all of the class.
      make: what makes it, wrapped around the class; None for the class.
      **others: attributes that are not read by their types.
    """
    of_class = {field.name: field for field in dataclasses.fields(kind)}
    found = []
    for name in of_class if order is None else order.split():
        attribute = name.removesuffix("!")
        if (field := others.get(attribute)) is None:
            has_default = of_class[attribute].default is not dataclasses.MISSING and attribute == name
            default = of_class[attribute].default if has_default else REQUIRED
            field = Field(attribute, attribute, *_of_type(of_class[attribute].type), default)
        found.append(field)
    return Spec(make or kind, tuple(found))


# Types that differ from their classes.


def _with_pattern(kind: Any, order: str) -> Spec:
    """A type whose `pattern` is a literal or a regular expression, which the class says by `is_regex`."""

    def read_pattern(node: Node) -> tuple[str, bool]:
        name = node.only_one("String", "Regex")
        return node.child(name).text(), name == "Regex"

    @functools.wraps(kind)
    def make(text_and_kind: tuple[str, bool], **rest: Any) -> Any:
        return kind(pattern=text_and_kind[0], is_regex=text_and_kind[1], **rest)

    field = Field(
        "pattern", "text_and_kind", read_pattern, lambda part: {"Regex" if part.is_regex else "String": part.pattern}
    )
    return _spec(kind, order, make, pattern=field)


def _metaspace(kind: Any) -> Spec:
    """`Metaspace`; older files have `add_prefix_space`, which is now `prepend_scheme`."""

    @functools.wraps(kind)
    def make(prepend_scheme: str | None, add_prefix_space: bool | None, str_rep: str | None, **rest: Any) -> Any:
        if prepend_scheme is None:
            prepend_scheme = "never" if add_prefix_space is False else "always"
        elif add_prefix_space is False and prepend_scheme != "never":
            raise ValueError(f"add_prefix_space is false, but prepend_scheme is {prepend_scheme!r}")
        if str_rep not in (None, rest["replacement"]):
            raise ValueError(f"str_rep {str_rep!r} is not the replacement {rest['replacement']!r}")
        return kind(prepend_scheme=prepend_scheme, **rest)

    def read_scheme(node: Node) -> Any:
        return node.one_of({name: name for name in ("always", "never", "first")})

    scheme = Field("prepend_scheme", "prepend_scheme", read_scheme, default=None)
    legacy = [
        Field(name, name, read, default=None)
        for name, read in (("add_prefix_space", Node.flag), ("str_rep", Node.text))
    ]
    spec = _spec(kind, "replacement prepend_scheme split", make, prepend_scheme=scheme)
    return dataclasses.replace(spec, legacy=tuple(legacy))


def _sequence(kind: Any, name: str, table: Callable[[], Table]) -> Spec:
    """A list of components of the same role, none of them null; each goes through every text."""

    def read_parts(node: Node) -> tuple[Any, ...]:
        if len(items := node.items()) > _MAX_PARTS:
            raise node.fail(f"a sequence of {len(items)} parts, allowed are {_MAX_PARTS}")
        for item in items:
            item.object()
        return tuple(read(item, table()) for item in items)

    return Spec(kind, (Field(name, name, read_parts, lambda parts: [write(part, table()) for part in parts]),))


def _table(module: Any, plain: str, **others: Spec) -> dict[str, Spec]:
    """Returns the types of a role: the classes of a module that are as in the file, and others."""
    return dict(sorted(({name: _spec(getattr(module, name)) for name in plain.split()} | others).items()))


NORMALIZERS: dict[str, Spec] = _table(
    normalizers,
    "BertNormalizer ByteLevel Lowercase Nmt Precompiled Prepend StripAccents",
    **{name: Spec(getattr(normalizers, name)) for name in ("NFC", "NFD", "NFKC", "NFKD")},
    Replace=_with_pattern(normalizers.Replace, "pattern content"),
    # Not a type of HF, which has no normalizer or sequence of normalizers that does what sentencepiece does.
    SentencePieceNormalizer=_spec(
        normalizers.SentencePieceNormalizer,
        "precompiled_charsmap! add_dummy_prefix remove_extra_whitespaces escape_whitespaces treat_whitespace_as_suffix "
        "user_defined_symbols",
    ),
    Sequence=_sequence(normalizers.Sequence, "normalizers", lambda: NORMALIZERS),
    Strip=_spec(
        normalizers.Strip,
        left=Field("strip_left", "left", Node.flag, default=True),
        right=Field("strip_right", "right", Node.flag, default=True),
    ),
)
_OWN_NORMALIZER = {"SentencePieceNormalizer": NORMALIZERS["SentencePieceNormalizer"]}
PRE_TOKENIZERS: dict[str, Spec] = _table(
    pre_tokenizers,
    "BertPreTokenizer ByteLevel CharDelimiterSplit Digits FixedLength Punctuation UnicodeScripts Whitespace "
    "WhitespaceSplit",
    Metaspace=_metaspace(pre_tokenizers.Metaspace),
    Sequence=_sequence(pre_tokenizers.Sequence, "pretokenizers", lambda: PRE_TOKENIZERS),
    Split=_with_pattern(pre_tokenizers.Split, "pattern behavior invert unicode"),
)
DECODERS: dict[str, Spec] = _table(
    decoders,
    "BPEDecoder ByteLevel CTC Fuse",
    ByteFallback=Spec(decoders.ByteFallback),
    # Not a type of HF, whose decoders do not normalize.
    Denormalizer=Spec(
        decoders.Denormalizer,
        (Field("normalizer", "normalizer", lambda node: read(node, _OWN_NORMALIZER), lambda p: write(p, NORMALIZERS)),),
    ),
    Metaspace=_metaspace(decoders.Metaspace),
    Replace=_with_pattern(decoders.Replace, "pattern content"),
    Sequence=_sequence(decoders.Sequence, "decoders", lambda: DECODERS),
    Strip=Spec(
        decoders.Strip,
        (
            Field("content", "content", Node.text, default=" "),
            *(Field(name, name, Node.integer, default=0) for name in ("start", "stop")),
        ),
    ),
    WordPiece=_spec(decoders.WordPiece, "prefix cleanup"),
)
POST_PROCESSORS: dict[str, Spec] = _table(
    post_processors,
    "BertProcessing ByteLevel TemplateProcessing",
    RobertaProcessing=_spec(post_processors.RobertaProcessing, "sep cls trim_offsets! add_prefix_space!"),
    Sequence=_sequence(post_processors.Sequence, "processors", lambda: POST_PROCESSORS),
)
ADDED_TOKEN = _spec(AddedToken, special=Field("special", "special", Node.flag, default=False))
TRUNCATION = _spec(post_processors.Truncation, "direction max_length strategy stride")
PADDING = _spec(
    post_processors.Padding,
    length=Field(
        "strategy",
        "length",
        lambda node: None if node.value == "BatchLongest" else node.child("Fixed").integer(),
        lambda length: "BatchLongest" if length is None else {"Fixed": length},
    ),
)


# Models.


def _integers(name: str) -> Field:
    """A list of integers or null."""

    def read_integers(node: Node) -> npt.NDArray[np.int64] | None:
        if node.value is None:
            return None
        for i, value in enumerate(node.as_(list, "a list")):
            if type(value) is not int or not -(1 << 63) <= value < 1 << 63:
                raise Node(value, f"{node.path}[{i}]").fail(f"expected an integer, got {json.dumps(value)[:80]}")
        return np.array(node.value, np.int64)

    return Field(
        name, name, read_integers, lambda values: None if values is None else np.asarray(values).tolist(), None
    )


def _read_merges(node: Node) -> Any:
    """Reads merges: pairs, or, in older files, strings of two tokens with a space between; the model checks them."""
    values: list[Any] = node.as_(list, "a list")
    if set(map(type, values)) <= {list}:
        return values
    merges = (merge for merge in values if not (isinstance(merge, str) and merge.startswith("#version")))  # as HF does
    return [merge.split(" ") if isinstance(merge, str) else merge for merge in merges]


def _read_pieces(node: Node) -> ScoredTokens:
    vocab = []
    for i, entry in enumerate(node.as_(list, "a list")):
        if not isinstance(entry, list) or len(entry) != 2 or type(entry[0]) is not str:
            raise Node(entry, f"{node.path}[{i}]").fail(f"expected [piece, score], got {json.dumps(entry)[:80]}")
        piece, score = entry
        if type(score) is not float:
            score = _read_number(Node(score, f"{node.path}[{i}][1]"))
        vocab.append((piece, score))
    return ScoredTokens.of(vocab)


def _write_pieces(model: Unigram) -> list[list[Any]]:
    return [[piece, score] for (piece, _), score in zip(model.vocab, model.scores.tolist(), strict=True)]


@functools.wraps(Unigram)
def _make_unigram(pieces: ScoredTokens, piece_types: npt.NDArray[np.int64] | None, **others: Any) -> Unigram:
    if piece_types is not None:
        # sentencepiece's scores are in single precision. Earlier versions wrote numbers that HF's reader, which misses
        # some by a little, takes for them.
        with np.errstate(over="ignore"):  # numbers that are too large are refused by the model
            pieces = ScoredTokens(pieces.tokens, pieces.scores.astype(np.float32).astype(np.float64))
    return Unigram(pieces, piece_types=piece_types, **others)


MODELS: dict[str, Spec] = {
    "WordPiece": _spec(WordPiece, "unk_token continuing_subword_prefix max_input_chars_per_word oov_policy vocab"),
    "BPE": _spec(
        BPE,
        "dropout unk_token continuing_subword_prefix end_of_word_suffix fuse_unk byte_fallback ignore_merges vocab "
        "merges merge_ranks",
        merges=Field("merges", "merges", _read_merges, lambda merges: merges if is_column(merges) else list(merges)),
        merge_ranks=_integers("merge_ranks"),
    ),
    "Unigram": _spec(
        Unigram,
        "unk_id vocab byte_fallback piece_types",
        _make_unigram,
        vocab=Field("vocab", "pieces", _read_pieces, _write_pieces),
        piece_types=_integers("piece_types"),
    ),
    "WordLevel": _spec(WordLevel, "vocab unk_token"),
}
