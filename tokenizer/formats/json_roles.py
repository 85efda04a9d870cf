# SPDX-License-Identifier: Apache-2.0
"""HF's types of everything but models: their fields in `tokenizer.json`."""

from typing import Any

from tokenmill.tokenizer import decoders, normalizers, post_processors, pre_tokenizers
from tokenmill.tokenizer.added_tokens import AddedToken
from tokenmill.tokenizer.formats.components import (
    Field,
    Spec,
    base64_bytes,
    flag,
    integer,
    names,
    optional,
    parts,
    pattern,
    text,
    with_pattern,
)
from tokenmill.tokenizer.formats.json_node import Node

_BEHAVIORS = {
    "Removed": "removed",
    "Isolated": "isolated",
    "MergedWithPrevious": "merged_with_previous",
    "MergedWithNext": "merged_with_next",
    "Contiguous": "contiguous",
}
_BYTE_LEVEL = (flag("add_prefix_space", True), flag("trim_offsets", True), flag("use_regex", True))
_UNICODE = text("unicode", "8", is_own=True)


def _scheme(node: Node) -> Any:
    return node.one_of({"always": "always", "never": "never", "first": "first"})


def _make_metaspace(make: Any) -> Any:
    """Accepts also the field of older files: `add_prefix_space`, which is now `prepend_scheme`."""

    def made(prepend_scheme: str | None, add_prefix_space: bool | None, str_rep: str | None, **rest: Any) -> Any:
        if prepend_scheme is None:
            prepend_scheme = "never" if add_prefix_space is False else "always"
        elif add_prefix_space is False and prepend_scheme != "never":
            raise ValueError(f"add_prefix_space is false, but prepend_scheme is {prepend_scheme!r}")
        if str_rep not in (None, rest["replacement"]):
            raise ValueError(f"str_rep {str_rep!r} is not the replacement {rest['replacement']!r}")
        return make(prepend_scheme=prepend_scheme, **rest)

    return made


def _metaspace(make: Any) -> Spec:
    return Spec(
        _make_metaspace(make),
        (text("replacement", "▁"), Field("prepend_scheme", "prepend_scheme", _scheme, None), flag("split", True)),
        legacy=(
            Field("add_prefix_space", "add_prefix_space", lambda node: node.flag(), None),
            Field("str_rep", "str_rep", lambda node: node.text(), None),
        ),
    )


NORMALIZERS: dict[str, Spec] = {
    "BertNormalizer": Spec(
        normalizers.BertNormalizer,
        (
            flag("clean_text", True),
            flag("handle_chinese_chars", True),
            optional("strip_accents", Node.flag),
            flag("lowercase", True),
            _UNICODE,
        ),
    ),
    "ByteLevel": Spec(normalizers.ByteLevel),
    "Lowercase": Spec(normalizers.Lowercase),
    "NFC": Spec(normalizers.NFC),
    "NFD": Spec(normalizers.NFD),
    "NFKC": Spec(normalizers.NFKC),
    "NFKD": Spec(normalizers.NFKD),
    "Nmt": Spec(normalizers.Nmt),
    "Precompiled": Spec(normalizers.Precompiled, (base64_bytes("precompiled_charsmap"),)),
    "Prepend": Spec(normalizers.Prepend, (text("prepend"),)),
    "Replace": Spec(with_pattern(normalizers.Replace), (pattern(), text("content"))),
    # Not a type of HF, which has no normalizer or sequence of normalizers that does what sentencepiece does.
    "SentencePieceNormalizer": Spec(
        normalizers.SentencePieceNormalizer,
        (
            base64_bytes("precompiled_charsmap"),
            flag("add_dummy_prefix", True),
            flag("remove_extra_whitespaces", True),
            flag("escape_whitespaces", True),
            flag("treat_whitespace_as_suffix", False),
            Field(
                "user_defined_symbols",
                "user_defined_symbols",
                lambda node: tuple(item.text() for item in node.items()),
                (),
                list,
            ),
        ),
    ),
    "Sequence": Spec(normalizers.Sequence, (parts("normalizers", lambda: NORMALIZERS),)),
    "Strip": Spec(normalizers.Strip, (flag("strip_left", True, "left"), flag("strip_right", True, "right"))),
    "StripAccents": Spec(normalizers.StripAccents),
}
"""Types of normalizers."""

PRE_TOKENIZERS: dict[str, Spec] = {
    "BertPreTokenizer": Spec(pre_tokenizers.BertPreTokenizer, (_UNICODE,)),
    "ByteLevel": Spec(pre_tokenizers.ByteLevel, (*_BYTE_LEVEL, _UNICODE)),
    "CharDelimiterSplit": Spec(pre_tokenizers.CharDelimiterSplit, (text("delimiter"),)),
    "Digits": Spec(pre_tokenizers.Digits, (flag("individual_digits", False),)),
    "FixedLength": Spec(pre_tokenizers.FixedLength, (integer("length", 5),)),
    "Metaspace": _metaspace(pre_tokenizers.Metaspace),
    "Punctuation": Spec(pre_tokenizers.Punctuation, (names("behavior", "isolated", **_BEHAVIORS),)),
    "Sequence": Spec(pre_tokenizers.Sequence, (parts("pretokenizers", lambda: PRE_TOKENIZERS),)),
    "Split": Spec(
        with_pattern(pre_tokenizers.Split),
        (pattern(), names("behavior", **_BEHAVIORS), flag("invert", False), _UNICODE),
    ),
    "UnicodeScripts": Spec(pre_tokenizers.UnicodeScripts),
    "Whitespace": Spec(pre_tokenizers.Whitespace),
    "WhitespaceSplit": Spec(pre_tokenizers.WhitespaceSplit),
}
"""Types of pre-tokenizers."""

