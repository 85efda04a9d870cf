# SPDX-License-Identifier: Apache-2.0
"""BPE without a `tokenizer.json`: `vocab.json` + `merges.txt`, CLIP's gzip of merges.

These files hold the model only. What stands around it is known from the family: GPT-2's pre-tokenizer, CLIP's clean-up.
"""

import io
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tokenizer import decoders, normalizers, pre_tokenizers
from tokenizer.added_tokens import AddedToken
from tokenizer.errors import TokenizerFileError
from tokenizer.formats import files
from tokenizer.formats.json_vocabulary import parse_vocab
from tokenizer.models import BPE
from tokenizer.models.bpe import BYTE_ALPHABET
from tokenizer.models.vocabulary import Vocabulary
from tokenizer.post_processors import BertProcessing

CLIP_SUFFIX = "</w>"
_CLIP_START, _CLIP_END = "<|startoftext|>", "<|endoftext|>"
_MAX_CLIP_BYTES = 32 << 20
"""OpenAI's file unpacks to three megabytes."""
_N_CLIP_MERGES = 49152 - 256 - 2
_CLIP_PATTERN = r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
_BYTE_ORDER = sorted(BYTE_ALPHABET, key=lambda c: (ord(c) > 0xFF, ord(c)))
"""The byte alphabet as GPT-2's code lists it: printable bytes first."""


def read_vocab_json(text: str, source: str) -> Mapping[str, int]:
    """Returns token -> id of the text of a `vocab.json`."""
    node = parse_vocab(text, source)
    if isinstance(node.value, Vocabulary):
        return node.value
    vocab = node.object()
    if not set(map(type, vocab.values())) <= {int}:
        token, token_id = next(item for item in vocab.items() if type(item[1]) is not int)
        raise node.fail(f"id of {token!r} must be an integer, got {token_id!r}")
    return vocab


def read_merges(text: str, source: str) -> list[tuple[str, str]]:
    """Returns the pairs of a `merges.txt`: two tokens a line, after a line with the version."""
    return _read_plain_merges(text) or _read_any_merges(text, source)


def _read_plain_merges(text: str) -> list[tuple[str, str]]:
    """Reads lines that are ended by line feeds; nothing where one is not two tokens with a space between."""
    body = text.partition("\n")[2] if text.startswith("#version") else text
    body = body.removesuffix("\n")
    data = np.frombuffer(body.encode("utf-8", "surrogatepass"), np.uint8)
    separators = data[(data == ord(" ")) | (data == ord("\n"))]
    if (separators[::2] != ord(" ")).any() or (separators[1::2] != ord("\n")).any() or separators.size % 2 == 0:
        return []
    tokens = body.replace("\n", " ").split(" ")
    return [] if "" in tokens or "\r" in body else list(zip(tokens[::2], tokens[1::2], strict=True))


def _read_any_merges(text: str, source: str) -> list[tuple[str, str]]:
    lines = text.split("\n")
    if lines and lines[-1] == "":
        lines.pop()
    n_skipped = int(bool(lines) and lines[0].startswith("#version"))
    merges = []
    for number, line in enumerate(lines[n_skipped:], n_skipped + 1):
        tokens = tuple(line.removesuffix("\r").split(" "))
        if len(tokens) != 2 or "" in tokens:
            raise TokenizerFileError(f"{source}, line {number}: expected two tokens with a space between, got {line!r}")
        merges.append(tokens)
    return merges


def vocab_and_merges(vocab: Mapping[str, int], merges: list[tuple[str, str]]) -> dict[str, Any]:
    """Returns the parts of a tokenizer: GPT-2's, or CLIP's where tokens end in `</w>`."""
    if any(token.endswith(CLIP_SUFFIX) for token in vocab):
        return _clip_parts(vocab, merges)
    end = vocab.get("<|endoftext|>")
    return {
        "model": BPE(vocab, merges, byte_level=True),
        "pre_tokenizer": pre_tokenizers.ByteLevel(add_prefix_space=False),
        "decoder": decoders.ByteLevel(),
        "added_tokens": [] if end is None else [AddedToken(end, "<|endoftext|>")],
    }


def _clip_parts(vocab: Mapping[str, int], merges: list[tuple[str, str]]) -> dict[str, Any]:
    special = [t for t in (_CLIP_START, _CLIP_END) if t in vocab]
    unk_token = _CLIP_END if _CLIP_END in vocab else None
    model = BPE(vocab, merges, unk_token=unk_token, end_of_word_suffix=CLIP_SUFFIX, byte_level=True)
    return {
        "model": model,
        "normalizer": normalizers.Sequence(
            (normalizers.NFC(), normalizers.Replace(r"\s+", " ", is_regex=True), normalizers.Lowercase())
        ),
        "pre_tokenizer": pre_tokenizers.Sequence(
            (
                pre_tokenizers.Split(_CLIP_PATTERN, "removed", invert=True, is_regex=True),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            )
        ),
        "post_processor": BertProcessing((_CLIP_END, vocab[_CLIP_END]), (_CLIP_START, vocab[_CLIP_START]))
        if len(special) == 2
        else None,
        "decoder": decoders.Sequence(
            (decoders.ByteLevel(), decoders.Replace(CLIP_SUFFIX, " "), decoders.Strip(" ", 0, 1))
        ),
        "added_tokens": [AddedToken(vocab[t], t) for t in special],
    }


def read_clip(data: bytes, source: str) -> dict[str, Any]:
    """Returns the parts of CLIP's tokenizer from OpenAI's gzip of merges.

    Its normalizer is that of HF. OpenAI's `simple_tokenizer.py`, the source of all else, mends text with ftfy and HTML
    entities: `tokenizer.text.TextTokenizer.for_clip` does, too.
    """
    import gzip  # only CLIP's file is packed

    try:
        with gzip.open(io.BytesIO(data)) as handle:
            raw = handle.read(_MAX_CLIP_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise TokenizerFileError(f"{source}: broken gzip: {error}") from error
    if len(raw) > _MAX_CLIP_BYTES:
        raise TokenizerFileError(f"{source}: unpacks to more than {_MAX_CLIP_BYTES} bytes")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise TokenizerFileError(f"{source}: not UTF-8 at byte {error.start}") from error
    header, _, body = text.partition("\n")
    if "#version" not in header:
        raise TokenizerFileError(
            f"{source}: expected a first line with '#version', as CLIP's merges have, got {header[:80]!r}"
        )
    lines = body.split("\n", _N_CLIP_MERGES)[:_N_CLIP_MERGES]  # the file goes on with many more
    merges = read_merges("\n".join(lines), source)
    tokens = [
        *_BYTE_ORDER,
        *(c + CLIP_SUFFIX for c in _BYTE_ORDER),
        *(a + b for a, b in merges),
        _CLIP_START,
        _CLIP_END,
    ]
    return _clip_parts({token: i for i, token in enumerate(tokens)}, merges)


def load_vocab_and_merges(vocab: Path, merges: Path) -> dict[str, Any]:
    """Reads the two files; see `vocab_and_merges`."""
    return vocab_and_merges(
        read_vocab_json(files.read_text(vocab), str(vocab)), read_merges(files.read_text(merges), str(merges))
    )
