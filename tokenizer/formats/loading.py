# SPDX-License-Identifier: Apache-2.0
"""Recognizes the kind of a tokenizer file by its content, and reads it."""

import codecs
import contextlib
import dataclasses
import re
from collections.abc import Callable
from pathlib import Path

from tokenmill.tokenizer.compositions import bert_parts
from tokenmill.tokenizer.errors import TokenizerFileError
from tokenmill.tokenizer.formats import (
    bpe_files,
    files,
    lowered,
    sentencepiece,
    tiktoken_ranks,
    tokenizer_json,
    vocab_txt,
)
from tokenmill.tokenizer.formats.json_node import Node, parse
from tokenmill.tokenizer.formats.sentencepiece import tokenizer_parts
from tokenmill.tokenizer.normalizers import BertNormalizer
from tokenmill.tokenizer.parts import Parts

_VOCABULARY = re.compile(r'\{\s*"(?:[^"\\]|\\.){0,1000}"\s*:\s*-?(\d+)')
_ID = re.compile(r'":\s*(\d+)')
_JSON = re.compile(r'\{|\[\s*["{\[]')
_RANK = re.compile(r"[A-Za-z0-9+/]*={0,2} \d+")
_MERGE = re.compile(r"[^ \t]+ [^ \t]+")
_PAIRS = (("vocab.json", "merges.txt"), ("encoder.json", "vocab.bpe"))
"""Names under which a vocabulary and its merges stand beside each other; the second are OpenAI's own."""


@dataclasses.dataclass(frozen=True)
class _Options:
    pattern: str | None
    as_class: str | None = None
    is_buffer: bool = False
    """Whether there is no file, so that none is beside it."""

    def only(self, path: Path, what: str, *names: str) -> None:
        """Raises an error for an option that is given but has no effect, because it is not among `names`."""
        for name in {"pattern", "as_class"} - set(names):
            if (value := getattr(self, name)) is not None:
                raise TokenizerFileError(
                    f"{path}: this is {what}, on which {name}={value!r} has no effect; leave it out"
                )


def load(path: Path, pattern: str | None = None, as_class: str | None = None) -> Parts:
    """Reads a tokenizer file of any kind, or a directory as `transformers` saves it.

    The kind is recognized by the content: `tokenizer.json`; `vocab.json` or `merges.txt`, with the other beside it, or
    `NAME-vocab.json` and `NAME-merges.txt`, or `encoder.json` and `vocab.bpe`; a SentencePiece model; CLIP's gzip of
    merges; tiktoken's ranks; Mistral's `tekken.json`; any other text is a `vocab.txt`.

    Args:
      path: the file or directory.
      pattern: for tiktoken's ranks, the pattern that splits text, or its name.
      as_class: the class of `transformers` that reads a `vocab.txt`, a `vocab.json` with `merges.txt` or a
        SentencePiece model, or a directory that holds one of them.

    Raises:
      OSError: if it cannot be read; TokenizerFileError: if it is broken or not supported, the directory has no known
        file, the class is not known, or `pattern` or `as_class` would have no effect.
    """
    options = _Options(pattern, as_class)
    with files.without_collecting():
        if path.is_dir():
            parts = lowered.kept_folder(path, lambda: _load_directory(path, options), pattern, as_class)
        else:
            parts = _load_file(path, options)
        name = _named_padding(parts, path)
        return parts if name is None else dataclasses.replace(parts, pad_token=name)


def _named_padding(parts: Parts, path: Path) -> str | None:
    """Returns the padding token that the settings beside a file name, else its own padding, if it is a token."""
    folder, names = path if path.is_dir() else path.parent, []
    if any((folder / name).is_file() for name in ("tokenizer_config.json", "special_tokens_map.json")):
        from tokenmill.tokenizer.formats import transformers_classes

        with contextlib.suppress(TokenizerFileError):  # what is wrong beside a file does not matter for its ids
            roles = transformers_classes.read_settings(folder).roles
            names += [roles["pad"].content] if "pad" in roles else []
    names += [] if parts.padding is None else [parts.padding.pad_token]
    return next((name for name in names if parts.token_to_id(name) is not None), None)


def load_buffer(data: bytes, pattern: str | None = None) -> Parts:
    """Reads the bytes of a single file of any kind; otherwise as `load`."""
    path = Path("buffer")
    with files.without_collecting():
        files.check_kind(data, path)
        return _load_bytes(data.removeprefix(codecs.BOM_UTF8), path, _Options(pattern, is_buffer=True))


def _load_file(path: Path, options: _Options) -> Parts:
    return _load_bytes(files.read_bytes(path), path, options)