DECODERS: dict[str, Spec] = {
    "BPEDecoder": Spec(decoders.BPEDecoder, (text("suffix", "</w>"),)),
    "ByteFallback": Spec(decoders.ByteFallback),
    "ByteLevel": Spec(decoders.ByteLevel, _BYTE_LEVEL),
    "CTC": Spec(decoders.CTC, (text("pad_token", "<pad>"), text("word_delimiter_token", "|"), flag("cleanup", True))),
    "Fuse": Spec(decoders.Fuse),
    "Metaspace": _metaspace(decoders.Metaspace),
    "Replace": Spec(with_pattern(decoders.Replace), (pattern(), text("content"))),
    "Sequence": Spec(decoders.Sequence, (parts("decoders", lambda: DECODERS),)),
    "Strip": Spec(decoders.Strip, (text("content", " "), integer("start", 0), integer("stop", 0))),
    "WordPiece": Spec(decoders.WordPiece, (text("prefix", "##"), flag("cleanup", True))),
}
"""Types of decoders."""


def _token_and_id(json: str) -> Field:
    def read(node: Node) -> tuple[str, int]:
        items = node.items()
        if len(items) != 2:
            raise node.fail(f"expected [token, id], got {len(items)} values")
        return items[0].text(), items[1].integer()

    return Field(json, json, read, write=list)


def _pieces(json: str) -> Field:
    """The places of a template."""

    def read(node: Node) -> post_processors.TemplatePiece:
        fields = node.object()
        if list(fields) not in (["Sequence"], ["SpecialToken"]):
            raise node.fail(f"expected Sequence or SpecialToken, got {', '.join(fields) or 'nothing'}")
        (name,) = fields
        inner = node.child(name)
        piece = inner.child("id").text(), inner.child("type_id").integer(), name == "Sequence"
        return post_processors.TemplatePiece(*piece)

    def write(piece: post_processors.TemplatePiece) -> dict[str, Any]:
        return {"Sequence" if piece.is_sequence else "SpecialToken": {"id": piece.name, "type_id": piece.type_id}}

    return Field(
        json, json, lambda node: tuple(map(read, node.items())), write=lambda template: list(map(write, template))
    )


def _read_special_token(node: Node) -> post_processors.SpecialToken:
    node.known("id", "ids", "tokens")
    ids = tuple(n.integer() for n in node.child("ids").items())
    tokens = tuple(n.text() for n in node.child("tokens").items())
    if len(ids) != len(tokens):
        raise node.fail(f"has {len(ids)} ids but {len(tokens)} tokens")
    return post_processors.SpecialToken(ids, tokens)


_SPECIAL_TOKENS = Field(
    "special_tokens",
    "special_tokens",
    lambda node: {name: _read_special_token(node.child(name)) for name in node.object()},
    write=lambda tokens: {
        name: {"id": name, "ids": list(token.ids), "tokens": list(token.tokens)}
        for name, token in sorted(tokens.items())
    },
)

POST_PROCESSORS: dict[str, Spec] = {
    "BertProcessing": Spec(post_processors.BertProcessing, (_token_and_id("sep"), _token_and_id("cls"))),
    "ByteLevel": Spec(post_processors.ByteLevel, _BYTE_LEVEL),
    "RobertaProcessing": Spec(
        post_processors.RobertaProcessing,
        (_token_and_id("sep"), _token_and_id("cls"), flag("trim_offsets"), flag("add_prefix_space")),
    ),
    "Sequence": Spec(post_processors.Sequence, (parts("processors", lambda: POST_PROCESSORS),)),
    "TemplateProcessing": Spec(
        post_processors.TemplateProcessing, (_pieces("single"), _pieces("pair"), _SPECIAL_TOKENS)
    ),
}
"""Types of post-processors."""

ADDED_TOKEN = Spec(
    AddedToken,
    (
        integer("id"),
        text("content"),
        *(flag(name, False) for name in ("single_word", "lstrip", "rstrip", "normalized", "special")),
    ),
)
"""An added token."""

_DIRECTION = names("direction", "right", Right="right", Left="left")

TRUNCATION = Spec(
    post_processors.Truncation,
    (
        _DIRECTION,
        integer("max_length"),
        names(
            "strategy", "longest_first",
            LongestFirst="longest_first", OnlyFirst="only_first", OnlySecond="only_second",
        ),
        integer("stride", 0),
    ),
)  # fmt: skip
"""How rows are cut."""

PADDING = Spec(
    post_processors.Padding,
    (
        Field(
            "strategy",
            "length",
            lambda node: None if node.value == "BatchLongest" else node.child("Fixed").integer(),
            write=lambda length: "BatchLongest" if length is None else {"Fixed": length},
        ),
        _DIRECTION,
        optional("pad_to_multiple_of", Node.integer),
        integer("pad_id", 0),
        integer("pad_type_id", 0),
        text("pad_token", "[PAD]"),
    ),
)
"""How rows are filled up."""
