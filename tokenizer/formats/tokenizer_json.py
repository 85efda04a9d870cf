# SPDX-License-Identifier: Apache-2.0
"""`tokenizer.json`: HF tokenizers' format for a whole tokenizer.

A part that TokenMill does not have is an error that names it; it is never dropped silently. A field inside a part that
HF does not know either is ignored, as HF does, and `Tokenizer.explain` lists it.

HF has no type that does what sentencepiece does to a text, but its types come close. They are where HF looks; the
options of our exact normalizer are in a field `sentencepiece` of the model, which HF ignores. TokenMill reads
sentencepiece's ids from the file on every text, HF on ordinary text.
"""

import dataclasses
import itertools
import json
from typing import Any

import numpy as np

from tokenmill.tokenizer.added_tokens import AddedToken
from tokenmill.tokenizer.errors import TokenizerFileError
from tokenmill.tokenizer.formats import components, files, lowered
from tokenmill.tokenizer.formats.components import Spec
from tokenmill.tokenizer.formats.json_node import Node, parse
from tokenmill.tokenizer.models import BPE, Unigram, WordLevel, WordPiece
from tokenmill.tokenizer.parts import Parts, vocab_of
from tokenmill.tokenizer.pre_tokenizers import is_byte_level

VERSION = "1.0"

_SPACE = "▁"
_TYPE = "SentencePieceNormalizer"
_OPTIONS = (
    "add_dummy_prefix", "remove_extra_whitespaces", "escape_whitespaces", "treat_whitespace_as_suffix",
    "user_defined_symbols",
)  # fmt: skip
_FIELD = "sentencepiece"


def read(data: bytes, source: str) -> Parts:
    """Reads a `tokenizer.json`, in UTF-8; `source` is its name in messages.

    Raises:
      TokenizerFileError: if it is not JSON, lacks a field, or holds a value or part that is not supported.
    """
    with files.without_collecting():
        return lowered.kept(
            [data], source, lambda: read_parsed(parse(files.decode(data, source), source, repeats=True))
        )


def read_parsed(root: Node) -> Parts:
    """Reads parsed JSON; otherwise like `read`."""
    source = root.path
    root = Node(without_hf_steps(root.object(), source), source, root.ignored)
    if (version := root.child("version", VERSION).value) != VERSION:
        of_1 = "; HF tokenizers 1.0 writes it, so take the file that this was made of" if version == "2.0" else ""
        raise root.fail(f"version must be {VERSION!r}, got {version!r}{of_1}")
    root.only(
        "version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer", "post_processor", "decoder",
        "model",
    )  # fmt: skip
    pre_tokenizer = components.read(root.child("pre_tokenizer", None), components.PRE_TOKENIZERS)
    with files.named_in_errors(source):
        model = components.read_model(root.child("model"), byte_level=is_byte_level(pre_tokenizer))
        added, assumptions = _numbered(model, _added_tokens(root.child("added_tokens", []).items()))
        return Parts(
            model=model,
            normalizer=components.read(root.child("normalizer", None), components.NORMALIZERS),
            pre_tokenizer=pre_tokenizer,
            post_processor=components.read(root.child("post_processor", None), components.POST_PROCESSORS),
            decoder=components.read(root.child("decoder", None), components.DECODERS),
            added_tokens=added,
            assumptions=(*assumptions, *_lacks_unknown(model)),
            truncation=_optional(root.child("truncation", None), components.TRUNCATION),
            padding=_optional(root.child("padding", None), components.PADDING),
            # Must come last, when everything has been read.
            ignored_fields=tuple(root.ignored),
        )


def _added_tokens(nodes: list[Node]) -> list[AddedToken]:
    """Reads added tokens; those without content, or with that of one before, are ignored, as HF ignores them."""
    found: dict[str, AddedToken] = {}
    for node in nodes:
        content = node.child("content").text()
        if content == "" or content in found:
            node.ignored.append(f"{node.path}, {'which stands there already' if content else 'which is empty'}")
        else:
            found[content] = components.read_fields(node, components.ADDED_TOKEN)
    return list(found.values())