def _load_bytes(data: bytes, path: Path, options: _Options) -> Parts:
    if data[:2] == b"\x1f\x8b":
        options.only(path, "a gzip of merges")
        return _kept(data, path, lambda: bpe_files.read_clip(data, str(path)))
    if sentencepiece.looks_like_model(data):
        options.only(path, "a SentencePiece model", "as_class")
        if options.as_class is not None:
            return _load_as(path, options)
        return _kept(data, path, lambda: tokenizer_parts(sentencepiece.read(data, str(path)), str(path)))
    text = files.decode(data, path)
    start = text.lstrip(" \t\r\n")
    if _JSON.match(start):
        # A whole tokenizer has a model; a vocabulary has only tokens and integers.
        is_whole = '"model"' in text and '"version"' in start[:200] + text[-200:]
        if not is_whole and (found := _VOCABULARY.match(start)):
            if int(found[1][:18]) and min(ids := [int(i[:18]) for i in _ID.findall(text)], default=0) >= len(ids):
                raise TokenizerFileError(
                    f"{path}: these are added tokens, whose ids go on where those of a vocabulary end; name the "
                    "folder, or tokenizer.json"
                )
            return _from_merges(path, _beside(path, "a vocabulary of tokens and ids", 0, options), options)
        options.only(path, "a tokenizer in JSON, which says all itself")
        return _kept(data, path, lambda: _from_json(parse(text, str(path), repeats=True), path))
    lines = start[: files.N_FIRST_BYTES].splitlines()[: files.N_LINES]
    if options.pattern is not None or (len(lines) > 1 and all(map(_RANK.fullmatch, lines))):
        options.only(path, "tiktoken's ranks", "pattern")
        return _kept(data, path, lambda: tiktoken_ranks.read(text, str(path), options.pattern), options.pattern)
    if start.startswith("#version") or (len(lines) > 1 and all(map(_MERGE.fullmatch, lines))):
        return _from_merges(_beside(path, "a list of merges", 1, options), path, options)
    options.only(path, "a vocab.txt", "as_class")
    if options.as_class is not None:
        return _load_as(path, options)
    return _kept(data, path, lambda: _from_vocab(text, path))


def _kept(data: bytes, path: Path, make: Callable[[], Parts], pattern: str | None = None) -> Parts:
    """Returns the parts that are made of a file alone, as this module recognizes it; see `lowered.kept`."""
    return lowered.kept([data], str(path), make, "recognized", pattern)


def _from_json(root: Node, path: Path) -> Parts:
    if what := files.describe_json(root.object()):
        raise TokenizerFileError(f"{path}: this is {what}")
    return tiktoken_ranks.read_tekken(root) if tiktoken_ranks.is_tekken(root) else tokenizer_json.read_parsed(root)


def _from_merges(vocab: Path, merges: Path, options: _Options) -> Parts:
    options.only(vocab, "a vocabulary with merges", "as_class")
    if options.as_class is not None:
        return _load_as(vocab, options, merges)
    return bpe_files.load_vocab_and_merges(vocab, merges)


def _beside(path: Path, what: str, which: int, options: _Options) -> Path:
    """Returns the file that belongs to this one, `which` of the two: with the other name in place of its own."""
    pairs = [pair for pair in _PAIRS if pair[which] in path.name] or _PAIRS
    names = [path.name.replace(pair[which], pair[1 - which]) for pair in pairs] + [pair[1 - which] for pair in pairs]
    for candidate in () if options.is_buffer else map(path.with_name, names):
        if candidate.is_file() and candidate != path:  # a name without either stays
            return candidate
    wanted = " or ".join(name for name in dict.fromkeys(names) if name != path.name)
    needs = "which needs another file; load both from files" if options.is_buffer else f"which needs {wanted} beside it"
    raise TokenizerFileError(f"{path}: this is {what}, {needs}{'' if options.is_buffer else '; put it there'}")


def _load_as(path: Path, options: _Options, merges: Path | None = None) -> Parts:
    from tokenmill.tokenizer.formats import transformers_folder  # takes as long to import as half a dozen other modules

    assert options.as_class is not None
    return transformers_folder.load_file(path, options.as_class, merges)


def _load_directory(path: Path, options: _Options) -> Parts:
    from tokenmill.tokenizer.formats import transformers_folder

    if (path / "tokenizer.json").is_file():
        options.only(path, "a folder with a tokenizer.json, which says all itself")
        return transformers_folder.load_json(path)
    if (ranks := transformers_folder.ranks_in(path)) is not None:
        return transformers_folder.load_ranks(path, ranks, options.pattern, options.as_class)
    if (path / "tekken.json").is_file():
        return _load_file(path / "tekken.json", options)
    options.only(path, "a folder as transformers saves it", "as_class")
    return transformers_folder.load_slow(path, options.as_class)


def _from_vocab(text: str, path: Path) -> Parts:
    vocab = vocab_txt.read(text, str(path))
    if "[UNK]" not in vocab:
        raise TokenizerFileError(
            f"{path}: read as a vocab.txt, which is what a text without any other mark is, it has no unknown token "
            f"'[UNK]' on a line of its own, but {len(vocab)} lines that begin with {next(iter(vocab))[:40]!r}; name a "
            "tokenizer.json, vocab.txt, vocab.json with merges.txt, SentencePiece model, or tiktoken's ranks"
        )
    is_lower, assumptions = vocab_txt.assume_case(vocab, str(path))
    with files.named_in_errors(path):
        parts = bert_parts(vocab, BertNormalizer(lowercase=is_lower))
    return dataclasses.replace(parts, assumptions=(*assumptions, *vocab_txt.say_repeated(vocab, str(path))))
