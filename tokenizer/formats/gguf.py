# SPDX-License-Identifier: Apache-2.0
"""The tokenizer in a GGUF file: its metadata, in front of the weights, which are not read.

Sources: the package gguf 0.19 for the format; llama.cpp's `convert_hf_to_gguf.py`, which writes such files.
"""

import dataclasses
import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tokenmill.tokenizer import decoders, pre_tokenizers
from tokenmill.tokenizer.added_tokens import AddedToken
from tokenmill.tokenizer.compositions import bert_parts
from tokenmill.tokenizer.errors import TokenizerFileError
from tokenmill.tokenizer.formats import bpe_files, files, vocab_txt
from tokenmill.tokenizer.formats.sentencepiece import BPE as SENTENCEPIECE_BPE
from tokenmill.tokenizer.formats.sentencepiece import UNIGRAM, NormalizerSpec, SentencePieceFile, TrainerSpec
from tokenmill.tokenizer.formats.sentencepiece_parts import tokenizer_parts
from tokenmill.tokenizer.models import BPE
from tokenmill.tokenizer.models.unigram import PieceType
from tokenmill.tokenizer.normalizers import BertNormalizer
from tokenmill.tokenizer.parts import Parts
from tokenmill.tokenizer.post_processors import template_of
from tokenmill.tokenizer.pre_tokenizers.scanner_patterns import TIKTOKEN_PATTERNS

_MAX_DEPTH = 4
_MAX_VALUES = 1 << 22
"""The most values of one array; no vocabulary has as many entries or merges."""
_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
"""Number of a type of GGUF -> its letter in `struct`."""
_TEXT, _ARRAY = 8, 9
_PATTERNS = {
    **dict.fromkeys(("gpt-2", "gpt2", "phi-2", "mpt", "olmo", "jais", "roberta-bpe"), "gpt2"),
    **dict.fromkeys(("llama-bpe", "llama3", "llama-v3", "smaug-bpe", "dbrx", "glm4", "chatglm-bpe"), "llama3"),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen", "megrez", "stablelm2"), "qwen"),
    **dict.fromkeys(("gpt-4o", "llama4", "kanana2"), "o200k_base"),
    "tekken": "tekken",
    "kimi-k2": "kimi_k2",
}
"""`tokenizer.ggml.pre` -> the name of the pattern that splits text."""
_WHOLE_WORDS = ("llama3", "tekken", "kimi_k2")
"""Patterns of families in which a word that is a token is not merged."""


class _Reader:
    """Reads values one after the other; each length is checked against the bytes that are there."""

    def __init__(self, data: bytes, source: str) -> None:
        self.data, self.source, self.at = data, source, len(files.GGUF)

    def take(self, size: int) -> int:
        """Returns where the next `size` bytes begin, and goes on after them."""
        start = self.at
        if not 0 <= size <= len(self.data) - start:
            raise TokenizerFileError(
                f"{self.source}: a GGUF file whose metadata ends, at byte {start}, within a value of {size} bytes"
            )
        self.at += size
        return start

    def number(self, letter: str) -> Any:
        return struct.unpack_from(f"<{letter}", self.data, self.take(struct.calcsize(f"<{letter}")))[0]

    def text(self) -> str:
        size = self.number("Q")
        start = self.take(size)
        return files.decode(self.data[start : start + size], self.source)

    def value(self, kind: int, depth: int = 0) -> Any:
        if kind in _NUMBERS:
            return self.number(_NUMBERS[kind])
        if kind == _TEXT:
            return self.text()
        if kind != _ARRAY or depth > _MAX_DEPTH:
            raise TokenizerFileError(f"{self.source}: a GGUF file with a value of the unknown type {kind}")
        inner, n = self.number("I"), self.number("Q")
        if n > _MAX_VALUES:
            raise TokenizerFileError(f"{self.source}: a GGUF file with an array of {n} values, more than {_MAX_VALUES}")
        if inner in _NUMBERS:
            size = struct.calcsize(_NUMBERS[inner])
            start = self.take(n * size)
            return list(struct.unpack_from(f"<{n}{_NUMBERS[inner]}", self.data, start))
        return [self.value(inner, depth + 1) for _ in range(n)]


def metadata(data: bytes, source: str) -> dict[str, Any]:
    """Returns the metadata of a file, by key.

    Raises:
      TokenizerFileError: if it is broken, or of a version that is not read.
    """
    reader = _Reader(data, source)
    version = reader.number("I")
    if version not in (2, 3):
        raise TokenizerFileError(
            f"{source}: a GGUF file of version {version}; only 2 and 3 are read, with the lowest byte first"
        )
    reader.take(8)  # the number of tensors
    found: dict[str, Any] = {}
    for _ in range(reader.number("Q")):
        key = reader.text()
        found[key] = reader.value(reader.number("I"))
    return found