def _numbered(model: Any, added: list[AddedToken]) -> tuple[list[AddedToken], tuple[str, ...]]:
    """Returns added tokens with their ids, and a line about the first whose id is another one here or in HF tokenizers.

    HF gives those that the vocabulary has its ids, and numbers the others anew. Here these have the ids of the file, as
    long as no two tokens have the same.
    """
    vocab = vocab_of(model)
    known = vocab.find([token.content for token in added]).tolist()
    ids = [token.id for token, known_id in zip(added, known, strict=True) if known_id < 0]
    is_possible = len({*ids}) == len(ids) and not np.isin(ids, vocab.ids).any()
    free = itertools.count(0 if model is None else len(model.vocab))
    lines = []
    for i, (token, known_id) in enumerate(zip(added, known, strict=True)):
        expected = known_id if known_id >= 0 else next(free)
        if token.id != expected and (known_id >= 0 or not is_possible):
            added[i] = dataclasses.replace(token, id=expected)
            lines.append(f"added token {token.content!r} has id {expected}, as in HF tokenizers, not {token.id}")
        elif token.id != expected:
            lines.append(
                f"added token {token.content!r} has id {token.id}, as the file says; HF tokenizers takes the next free "
                f"one, {expected}"
            )
    return added, tuple(lines[:1])


def _lacks_unknown(model: Any) -> tuple[str, ...]:
    """Says that texts may be refused, of a model with an unknown token that is no entry."""
    if not isinstance(model, BPE | WordLevel | WordPiece) or model.unk_token is None or model.unk_token in model.vocab:
        return ()
    if isinstance(model, BPE) and model.knows_everything:
        return ()
    return (f"the vocabulary lacks the unknown token {model.unk_token!r}, so a text that needs it cannot be encoded",)


def _optional(node: Node, spec: Spec) -> Any:
    return None if node.value is None else components.read_fields(node, spec)


def write(parts: Parts, pretty: bool) -> str:
    """Returns the text of a `tokenizer.json`; it is always the same for the same tokenizer."""
    model = components.write(parts.model, components.MODELS)
    fields = {
        "version": VERSION,
        **{
            name: None if part is None else components.write_fields(part, spec)
            for name, part, spec in (
                ("truncation", parts.truncation, components.TRUNCATION),
                ("padding", parts.padding, components.PADDING),
            )
        },
        "added_tokens": [
            components.write_fields(token, components.ADDED_TOKEN)
            for token in sorted(parts.added_tokens, key=lambda token: token.id)
        ],
        "normalizer": components.write(parts.normalizer, components.NORMALIZERS),
        "pre_tokenizer": components.write(parts.pre_tokenizer, components.PRE_TOKENIZERS),
        "post_processor": components.write(parts.post_processor, components.POST_PROCESSORS),
        "decoder": components.write(parts.decoder, components.DECODERS),
        "model": model,
    }
    splits = isinstance(parts.model, Unigram) and parts.model.splits_at_spaces
    fields = with_hf_steps(fields, splits)
    if pretty:
        return json.dumps(fields, ensure_ascii=False, indent=2, default=components.listed)
    return _text(fields)


