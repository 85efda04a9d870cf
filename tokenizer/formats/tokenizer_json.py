# SPDX-License-Identifier: Apache-2.0
"""`tokenizer.json`: HF tokenizers' format for a whole tokenizer.

A part that TokenMill does not have is an error that names it; it is never dropped silently. A field inside a part that
HF does not know either is ignored, as HF does, and `Tokenizer.explain` lists it.
"""

import json
from json.encoder import encode_basestring
from typing import Any

from tokenmill.tokenizer.formats import components, files, json_roles, sentencepiece_json
from tokenmill.tokenizer.formats.components import Spec
from tokenmill.tokenizer.formats.json_models import MODELS, read_model
from tokenmill.tokenizer.formats.json_node import Node
from tokenmill.tokenizer.formats.json_numbers import float_text
from tokenmill.tokenizer.formats.json_vocabulary import parse_tokenizer
from tokenmill.tokenizer.models import Unigram
from tokenmill.tokenizer.parts import Parts
from tokenmill.tokenizer.pre_tokenizers import is_byte_level

VERSION = "1.0"


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
            post_processor=components.read(root.child("post_processor", None), json_roles.POST_PROCESSORS),
            decoder=components.read(root.child("decoder", None), json_roles.DECODERS),
            added_tokens=[
                components.read_fields(node, json_roles.ADDED_TOKEN) for node in root.child("added_tokens", []).items()
            ],
            truncation=_optional(root.child("truncation", None), json_roles.TRUNCATION),
            padding=_optional(root.child("padding", None), json_roles.PADDING),
            # Must come last, when everything has been read.
            ignored_fields=tuple(root.ignored),
        )


def _optional(node: Node, spec: Spec) -> Any:
    return None if node.value is None else components.read_fields(node, spec)


def write(parts: Parts, pretty: bool) -> str:
    """Returns the text of a `tokenizer.json`; it is always the same for the same tokenizer."""
    model = components.write(parts.model, MODELS)
    pieces = None
    if model is not None and isinstance(parts.model, Unigram):
        pieces, model["vocab"] = model["vocab"], None
    fields = {
        "version": VERSION,
        **{
            name: None if part is None else components.write_fields(part, spec)
            for name, part, spec in (
                ("truncation", parts.truncation, json_roles.TRUNCATION),
                ("padding", parts.padding, json_roles.PADDING),
            )
        },
        "added_tokens": [
            components.write_fields(token, json_roles.ADDED_TOKEN)
            for token in sorted(parts.added_tokens, key=lambda token: token.id)
        ],
        "normalizer": components.write(parts.normalizer, json_roles.NORMALIZERS),
        "pre_tokenizer": components.write(parts.pre_tokenizer, json_roles.PRE_TOKENIZERS),
        "post_processor": components.write(parts.post_processor, json_roles.POST_PROCESSORS),
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