def read(data: bytes, source: str, pattern: str | None = None) -> Parts:
    """Returns the parts of the tokenizer in a GGUF file.

    Args:
      data: the file, or its first `files.MAX_GGUF_BYTES`.
      source: its name in messages.
      pattern: for byte-level BPE, what splits text: a name in `TIKTOKEN_PATTERNS`; None for what the file says.

    Raises:
      TokenizerFileError: if it is broken, has no tokenizer, or one that is not supported.
    """
    values = metadata(data, source)
    model = values.get("tokenizer.ggml.model", "none")
    if not isinstance(model, str) or model not in _READERS:
        raise TokenizerFileError(
            f"{source}: a GGUF file whose tokenizer is {str(model)[:80]!r}; supported are {', '.join(_READERS)}; use "
            "the tokenizer files of the model that it was made from"
        )
    if pattern is not None and (model != "gpt2" or pattern not in TIKTOKEN_PATTERNS):
        raise TokenizerFileError(
            f"{source}: pattern={pattern!r} has no effect on a GGUF file of {model}; for gpt2 it is one of "
            f"{', '.join(TIKTOKEN_PATTERNS)}"
        )
    with files.named_in_errors(source):
        return _READERS[model](_Fields(values, source), pattern)


class _Fields:
    """The fields `tokenizer.ggml.*`, checked."""

    def __init__(self, values: Mapping[str, Any], source: str) -> None:
        self.values, self.source = values, source
        self.tokens: list[str] = self.list("tokens", str)
        if not self.tokens:
            raise self.fail("tokens", "has no tokens")
        self.types: list[int] = self.list("token_type", int) or [int(PieceType.NORMAL)] * len(self.tokens)
        if len(self.types) != len(self.tokens):
            raise self.fail("token_type", f"has {len(self.types)} values for {len(self.tokens)} tokens")

    def fail(self, name: str, problem: str) -> TokenizerFileError:
        return TokenizerFileError(f"{self.source}: tokenizer.ggml.{name} {problem}")

    def get(self, name: str, kind: type, default: Any) -> Any:
        value = self.values.get(f"tokenizer.ggml.{name}", default)
        if value is not None and type(value) is not kind:
            raise self.fail(name, f"must be {kind.__name__}, got {str(value)[:80]!r}")
        return value

    def text(self, name: str, default: str = "") -> str:
        return str(self.get(name, str, default))

    def flag(self, name: str, default: bool) -> bool:
        return bool(self.get(name, bool, default))

    def list(self, name: str, kind: type) -> list[Any]:
        found = self.get(name, list, [])
        if not set(map(type, found)) <= {kind}:
            raise self.fail(name, f"must be a list of {kind.__name__}")
        return list(found)

    def token(self, role: str) -> tuple[int, str] | None:
        """Returns the id and the text of the token of a role, None if there is none."""
        token_id = self.get(f"{role}_token_id", int, None)
        if token_id is None or token_id == 0xFFFFFFFF:
            return None
        if not 0 <= token_id < len(self.tokens):
            raise self.fail(f"{role}_token_id", f"must be below {len(self.tokens)}, got {token_id}")
        return token_id, self.tokens[token_id]

    def of_type(self, *kinds: PieceType) -> Iterator[tuple[int, str]]:
        return ((i, self.tokens[i]) for i, kind in enumerate(self.types) if kind in kinds)

    def laid_out(self, parts: Parts, begins: bool, ends: bool) -> Parts:
        """Puts the first and the last token around texts, as `add_bos_token` and `add_eos_token` say."""
        first = self.token("bos") if self.flag("add_bos_token", begins) else None
        last = self.token("eos") if self.flag("add_eos_token", ends) else None
        found = {role: token for role, token in (("bos", first), ("eos", last)) if token is not None}
        if not found:
            return parts
        before, after = "bos " * ("bos" in found), " eos" * ("eos" in found)
        single, second = f"{before}A{after}", f"{before.replace(' ', ':1 ')}B:1{after}{':1' * bool(after)}"
        layout = template_of((single, f"{single} {second}"), found.__getitem__)
        return dataclasses.replace(parts, post_processor=layout)