def _text(value: Any) -> str:
    """Returns the shortest JSON of a value; columns are in it as they are, or in an object."""
    if components.is_column(value):
        return components.column_text(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{_text(name)}:{_text(each)}" for name, each in value.items()) + "}"
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def hf_steps(normalizer: dict[str, Any], *, is_bpe: bool, splits: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns HF's closest normalizer and pre-tokenizer to a SentencePieceNormalizer, all as JSON.

    is_bpe: whether the model is BPE, whose user-defined pieces are added tokens. splits: whether words are cut at
    spaces.

    Raises:
      ValueError: for treatment of white space that HF's parts cannot express: as a suffix, unescaped, or pieces that
        consist of spaces.
    """
    if normalizer["treat_whitespace_as_suffix"] or not normalizer["escape_whitespaces"]:
        raise ValueError("HF has no way to put spaces at the end of words, or to leave them unescaped")
    blank = [symbol for symbol in normalizer["user_defined_symbols"] if not symbol.strip(" ")]
    if blank and is_bpe and normalizer["remove_extra_whitespaces"]:
        raise ValueError(f"HF cannot keep the user-defined piece {blank[0]!r} where it removes extra spaces")
    steps: list[dict[str, Any]] = []
    if normalizer["precompiled_charsmap"]:
        steps.append({"type": "Precompiled", "precompiled_charsmap": normalizer["precompiled_charsmap"]})
    if normalizer["remove_extra_whitespaces"]:
        steps.append({"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "})
        # Only spaces; Strip would also remove line ends, and "^" means different things in different engines.
        steps.append({"type": "Replace", "pattern": {"Regex": r"(?<![\s\S]) | (?![\s\S])"}, "content": ""})
    # User-defined pieces cut a text into several, of which only the first gets a prefix: only Metaspace can tell.
    has_cuts = is_bpe and bool(normalizer["user_defined_symbols"])
    if normalizer["add_dummy_prefix"] and not has_cuts:
        steps.append({"type": "Prepend", "prepend": _SPACE})
    steps.append({"type": "Replace", "pattern": {"String": " "}, "content": _SPACE})
    scheme = "first" if normalizer["add_dummy_prefix"] and has_cuts else "never"
    metaspace = {"type": "Metaspace", "replacement": _SPACE, "prepend_scheme": scheme, "split": splits}
    return {"type": "Sequence", "normalizers": steps}, metaspace


def with_hf_steps(fields: dict[str, Any], splits: bool) -> dict[str, Any]:
    """Returns the fields of a `tokenizer.json` in a form that HF can load, unchanged if HF cannot express them."""
    normalizer, model = fields["normalizer"], fields["model"]
    if not normalizer or normalizer["type"] != _TYPE or fields["pre_tokenizer"]:
        return fields
    if not model or model["type"] not in _MODELS:
        return fields
    try:
        steps, metaspace = hf_steps(normalizer, is_bpe=model["type"] == "BPE", splits=splits)
    except ValueError:
        return fields
    options = {name: normalizer[name] for name in _OPTIONS}
    return fields | {"normalizer": steps, "pre_tokenizer": metaspace, "model": model | {_FIELD: options}}


_MODELS = ("BPE", "Unigram")


def without_hf_steps(fields: dict[str, Any], source: str) -> dict[str, Any]:
    """Undoes `with_hf_steps`.

    Raises:
      TokenizerFileError: if the options contradict HF's parts in the file, because one of them has been changed.
    """
    model = fields.get("model")
    if not isinstance(model, dict) or _FIELD not in model:
        return fields
    options, place = model[_FIELD], f"{source}.model.{_FIELD}"
    if not isinstance(options, dict) or set(options) != set(_OPTIONS):
        raise TokenizerFileError(f"{place}: expected an object with the fields {', '.join(_OPTIONS)}")
    steps, metaspace = fields.get("normalizer"), fields.get("pre_tokenizer")
    charsmap = ""
    if isinstance(steps, dict) and isinstance(steps.get("normalizers"), list):
        maps = [s for s in steps["normalizers"] if isinstance(s, dict) and s.get("type") == "Precompiled"]
        charsmap = maps[0].get("precompiled_charsmap", "") if maps else ""
    normalizer = {"type": _TYPE, "precompiled_charsmap": charsmap, **{name: options[name] for name in _OPTIONS}}
    splits = isinstance(metaspace, dict) and metaspace.get("split") is True
    try:
        expected = hf_steps(normalizer, is_bpe=model.get("type") == "BPE", splits=splits)
    except ValueError as error:
        raise TokenizerFileError(f"{place}: {error}") from error
    if expected != (steps, metaspace):
        raise TokenizerFileError(
            f"{place}: contradicts normalizer and pre_tokenizer, which have been changed; take it out to use only them"
        )
    rest = {key: value for key, value in model.items() if key != _FIELD}
    return fields | {"normalizer": normalizer, "pre_tokenizer": None, "model": rest}
