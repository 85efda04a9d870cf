# SPDX-License-Identifier: Apache-2.0
"""`tokenizer.json`: HF tokenizers' format for a whole tokenizer.

A part that TokenMill does not have is an error that names it; it is never dropped silently. A field inside a part that
HF does not know either is ignored, as HF does, and `Tokenizer.explain` lists it.
"""

import dataclasses
import json
from json.encoder import encode_basestring
from typing import Any

from tokenmill.tokenizer.added_tokens import AddedToken
from tokenmill.tokenizer.formats import components, files, json_roles, sentencepiece_json
from tokenmill.tokenizer.formats.json_models import read_model, write_model
from tokenmill.tokenizer.formats.json_node import Node
from tokenmill.tokenizer.formats.json_numbers import float_text
from tokenmill.tokenizer.formats.json_vocabulary import parse_tokenizer
from tokenmill.tokenizer.models import Unigram
from tokenmill.tokenizer.parts import Parts
from tokenmill.tokenizer.post_processors import (
    BertProcessing,
    ByteLevel,
    Padding,
    RobertaProcessing,
    Sequence,
    SpecialToken,
    TemplatePiece,
    TemplateProcessing,
    Truncation,
)
from tokenmill.tokenizer.pre_tokenizers import is_byte_level

VERSION = "1.0"
_STRATEGIES = {"LongestFirst": "longest_first", "OnlyFirst": "only_first", "OnlySecond": "only_second"}
_DIRECTIONS = {"Right": "right", "Left": "left"}


def read(data: bytes, source: str) -> Parts:
    """Reads a `tokenizer.json`.

    Args:
      data: the JSON, in UTF-8.
      source: its name in messages.

    Raises:
      TokenizerFileError: if it is not JSON, lacks a field, or holds a value or part that is not supported.
    """
    with files.without_collecting():
        return read_parsed(parse_tokenizer(data, source))


def read_parsed(root: Node) -> Parts:
    """Reads the result of `parse_tokenizer`; otherwise like `read`."""
    source = root.path
    root = Node(sentencepiece_json.without_hf_steps(root.object(), source), source)
    if (version := root.child("version", VERSION).value) != VERSION:
        of_1 = "; HF tokenizers 1.0 writes it, so take the file that this was made of" if version == "2.0" else ""
        raise root.fail(f"version must be {VERSION!r}, got {version!r}{of_1}")
    root.only(
        "version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer", "post_processor", "decoder",
        "model",
    )  # fmt: skip
    pre_tokenizer = components.read(root.child("pre_tokenizer", None), json_roles.PRE_TOKENIZERS)
    with files.named_in_errors(source):
        return Parts(
            model=read_model(root.child("model"), byte_level=is_byte_level(pre_tokenizer)),
            normalizer=components.read(root.child("normalizer", None), json_roles.NORMALIZERS),
            pre_tokenizer=pre_tokenizer,
            post_processor=_read_post_processor(root.child("post_processor", None)),
            decoder=components.read(root.child("decoder", None), json_roles.DECODERS),
            added_tokens=[_read_added_token(node) for node in root.child("added_tokens", []).items()],
            truncation=_read_truncation(root.child("truncation", None)),
            padding=_read_padding(root.child("padding", None)),
            # Must come last, when everything has been read.
            ignored_fields=tuple(root.ignored),
        )


def _read_post_processor(node: Node) -> Any:
    if node.value is None:
        return None
    kind = node.child("type").one_of(
        {"BertProcessing": BertProcessing, "RobertaProcessing": RobertaProcessing, "ByteLevel": ByteLevel,
         "Sequence": Sequence, "TemplateProcessing": TemplateProcessing}
    )  # fmt: skip
    if kind is Sequence:
        if "].processors[" in node.path:
            raise node.fail("a Sequence in a Sequence in a Sequence, which no tokenizer has")
        node.known("type", "processors")
        try:
            return Sequence(tuple(_read_post_processor(item) for item in node.child("processors").items()))
        except ValueError as error:
            raise node.fail(str(error)) from error
    if kind is ByteLevel:
        node.known("type", "add_prefix_space", "trim_offsets", "use_regex")
        return ByteLevel(*(node.child(name, True).flag() for name in ("add_prefix_space", "trim_offsets", "use_regex")))
    if kind is BertProcessing:
        node.known("type", "sep", "cls")
        return BertProcessing(_read_pair(node.child("sep")), _read_pair(node.child("cls")))
    if kind is RobertaProcessing:
        node.known("type", "sep", "cls", "trim_offsets", "add_prefix_space")
        return RobertaProcessing(
            _read_pair(node.child("sep")),
            _read_pair(node.child("cls")),
            node.child("trim_offsets", True).flag(),
            node.child("add_prefix_space", True).flag(),
        )
    node.known("type", "single", "pair", "special_tokens")
    declared = node.child("special_tokens")
    special = {name: _read_special_token(declared.child(name)) for name in declared.object()}
    single, pair = (tuple(_read_piece(n) for n in node.child(name).items()) for name in ("single", "pair"))
    return TemplateProcessing(single=single, pair=pair, special_tokens=special)


def _read_pair(node: Node) -> tuple[str, int]:
    items = node.items()
    if len(items) != 2:
        raise node.fail(f"expected [token, id], got {len(items)} values")
    return items[0].text(), items[1].integer()