def _byte_level(fields: _Fields, pattern: str | None) -> Parts:
    said = fields.text("pre")
    name = pattern or _PATTERNS.get(said)
    if name is None:
        raise TokenizerFileError(
            f"{fields.source}: tokenizer.ggml.pre is {said!r}, which says how text is split, and is not known; pass "
            f"pattern= (tokenizer.pattern in a config), one of {', '.join(TIKTOKEN_PATTERNS)}"
        )
    merges = [tuple(merge.split(" ")) for merge in fields.list("merges", str)]
    if any(len(merge) != 2 for merge in merges):
        raise fields.fail("merges", "must be pairs of tokens with a space between")
    outside = dict(fields.of_type(PieceType.CONTROL, PieceType.USER_DEFINED, PieceType.UNUSED, PieceType.UNKNOWN))
    vocab = {token: i for i, token in enumerate(fields.tokens) if i not in outside}
    added = [AddedToken(i, token) for i, token in fields.of_type(PieceType.CONTROL, PieceType.UNKNOWN)]
    own = fields.of_type(PieceType.USER_DEFINED)
    added += [AddedToken(i, token, normalized=False, special=False) for i, token in own]
    split = pre_tokenizers.Split(TIKTOKEN_PATTERNS[name], "isolated", is_regex=True)
    steps = bpe_files.parts_of("qwen2" if name == "qwen" else "gpt2", vocab, merges)
    if name not in ("qwen", "gpt2"):
        words = pre_tokenizers.Sequence((split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)))
        model = BPE(vocab, merges, byte_level=True, ignore_merges=name in _WHOLE_WORDS)
        steps = Parts(model=model, pre_tokenizer=words, decoder=decoders.ByteLevel())
    parts = dataclasses.replace(steps, added_tokens=sorted(added, key=lambda token: token.id))
    return fields.laid_out(parts, begins=name == "llama3", ends=False)


def _sentencepiece(fields: _Fields, model_type: int) -> SentencePieceFile:
    scores = fields.list("scores", float)
    if len(scores) != len(fields.tokens):
        raise fields.fail("scores", f"has {len(scores)} values for {len(fields.tokens)} tokens")
    charsmap = fields.list("precompiled_charsmap", int)
    if not all(-0x80 <= byte <= 0xFF for byte in charsmap):
        raise fields.fail("precompiled_charsmap", "must be bytes")
    is_bpe = model_type == SENTENCEPIECE_BPE
    roles = [fields.token(role) for role in ("unknown", "bos", "eos", "padding")]
    unk_id, bos_id, eos_id, pad_id = (-1 if token is None else token[0] for token in roles)
    trainer = TrainerSpec(
        model_type, byte_fallback=int(PieceType.BYTE) in fields.types, unk_id=max(unk_id, 0), bos_id=bos_id,
        eos_id=eos_id, pad_id=pad_id,
    )  # fmt: skip
    normalizer = NormalizerSpec(
        precompiled_charsmap=bytes(each & 0xFF for each in charsmap),
        add_dummy_prefix=fields.flag("add_space_prefix", is_bpe),
        remove_extra_whitespaces=fields.flag("remove_extra_whitespaces", False),
    )
    # Fillers such as "[PAD32000]" are unused; no text becomes one either way.
    unused = int(PieceType.UNUSED)
    types = [int(PieceType.CONTROL) if is_bpe and kind == unused else kind for kind in fields.types]
    return SentencePieceFile.of(fields.tokens, scores, types, trainer=trainer, normalizer=normalizer)


def _llama(fields: _Fields, pattern: None) -> Parts:
    return fields.laid_out(tokenizer_parts(_sentencepiece(fields, SENTENCEPIECE_BPE), fields.source), True, False)


def _t5(fields: _Fields, pattern: None) -> Parts:
    return fields.laid_out(tokenizer_parts(_sentencepiece(fields, UNIGRAM), fields.source), False, True)


def _bert(fields: _Fields, pattern: None) -> Parts:
    """Returns BERT's tokenizer: tokens that begin a word have a "▁" in front, others no "##"."""
    control = set(fields.of_type(PieceType.CONTROL, PieceType.UNKNOWN))
    vocab = {}
    for i, token in enumerate(fields.tokens):
        spelled = token[1:] if token.startswith("▁") else f"##{token}"
        vocab[token if (i, token) in control else spelled] = i
    if len(vocab) != len(fields.tokens):
        raise fields.fail("tokens", "has a token twice")
    is_lower, assumptions = vocab_txt.assume_case(vocab, fields.source)
    return dataclasses.replace(bert_parts(vocab, BertNormalizer(lowercase=is_lower)), assumptions=assumptions)


_READERS: dict[str, Callable[[_Fields, Any], Parts]] = {
    "gpt2": _byte_level,
    "llama": _llama,
    "t5": _t5,
    "bert": _bert,
}
"""`tokenizer.ggml.model` -> what makes a tokenizer of it."""
