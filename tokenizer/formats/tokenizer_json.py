# SPDX-License-Identifier: Apache-2.0
"""`tokenizer.json`: HF tokenizers' format for a whole tokenizer.

What TokenMill has no part for is refused by name, never left out.
"""

import json
from typing import TYPE_CHECKING, Any

from tokenizer import decoders
from tokenizer.added_tokens import AddedToken
from tokenizer.errors import TokenizerFileError
from tokenizer.models import WordPiece
from tokenizer.normalizers import BertNormalizer
from tokenizer.post_processors import (
    BertProcessing,
    Padding,
    SpecialToken,
    TemplatePiece,
    TemplateProcessing,
    Truncation,
)
from tokenizer.pre_tokenizers import BertPreTokenizer

if TYPE_CHECKING:
    from tokenizer.core import Tokenizer

VERSION = "1.0"
_STRATEGIES = {"LongestFirst": "longest_first", "OnlyFirst": "only_first", "OnlySecond": "only_second"}
_DIRECTIONS = {"Right": "right", "Left": "left"}


class _Node:
    """A JSON value with the path it stands at, for messages; every access says what it expects."""

    def __init__(self, value: Any, path: str) -> None:
        self.value = value
        self.path = path

    def fail(self, problem: str) -> TokenizerFileError:
        return TokenizerFileError(f"{self.path}: {problem}")

    def as_(self, kind: type, name: str) -> Any:
        if not isinstance(self.value, kind) or (kind is int and isinstance(self.value, bool)):
            raise self.fail(f"expected {name}, got {json.dumps(self.value)[:80]}")
        return self.value

    def object(self) -> dict[str, Any]:
        return dict(self.as_(dict, "an object"))

    def text(self) -> str:
        return str(self.as_(str, "a string"))

    def integer(self) -> int:
        return int(self.as_(int, "an integer"))

    def flag(self) -> bool:
        return bool(self.as_(bool, "true or false"))

    def items(self) -> "list[_Node]":
        return [_Node(v, f"{self.path}[{i}]") for i, v in enumerate(self.as_(list, "a list"))]

    def child(self, key: str, default: Any = ...) -> "_Node":
        fields = self.object()
        if key not in fields and default is ...:
            raise self.fail(f"field {key!r} is missing")
        return _Node(fields.get(key, default), f"{self.path}.{key}")

    def one_of(self, allowed: dict[str, Any]) -> Any:
        name = self.text()
        if name not in allowed:
            raise self.fail(f"{name!r} is not supported; supported: {', '.join(allowed)}")
        return allowed[name]

    def only(self, *keys: str) -> None:
        for key in self.object():
            if key not in keys:
                raise self.fail(f"field {key!r} is not supported; known: {', '.join(keys)}")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise ValueError(f"{key!r} stands twice in one object")
            seen.add(key)
    return fields


def read(text: str, source: str, cache_bytes: int) -> "Tokenizer":
    """Loads the text of a `tokenizer.json`.

    Args:
      text: the JSON.
      source: what to call it in messages.
      cache_bytes: memory of one word cache.

    Raises:
      TokenizerFileError: if it is not JSON, lacks a field, or holds a value or part that is not supported.
    """
    from tokenizer.core import Tokenizer

    try:
        root = _Node(json.loads(text, object_pairs_hook=_unique), source)
    except (ValueError, RecursionError) as error:
        raise TokenizerFileError(f"{source}: not JSON: {str(error)[:200] or 'nested too deeply'}") from error
    known = ("version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer", "post_processor", "decoder", "model")  # fmt: skip
    root.only(*known)
    if root.child("version", VERSION).value != VERSION:
        raise root.fail(f"version must be {VERSION!r}, got {root.child('version').value!r}")
    try:
        return Tokenizer(
            model=_read_model(root.child("model")),
            normalizer=_read_normalizer(root.child("normalizer", None)),
            pre_tokenizer=_read_pre_tokenizer(root.child("pre_tokenizer", None)),
            post_processor=_read_post_processor(root.child("post_processor", None)),
            decoder=_read_decoder(root.child("decoder", None)),
            added_tokens=[_read_added_token(node) for node in root.child("added_tokens", []).items()],
            truncation=_read_truncation(root.child("truncation", None)),
            padding=_read_padding(root.child("padding", None)),
            cache_bytes=cache_bytes,
        )
    except TokenizerFileError:
        raise
    except ValueError as error:
        raise TokenizerFileError(f"{source}: {error}") from error


