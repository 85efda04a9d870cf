# SPDX-License-Identifier: Apache-2.0
"""Finding out what a tokenizer file is, from its content, and loading it."""

import json
from pathlib import Path

from tokenizer.core import Tokenizer
from tokenizer.errors import TokenizerFileError
from tokenizer.formats import files, tokenizer_json, vocab_txt


def load(path: Path, cache_bytes: int) -> Tokenizer:
    """Loads a `tokenizer.json`, a `vocab.txt`, or a directory that holds one of them; the first wins.

    Raises:
      OSError: if it cannot be read; TokenizerFileError: if it is broken, not supported, or the directory has neither.
    """
    if path.is_dir():
        return _load_directory(path, cache_bytes)
    text = files.read_text(path)
    if text.lstrip("\ufeff \t\r\n").startswith("{"):
        return tokenizer_json.read(text, str(path), cache_bytes)
    return _from_vocab(text, path, {}, cache_bytes)


def _load_directory(path: Path, cache_bytes: int) -> Tokenizer:
    whole, vocab, config = path / "tokenizer.json", path / "vocab.txt", path / "tokenizer_config.json"
    if whole.is_file():
        return tokenizer_json.read(files.read_text(whole), str(whole), cache_bytes)
    if vocab.is_file():
        options = _bert_options(config) if config.is_file() else {}
        return _from_vocab(files.read_text(vocab), vocab, options, cache_bytes)
    raise TokenizerFileError(f"{path}: holds neither tokenizer.json nor vocab.txt")


def _from_vocab(text: str, path: Path, options: dict[str, bool | None], cache_bytes: int) -> Tokenizer:
    try:
        return Tokenizer.for_bert(vocab_txt.read(text, str(path)), cache_bytes=cache_bytes, **options)  # type: ignore[arg-type]
    except TokenizerFileError:
        raise
    except ValueError as error:
        raise TokenizerFileError(f"{path}: {error}") from error


def _bert_options(path: Path) -> dict[str, bool | None]:
    """Reads what `transformers` notes beside a vocabulary: its names for the options of BERT's normalizer."""
    try:
        config = json.loads(files.read_text(path))
    except (json.JSONDecodeError, RecursionError) as error:
        raise TokenizerFileError(f"{path}: not JSON: {error}") from error
    if not isinstance(config, dict):
        raise TokenizerFileError(f"{path}: expected an object, got {type(config).__name__}")
    names = {
        "do_lower_case": "lowercase",
        "strip_accents": "strip_accents",
        "tokenize_chinese_chars": "handle_chinese_chars",
    }
    options: dict[str, bool | None] = {}
    for theirs, ours in names.items():
        if theirs in config:
            value = config[theirs]
            if value is None and theirs == "strip_accents":
                continue
            if not isinstance(value, bool):
                raise TokenizerFileError(f"{path}: {theirs} must be true or false, got {value!r}")
            options[ours] = value
    return options
