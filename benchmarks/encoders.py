# SPDX-License-Identifier: Apache-2.0
"""Libraries that encode, each used as its documentation says for a list of strings, with one thread."""

import importlib.util
import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from benchmarks import peers

Encode = Callable[[Sequence[str]], Any]


class Peer(NamedTuple):
    """A library with a tokenizer."""

    load: Callable[[], Encode]
    """Loads the tokenizer again, ready to encode."""
    to_ids: Callable[[Any], list[list[int]]]
    """Turns what it returns for a batch into lists of ids."""
    other_rules: bool = False
    """Whether it follows other rules, so that some documents may get other ids; it is timed on the rest."""


GPT2_PATTERN = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"""


def for_tokenizer_json(text: str, *, other_rules: bool = False) -> dict[str, Peer]:
    """Returns `tokenizers`, with `encode_batch_fast`, which leaves the ids in the library's own objects."""
    if not _has("tokenizers"):
        return {}
    import tokenizers as hf_tokenizers

    text = peers.for_peers(text)

    def load() -> Encode:
        loaded = hf_tokenizers.Tokenizer.from_str(text)
        return lambda texts: loaded.encode_batch_fast(texts, add_special_tokens=False)

    return {"tokenizers": Peer(load, _rows, other_rules)}


def for_byte_level_bpe(text: str, ranks: dict[bytes, int]) -> dict[str, Peer]:
    """Returns engines for byte-level BPE, for a `tokenizer.json` with GPT-2's pattern and its ranks."""
    found: dict[str, Peer] = {}
    for_peers = peers.for_peers(text)
    if _has("tiktoken"):
        import tiktoken

        def load_tiktoken() -> Encode:
            encoding = tiktoken.Encoding("gpt2", pat_str=GPT2_PATTERN, mergeable_ranks=ranks, special_tokens={})
            return lambda texts: [encoding.encode_ordinary(t) for t in texts]

        found["tiktoken"] = Peer(load_tiktoken, list)
    if _has("gigatoken"):
        import gigatoken
        import tokenizers as hf_tokenizers

        def load_gigatoken() -> Encode:
            loaded = gigatoken.Tokenizer(hf_tokenizers.Tokenizer.from_str(for_peers))
            return lambda texts: loaded.encode_batch(list(texts), parallel=False)

        found["gigatoken"] = Peer(load_gigatoken, lambda rows: rows.to_list())
    if _has("fastokens"):
        import fastokens

        def load_fastokens() -> Encode:
            loaded = fastokens.Tokenizer.from_json_str(for_peers)
            return lambda texts: loaded.encode_batch(list(texts))

        found["fastokens"] = Peer(load_fastokens, _rows)
    if _has("snaptokens"):
        import snaptokens

        def load_snaptokens() -> Encode:
            loaded = snaptokens.Tokenizer.from_json_str(for_peers)
            return lambda texts: loaded.encode_batch_flat(list(texts))

        found["snaptokens"] = Peer(load_snaptokens, _flat_rows)
    return found | for_tokenizer_json(text)


def for_wordpiece(text: str) -> dict[str, Peer]:
    """Returns engines for WordPiece, for a `tokenizer.json` of BERT."""
    found: dict[str, Peer] = {}
    if _has("nanotoken"):
        import nanotoken

        for_peers = peers.for_peers(text)

        def load_nanotoken() -> Encode:
            loaded = nanotoken.WordPieceTokenizer.from_json(for_peers)
            return lambda texts: loaded.encode_batch(texts, add_special_tokens=False, parallel=False)

        found["nanotoken"] = Peer(load_nanotoken, lambda rows: _cut(*rows))
    return found | for_tokenizer_json(text)


def for_sentencepiece(path: Path, text: str) -> dict[str, Peer]:
    """Returns sentencepiece, which reads its own file, and `tokenizers`, which reads `text` and has its own rules."""
    found: dict[str, Peer] = {}
    if _has("sentencepiece"):
        import sentencepiece

        def load_sentencepiece() -> Encode:
            processor = sentencepiece.SentencePieceProcessor(model_file=str(path))
            return lambda texts: processor.encode(list(texts), num_threads=1)

        found["sentencepiece"] = Peer(load_sentencepiece, list)
    return found | for_tokenizer_json(text, other_rules=True)


def _has(module: str) -> bool:
    there = importlib.util.find_spec(module) is not None
    if not there:
        print(f"{module} is not installed; ./run.sh bench installs it")
    return there


def _flat_rows(encoded: tuple[bytes, bytes]) -> list[list[int]]:
    return _cut(np.frombuffer(encoded[0], np.uint32), np.frombuffer(encoded[1], np.uint64))


def _cut(ids: npt.NDArray[Any], offsets: npt.NDArray[Any]) -> list[list[int]]:
    return [ids[a:b].tolist() for a, b in itertools.pairwise(offsets.tolist())]


def _rows(encoded: Any) -> list[list[int]]:
    """Returns lists of ids from whatever a library returns for a batch."""
    return [list(getattr(row, "ids", row)) for row in encoded]