def _read_model(node: _Node) -> WordPiece | None:
    if node.value is None:
        return None
    kind = node.child("type", "WordPiece")
    kind.one_of({"WordPiece": None})
    node.only(
        "type", "unk_token", "continuing_subword_prefix", "max_input_chars_per_word", "vocab", "oov_policy",
    )  # fmt: skip
    vocab = node.child("vocab").object()
    for token, token_id in vocab.items():
        if type(token_id) is not int:
            raise node.fail(f"vocab: id of {token!r} must be an integer, got {json.dumps(token_id)[:80]}")
    return WordPiece(
        vocab,
        unk_token=node.child("unk_token", "[UNK]").text(),
        continuing_subword_prefix=node.child("continuing_subword_prefix", "##").text(),
        max_input_chars_per_word=node.child("max_input_chars_per_word", 100).integer(),
        oov_policy=node.child("oov_policy", "word").text(),
    )


def _read_normalizer(node: _Node) -> BertNormalizer | None:
    if node.value is None:
        return None
    node.child("type").one_of({"BertNormalizer": None})
    node.only("type", "clean_text", "handle_chinese_chars", "strip_accents", "lowercase")
    strip = node.child("strip_accents", None)
    return BertNormalizer(
        clean_text=node.child("clean_text", True).flag(),
        handle_chinese_chars=node.child("handle_chinese_chars", True).flag(),
        strip_accents=None if strip.value is None else strip.flag(),
        lowercase=node.child("lowercase", True).flag(),
    )


def _read_pre_tokenizer(node: _Node) -> BertPreTokenizer:
    if node.value is None:
        raise node.fail("no pre-tokenizer is not supported; supported: BertPreTokenizer")
    node.child("type").one_of({"BertPreTokenizer": None})
    node.only("type")
    return BertPreTokenizer()


def _read_decoder(node: _Node) -> decoders.WordPiece | None:
    if node.value is None:
        return None
    node.child("type").one_of({"WordPiece": None})
    node.only("type", "prefix", "cleanup")
    return decoders.WordPiece(node.child("prefix", "##").text(), node.child("cleanup", True).flag())


def _read_post_processor(node: _Node) -> TemplateProcessing | BertProcessing | None:
    if node.value is None:
        return None
    kind = node.child("type").one_of({"BertProcessing": "bert", "TemplateProcessing": "template"})
    if kind == "bert":
        node.only("type", "sep", "cls")
        pairs = []
        for name in ("sep", "cls"):
            items = node.child(name).items()
            if len(items) != 2:
                raise node.child(name).fail(f"expected [token, id], got {len(items)} values")
            pairs.append((items[0].text(), items[1].integer()))
        return BertProcessing(*pairs)
    node.only("type", "single", "pair", "special_tokens")
    declared = node.child("special_tokens")
    special = {name: _read_special_token(declared.child(name)) for name in declared.object()}
    single, pair = (tuple(_read_piece(n) for n in node.child(name).items()) for name in ("single", "pair"))
    return TemplateProcessing(single=single, pair=pair, special_tokens=special)


def _read_special_token(node: _Node) -> SpecialToken:
    node.only("id", "ids", "tokens")
    ids = tuple(n.integer() for n in node.child("ids").items())
    tokens = tuple(n.text() for n in node.child("tokens").items())
    if len(ids) != len(tokens):
        raise node.fail(f"has {len(ids)} ids but {len(tokens)} tokens")
    return SpecialToken(ids, tokens)


def _read_piece(node: _Node) -> TemplatePiece:
    fields = node.object()
    if list(fields) not in (["Sequence"], ["SpecialToken"]):
        raise node.fail(f"expected Sequence or SpecialToken, got {', '.join(fields) or 'nothing'}")
    (name,) = fields
    inner = node.child(name)
    return TemplatePiece(inner.child("id").text(), inner.child("type_id").integer(), name == "Sequence")


def _read_added_token(node: _Node) -> AddedToken:
    node.only("id", "content", "single_word", "lstrip", "rstrip", "normalized", "special")
    return AddedToken(
        id=node.child("id").integer(),
        content=node.child("content").text(),
        single_word=node.child("single_word", False).flag(),
        lstrip=node.child("lstrip", False).flag(),
        rstrip=node.child("rstrip", False).flag(),
        normalized=node.child("normalized", False).flag(),
        special=node.child("special", False).flag(),
    )


def _read_truncation(node: _Node) -> Truncation | None:
    if node.value is None:
        return None
    node.only("direction", "max_length", "strategy", "stride")
    if node.child("stride", 0).integer() != 0:
        raise node.child("stride").fail("overflowing parts are not supported; stride must be 0")
    return Truncation(
        max_length=node.child("max_length").integer(),
        strategy=node.child("strategy", "LongestFirst").one_of(_STRATEGIES),
        direction=node.child("direction", "Right").one_of(_DIRECTIONS),
    )


