# SPDX-License-Identifier: Apache-2.0
"""Large vocabularies in JSON: a kernel reads those that are written as usual, Python's JSON reads the others."""

from typing import Any

import numpy as np
import numpy.typing as npt

from tokenmill.tokenizer.errors import TokenizerFileError
from tokenmill.tokenizer.formats import files
from tokenmill.tokenizer.formats import json_vocabulary_kernels as kernels
from tokenmill.tokenizer.formats.json_node import Node, parse
from tokenmill.tokenizer.models.bpe_merges import MergesOfIds
from tokenmill.tokenizer.models.bpe_tables import Merges
from tokenmill.tokenizer.models.ids import MAX_ID
from tokenmill.tokenizer.models.vocabulary import WORD_PADDING, ScoredTokens, Tokens, Vocabulary

_SPACES = " \t\n\r"
LARGE = 1 << 19
"""Files of this many bytes or more go to the kernel: Python's JSON reads others in a few hundredths of a second."""


def parse_tokenizer(data: bytes, source: str) -> Node:
    """Parses the UTF-8 of a `tokenizer.json` as `json_node.parse` does.

    But `model.merges` may be a `MergesOfIds`, and `model.vocab` a `Vocabulary` or `ScoredTokens`.

    Raises:
      TokenizerFileError: as `parse`, or if it is not UTF-8.
    """
    usual = parse_usual_tokenizer(data, source) if len(data) >= LARGE else None
    return usual or parse(files.decode(data, source), source)


def parse_vocab(text: str, source: str) -> Node:
    """Parses a `vocab.json` as `json_node.parse` does.

    Raises:
      TokenizerFileError: as `parse`.
    """
    data = _padded(text.encode())
    tokens, offsets, ids = _room(data)
    n, end = kernels.read_vocab(data, len(text) - len(text.lstrip(_SPACES)), tokens, offsets, ids)
    if end >= 0 and not data[end:-WORD_PADDING].tobytes().strip(_SPACES.encode()):
        vocab = _vocab(tokens, offsets[: n + 1], ids[:n])
        if vocab is not None:
            return Node(vocab, source)
    return parse(text, source)


def parse_usual_tokenizer(text: bytes, source: str) -> Node | None:
    """Does `parse_tokenizer` with the kernel; None if Python's JSON must decide: errors and unusual spellings."""
    data = _padded(text)
    tokens, token_offsets, ids = _room(data)
    scores = np.empty(ids.size)
    parts, part_offsets = np.empty(data.size, np.uint8), np.empty(data.size // 3, np.int64)
    counts, spans = np.zeros(2, np.int64), np.zeros((2, 2), np.int64)
    end = kernels.read_model(data, tokens, token_offsets, ids, scores, parts, part_offsets, counts, spans)
    n_tokens, n_parts = counts.tolist()
    if end < 0 or n_tokens == 0:
        return None
    token_offsets = token_offsets[: n_tokens + 1]
    large: dict[str, Any] = {}
    if data[spans[0, 0]] == ord("["):
        pieces = _tokens(tokens, token_offsets)
        if pieces is None or spans[1, 1]:
            return None
        large["vocab"] = ScoredTokens(pieces, scores[:n_tokens].copy())
    else:
        vocab = _vocab(tokens, token_offsets, ids[:n_tokens])
        if vocab is None:
            return None
        large["vocab"] = vocab
        if spans[1, 1]:
            merges = np.empty((3, n_parts // 2), np.int32)
            if not kernels.find_merges(parts, part_offsets, *vocab.table, *merges):
                return None
            large["merges"] = MergesOfIds(Merges(*merges), vocab)
    rest, at = b"", 0
    for start, stop in sorted(spans[: len(large)].tolist()):
        rest, at = rest + text[at:start] + b"null", stop
    try:
        root = parse(files.decode(rest + text[at:], source), source)
    except TokenizerFileError:
        return None
    root.value["model"].update(large)
    return root


def _padded(text: bytes) -> npt.NDArray[np.uint8]:
    return np.frombuffer(text + bytes(WORD_PADDING), np.uint8)


def _room(data: npt.NDArray[np.uint8]) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64], npt.NDArray[np.int32]]:
    """Returns room for the entries of a vocabulary, five bytes or more each; memory that is not used costs nothing."""
    return np.empty(data.size, np.uint8), np.empty(data.size // 5, np.int64), np.empty(data.size // 5, np.int32)


def _vocab(
    tokens: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64], ids: npt.NDArray[np.int32]
) -> Vocabulary | None:
    """Returns token -> id; None if a token occurs twice or is no text, which Python's JSON will then report."""
    if ids.size == 0 or ids.max() > MAX_ID or np.bincount(ids).max() > 1:
        return None
    found = _tokens(tokens, offsets)
    try:
        return None if found is None else Vocabulary(found, ids.copy())
    except ValueError:
        return None


def _tokens(values: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64]) -> Tokens | None:
    """Returns tokens without the unused room, None if one is no text."""
    tokens = Tokens(values[: offsets[-1] + WORD_PADDING].copy(), offsets.copy())
    return tokens if tokens.first_broken() < 0 else None
