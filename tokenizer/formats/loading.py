# SPDX-License-Identifier: Apache-2.0
"""Finding out what a tokenizer file is, from its content, and loading it."""

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tokenizer.core import Tokenizer
from tokenizer.errors import TokenizerFileError
from tokenizer.formats import bpe_files, files, sentencepiece, tiktoken_ranks, tokenizer_json, vocab_txt
from tokenizer.formats.json_vocabulary import parse_usual_tokenizer
from tokenizer.formats.sentencepiece_parts import tokenizer_parts

_VOCABULARY = re.compile(r'\{\s*"(?:[^"\\]|\\.){0,1000}"\s*:\s*-?\d')


def load(path: Path, cache_bytes: int, pattern: str | None = None) -> Tokenizer:
    """Loads a tokenizer file of any kind, or a directory as `transformers` saves it.

    The kind is seen from the content: `tokenizer.json`; `vocab.json` or `merges.txt`, with the other beside it, also as
    `NAME-vocab.json` and `NAME-merges.txt`; a SentencePiece model; CLIP's gzip of merges; tiktoken's ranks; and
    whatever else is text is a `vocab.txt`.

    Args:
      path: the file or directory.
      cache_bytes: memory of one word cache.
      pattern: for tiktoken's ranks, the name of the pattern that splits text.

    Raises:
      OSError: if it cannot be read; TokenizerFileError: if it is broken, not supported, or the directory holds nothing
        known.
    """
    with files.without_collecting():
        return _load_directory(path, cache_bytes) if path.is_dir() else _load_file(path, cache_bytes, pattern)


def _load_file(path: Path, cache_bytes: int, pattern: str | None) -> Tokenizer:
    data = files.read_bytes(path)
    if data[:2] == b"\x1f\x8b":
        return _compose(bpe_files.read_clip(data, str(path)), path, cache_bytes)
    if sentencepiece.looks_like_model(data):
        return from_sentencepiece(sentencepiece.read(data, str(path)), path, cache_bytes)
    # Of the kinds that are text this is the usual one; what is large in it is never made a str as a whole.
    if data[:64].lstrip()[:1] == b"{" and (root := parse_usual_tokenizer(data, str(path))) is not None:
        return tokenizer_json.read_parsed(root, cache_bytes)
    text = files.decode(data, path)
    start = text.lstrip("\ufeff \t\r\n")
    if start.startswith("{"):
        # A whole tokenizer has a model; a vocabulary has tokens and nothing but integers.
        if '"model"' in text and '"version"' in start[:200] + text[-200:]:
            return tokenizer_json.read(data, str(path), cache_bytes)
        if _VOCABULARY.match(start):
            merges = _beside(path, "a vocabulary of tokens and ids", "vocab.json", "merges.txt")
            return _compose(bpe_files.load_vocab_and_merges(path, merges), path, cache_bytes)
        return tokenizer_json.read(data, str(path), cache_bytes)
    if start.startswith("#version"):
        vocab = _beside(path, "a list of merges", "merges.txt", "vocab.json")
        return _compose(bpe_files.load_vocab_and_merges(vocab, path), path, cache_bytes)
    if pattern is not None or _looks_like_ranks(start):
        return _compose(tiktoken_ranks.read(text, str(path), pattern), path, cache_bytes)
    return _from_vocab(text, path, cache_bytes)


def _beside(path: Path, what: str, name: str, other: str) -> Path:
    """Returns the file that belongs to this one: of the same name with `other` for `name` in it, or named `other`."""
    names = [path.name.replace(name, other), other] if name in path.name else [other]
    for candidate in map(path.with_name, names):
        if candidate.is_file():
            return candidate
    wanted = " or ".join(dict.fromkeys(names))
    raise TokenizerFileError(f"{path}: this is {what}, which needs {wanted} beside it; put it there")


def _looks_like_ranks(text: str) -> bool:
    """Whether a text begins with lines of base64, a space and the number of the line: no vocabulary of words does."""
    lines = [line.split(" ") for line in text[:4096].splitlines()[:-1][:16]]
    return len(lines) >= 2 and all(len(line) == 2 and line[1] == str(i) for i, line in enumerate(lines))


def _load_directory(path: Path, cache_bytes: int) -> Tokenizer:
    from tokenizer.formats.transformers_folder import load_folder  # as long as half a dozen other modules

    tokenizer = load_folder(path, cache_bytes, from_sentencepiece)
    if tokenizer is None:
        raise TokenizerFileError(
            f"{path}: holds none of tokenizer.json, vocab.txt, vocab.json with merges.txt, or a sentencepiece model"
        )
    return tokenizer


def _compose(parts: dict[str, Any], path: Path, cache_bytes: int) -> Tokenizer:
    with _naming(path):
        return Tokenizer(**parts, cache_bytes=cache_bytes)


@contextlib.contextmanager
def _naming(path: Path | str) -> Iterator[None]:
    """Says in errors which file they are about, where they do not say yet."""
    try:
        yield
    except TokenizerFileError:
        raise
    except ValueError as error:
        raise TokenizerFileError(f"{path}: {error}") from error


def from_sentencepiece(model: sentencepiece.SentencePieceFile, path: Path | str, cache_bytes: int) -> Tokenizer:
    """Makes the tokenizer of a SentencePiece model.

    Raises:
      TokenizerFileError: if it is of a type, or holds something, that is not supported.
    """
    with _naming(path):
        return Tokenizer(**tokenizer_parts(model, str(path)), cache_bytes=cache_bytes)


def _from_vocab(text: str, path: Path, cache_bytes: int) -> Tokenizer:
    with _naming(path):
        return Tokenizer.for_bert(vocab_txt.read(text, str(path)), cache_bytes=cache_bytes)