def _read_padding(node: _Node) -> Padding | None:
    if node.value is None:
        return None
    node.only("strategy", "direction", "pad_to_multiple_of", "pad_id", "pad_type_id", "pad_token")
    strategy, multiple = node.child("strategy"), node.child("pad_to_multiple_of", None)
    if strategy.value == "BatchLongest":
        length = None
    else:
        length = strategy.child("Fixed").integer()
    return Padding(
        length=length,
        direction=node.child("direction", "Right").one_of(_DIRECTIONS),
        pad_to_multiple_of=None if multiple.value is None else multiple.integer(),
        pad_id=node.child("pad_id", 0).integer(),
        pad_type_id=node.child("pad_type_id", 0).integer(),
        pad_token=node.child("pad_token", "[PAD]").text(),
    )


def write(tokenizer: "Tokenizer", pretty: bool) -> str:
    """Returns the text of a `tokenizer.json`: the same bytes for the same tokenizer."""
    fields = {
        "version": VERSION,
        "truncation": _write_truncation(tokenizer.truncation),
        "padding": _write_padding(tokenizer.padding),
        "added_tokens": [
            {
                "id": t.id,
                "content": t.content,
                "single_word": t.single_word,
                "lstrip": t.lstrip,
                "rstrip": t.rstrip,
                "normalized": t.normalized,
                "special": t.special,
            }
            for t in sorted(tokenizer.added_tokens, key=lambda t: t.id)
        ],
        "normalizer": _write_normalizer(tokenizer.normalizer),
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": _write_post_processor(tokenizer.post_processor),
        "decoder": _write_decoder(tokenizer.decoder),
        "model": _write_model(tokenizer.model),
    }
    if pretty:
        return json.dumps(fields, ensure_ascii=False, indent=2)
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":"))


def _name_of(names: dict[str, str], value: str) -> str:
    return next(theirs for theirs, ours in names.items() if ours == value)


def _write_truncation(truncation: Truncation | None) -> dict[str, Any] | None:
    if truncation is None:
        return None
    return {
        "direction": _name_of(_DIRECTIONS, truncation.direction),
        "max_length": truncation.max_length,
        "strategy": _name_of(_STRATEGIES, truncation.strategy),
        "stride": 0,
    }


def _write_padding(padding: Padding | None) -> dict[str, Any] | None:
    if padding is None:
        return None
    return {
        "strategy": "BatchLongest" if padding.length is None else {"Fixed": padding.length},
        "direction": _name_of(_DIRECTIONS, padding.direction),
        "pad_to_multiple_of": padding.pad_to_multiple_of,
        "pad_id": padding.pad_id,
        "pad_type_id": padding.pad_type_id,
        "pad_token": padding.pad_token,
    }


def _write_normalizer(normalizer: BertNormalizer | None) -> dict[str, Any] | None:
    if normalizer is None:
        return None
    return {
        "type": "BertNormalizer",
        "clean_text": normalizer.clean_text,
        "handle_chinese_chars": normalizer.handle_chinese_chars,
        "strip_accents": normalizer.strip_accents,
        "lowercase": normalizer.lowercase,
    }


def _write_post_processor(processor: TemplateProcessing | BertProcessing | None) -> dict[str, Any] | None:
    if processor is None:
        return None
    if isinstance(processor, BertProcessing):
        return {"type": "BertProcessing", "sep": list(processor.sep), "cls": list(processor.cls)}

    def pieces(template: tuple[TemplatePiece, ...]) -> list[dict[str, Any]]:
        return [
            {"Sequence" if p.is_sequence else "SpecialToken": {"id": p.name, "type_id": p.type_id}} for p in template
        ]

    return {
        "type": "TemplateProcessing",
        "single": pieces(processor.single),
        "pair": pieces(processor.pair),
        "special_tokens": {
            name: {"id": name, "ids": list(token.ids), "tokens": list(token.tokens)}
            for name, token in sorted(processor.special_tokens.items())
        },
    }


def _write_decoder(decoder: decoders.WordPiece | None) -> dict[str, Any] | None:
    if decoder is None:
        return None
    return {"type": "WordPiece", "prefix": decoder.prefix, "cleanup": decoder.cleanup}


def _write_model(model: WordPiece | None) -> dict[str, Any] | None:
    if model is None:
        return None
    fields: dict[str, Any] = {
        "type": "WordPiece",
        "unk_token": model.unk_token,
        "continuing_subword_prefix": model.continuing_subword_prefix,
        "max_input_chars_per_word": model.max_input_chars_per_word,
    }
    if model.oov_policy != "word":
        fields["oov_policy"] = model.oov_policy
    fields["vocab"] = dict(sorted(model.vocab.items(), key=lambda item: item[1]))
    return fields