def _read_special_token(node: Node) -> SpecialToken:
    node.known("id", "ids", "tokens")
    ids = tuple(n.integer() for n in node.child("ids").items())
    tokens = tuple(n.text() for n in node.child("tokens").items())
    if len(ids) != len(tokens):
        raise node.fail(f"has {len(ids)} ids but {len(tokens)} tokens")
    return SpecialToken(ids, tokens)


def _read_piece(node: Node) -> TemplatePiece:
    fields = node.object()
    if list(fields) not in (["Sequence"], ["SpecialToken"]):
        raise node.fail(f"expected Sequence or SpecialToken, got {', '.join(fields) or 'nothing'}")
    (name,) = fields
    inner = node.child(name)
    return TemplatePiece(inner.child("id").text(), inner.child("type_id").integer(), name == "Sequence")


def _read_added_token(node: Node) -> AddedToken:
    node.known("id", "content", "single_word", "lstrip", "rstrip", "normalized", "special")
    return AddedToken(
        id=node.child("id").integer(),
        content=node.child("content").text(),
        single_word=node.child("single_word", False).flag(),
        lstrip=node.child("lstrip", False).flag(),
        rstrip=node.child("rstrip", False).flag(),
        normalized=node.child("normalized", False).flag(),
        special=node.child("special", False).flag(),
    )


def _read_truncation(node: Node) -> Truncation | None:
    if node.value is None:
        return None
    node.known("direction", "max_length", "strategy", "stride")
    return Truncation(
        max_length=node.child("max_length").integer(),
        strategy=node.child("strategy", "LongestFirst").one_of(_STRATEGIES),
        direction=node.child("direction", "Right").one_of(_DIRECTIONS),
        stride=node.child("stride", 0).integer(),
    )


def _read_padding(node: Node) -> Padding | None:
    if node.value is None:
        return None
    node.known("strategy", "direction", "pad_to_multiple_of", "pad_id", "pad_type_id", "pad_token")
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


def write(parts: Parts, pretty: bool) -> str:
    """Returns the text of a `tokenizer.json`; it is always the same for the same tokenizer."""
    model = write_model(parts.model)
    pieces = None
    if model is not None and isinstance(parts.model, Unigram):
        pieces, model["vocab"] = model["vocab"], None
    fields = {
        "version": VERSION,
        "truncation": _write_truncation(parts.truncation),
        "padding": _write_padding(parts.padding),
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
            for t in sorted(parts.added_tokens, key=lambda t: t.id)
        ],
        "normalizer": components.write(parts.normalizer, json_roles.NORMALIZERS),
        "pre_tokenizer": components.write(parts.pre_tokenizer, json_roles.PRE_TOKENIZERS),
        "post_processor": _write_post_processor(parts.post_processor),
        "decoder": components.write(parts.decoder, json_roles.DECODERS),
        "model": model,
    }
    splits = isinstance(parts.model, Unigram) and parts.model.splits_at_spaces
    fields = sentencepiece_json.with_hf_steps(fields, splits)
    layout: dict[str, Any] = {"indent": 2} if pretty else {"separators": (",", ":")}
    # The lists and dicts were made here, so none contains itself; checking that would take half of the time.
    text = json.dumps(fields, ensure_ascii=False, check_circular=False, **layout)
    return text if pieces is None else _with_pieces(text, pieces, pretty)


def _with_pieces(text: str, pieces: list[Any], pretty: bool) -> str:
    """Puts the vocabulary of a Unigram model in place of a null; numbers are written so that HF reads them right."""
    space, item, inner, end = (" ", "\n      ", "\n        ", "\n    ") if pretty else ("", "", "", "")
    between = f"{item}],{item}[{inner}"
    entries = between.join(f"{encode_basestring(piece)},{inner}{float_text(score)}" for piece, score in pieces)
    null = f'"vocab":{space}null'
    # This can occur nowhere else: inside a string its quotes would be escaped.
    return text.replace(null, f'"vocab":{space}[{item}[{inner}{entries}{item}]{end}]', 1)


def _name_of(names: dict[str, str], value: str) -> str:
    return next(theirs for theirs, ours in names.items() if ours == value)


def _write_truncation(truncation: Truncation | None) -> dict[str, Any] | None:
    if truncation is None:
        return None
    return {
        "direction": _name_of(_DIRECTIONS, truncation.direction),
        "max_length": truncation.max_length,
        "strategy": _name_of(_STRATEGIES, truncation.strategy),
        "stride": truncation.stride,
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


def _write_post_processor(processor: Any) -> dict[str, Any] | None:
    if processor is None:
        return None
    if isinstance(processor, BertProcessing):
        return {"type": "BertProcessing", "sep": list(processor.sep), "cls": list(processor.cls)}
    if isinstance(processor, RobertaProcessing):
        return {
            "type": "RobertaProcessing",
            "sep": list(processor.sep),
            "cls": list(processor.cls),
            "trim_offsets": processor.trim_offsets,
            "add_prefix_space": processor.add_prefix_space,
        }
    if isinstance(processor, ByteLevel):
        return {"type": "ByteLevel"} | dataclasses.asdict(processor)
    if isinstance(processor, Sequence):
        return {"type": "Sequence", "processors": [_write_post_processor(part) for part in processor.processors]}

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
