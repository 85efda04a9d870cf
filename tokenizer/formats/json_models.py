# SPDX-License-Identifier: Apache-2.0
"""Models in `tokenizer.json`."""

import json
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tokenmill.tokenizer.formats.json_node import Node
from tokenmill.tokenizer.models import BPE, Unigram, WordLevel, WordPiece
from tokenmill.tokenizer.models.bpe_merges import MergesOfIds
from tokenmill.tokenizer.models.vocabulary import ScoredTokens, Vocabulary


def read_model(node: Node, *, byte_level: bool) -> Any:
    """Reads a model, None for null.

    Args:
      node: the model.
      byte_level: whether the pre-tokenizer is ByteLevel, so that BPE works on bytes.
    """
    if node.value is None:
        return None
    kind = node.child("type", _guess(node)).one_of(dict(_READERS))
    node.known("type", *_FIELDS[node.child("type", _guess(node)).text()])
    try:
        return kind(node, byte_level)
    except ValueError as error:
        if str(error).startswith(node.path):
            raise
        raise node.fail(str(error)) from error


def _guess(node: Node) -> str:
    """Returns the type of the model in a file that is too old to name it, judging by its fields."""
    fields = node.object()
    if "merges" in fields:
        return "BPE"
    return "WordPiece" if "max_input_chars_per_word" in fields else "Unigram" if "unk_id" in fields else "WordLevel"


def _vocab(node: Node) -> Mapping[str, int]:
    found = node.child("vocab")
    if isinstance(found.value, Vocabulary):
        return found.value
    vocab = found.object()
    if not set(map(type, vocab.values())) <= {int}:
        token, token_id = next(item for item in vocab.items() if type(item[1]) is not int)
        raise node.fail(f"vocab: id of {token!r} must be an integer, got {json.dumps(token_id)[:80]}")
    return vocab


def _optional(node: Node, read: Callable[[Node], Any]) -> Any:
    return None if node.value is None else read(node)


def _number(node: Node) -> float:
    if isinstance(node.value, bool) or not isinstance(node.value, (int, float)):
        raise node.fail(f"expected a number, got {json.dumps(node.value)[:80]}")
    return float(node.value)


def _integers(node: Node) -> npt.NDArray[np.int64]:
    values = node.as_(list, "a list")
    for i, value in enumerate(values):
        if type(value) is not int or not -(1 << 63) <= value < 1 << 63:
            raise Node(value, f"{node.path}[{i}]").fail(f"expected an integer, got {json.dumps(value)[:80]}")
    return np.array(values, np.int64)


def _read_wordpiece(node: Node, byte_level: bool) -> WordPiece:
    return WordPiece(
        _vocab(node),
        unk_token=node.child("unk_token", "[UNK]").text(),
        continuing_subword_prefix=node.child("continuing_subword_prefix", "##").text(),
        max_input_chars_per_word=node.child("max_input_chars_per_word", 100).integer(),
        oov_policy=node.child("oov_policy", "word").text(),
    )


def _read_wordlevel(node: Node, byte_level: bool) -> WordLevel:
    return WordLevel(_vocab(node), unk_token=node.child("unk_token", "<unk>").text())


def _read_bpe(node: Node, byte_level: bool) -> BPE:
    return BPE(
        _vocab(node),
        _merges(node.child("merges")),
        dropout=_optional(node.child("dropout", None), _number),
        unk_token=_optional(node.child("unk_token", None), Node.text),
        continuing_subword_prefix=_optional(node.child("continuing_subword_prefix", None), Node.text),
        end_of_word_suffix=_optional(node.child("end_of_word_suffix", None), Node.text),
        fuse_unk=node.child("fuse_unk", False).flag(),
        byte_fallback=node.child("byte_fallback", False).flag(),
        ignore_merges=node.child("ignore_merges", False).flag(),
        byte_level=byte_level,
        merge_ranks=_optional(node.child("merge_ranks", None), _integers),
    )


def _merges(node: Node) -> Sequence[Any]:
    """Reads merges: pairs, or, in older files, strings of two tokens with a space between; the model checks them."""
    if isinstance(node.value, MergesOfIds):
        return node.value
    values: list[Any] = node.as_(list, "a list")
    if set(map(type, values)) <= {list}:
        return values
    return [merge.split(" ") if isinstance(merge, str) else merge for merge in values]


def _read_unigram(node: Node, byte_level: bool) -> Unigram:
    vocab = _pieces(node.child("vocab"))
    piece_types = _optional(node.child("piece_types", None), _integers)
    if piece_types is not None:
        # sentencepiece's scores are in single precision. HF's reader may miss such a number by a little, but what it
        # reads still rounds to it.
        with np.errstate(over="ignore"):  # numbers that are too large are refused below
            vocab = ScoredTokens(vocab.tokens, vocab.scores.astype(np.float32).astype(np.float64))
    return Unigram(
        vocab,
        unk_id=_optional(node.child("unk_id", None), Node.integer),
        byte_fallback=node.child("byte_fallback", False).flag(),
        piece_types=piece_types,
    )


def _pieces(node: Node) -> ScoredTokens:
    if isinstance(node.value, ScoredTokens):
        return node.value
    vocab = []
    for i, entry in enumerate(node.as_(list, "a list")):
        if not isinstance(entry, list) or len(entry) != 2 or type(entry[0]) is not str:
            raise Node(entry, f"{node.path}[{i}]").fail(f"expected [piece, score], got {json.dumps(entry)[:80]}")
        piece, score = entry
        if type(score) is not float:
            score = _number(Node(score, f"{node.path}[{i}][1]"))
        vocab.append((piece, score))
    return ScoredTokens.of(vocab)


_READERS: dict[str, Callable[[Node, bool], Any]] = {
    "WordPiece": _read_wordpiece,
    "BPE": _read_bpe,
    "Unigram": _read_unigram,
    "WordLevel": _read_wordlevel,
}
_FIELDS = {
    "WordPiece": ("unk_token", "continuing_subword_prefix", "max_input_chars_per_word", "vocab", "oov_policy"),
    "BPE": (
        "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk", "byte_fallback",
        "ignore_merges", "vocab", "merges", "merge_ranks",
    ),
    "Unigram": ("unk_id", "vocab", "byte_fallback", "piece_types"),
    "WordLevel": ("unk_token", "vocab"),
}  # fmt: skip


def write_model(model: Any) -> dict[str, Any] | None:
    """Returns a model as JSON, None for None.

    Raises:
      ValueError: if HF has no such model.
    """
    if model is None:
        return None
    if isinstance(model, WordPiece):
        fields: dict[str, Any] = {
            "type": "WordPiece",
            "unk_token": model.unk_token,
            "continuing_subword_prefix": model.continuing_subword_prefix,
            "max_input_chars_per_word": model.max_input_chars_per_word,
        }
        if model.oov_policy != "word":
            fields["oov_policy"] = model.oov_policy  # HF ignores it
        return fields | {"vocab": _by_id(model.vocab)}
    if isinstance(model, WordLevel):
        return {"type": "WordLevel", "vocab": _by_id(model.vocab), "unk_token": model.unk_token}
    if isinstance(model, BPE):
        fields = {
            "type": "BPE",
            "dropout": model.dropout,
            "unk_token": model.unk_token,
            "continuing_subword_prefix": model.continuing_subword_prefix,
            "end_of_word_suffix": model.end_of_word_suffix,
            "fuse_unk": model.fuse_unk,
            "byte_fallback": model.byte_fallback,
            "ignore_merges": model.ignore_merges,
            "vocab": _by_id(model.vocab),
            "merges": list(model.merges),
        }
        if model.merge_ranks is not None:
            fields["merge_ranks"] = np.asarray(model.merge_ranks).tolist()  # HF ignores it
        return fields
    if isinstance(model, Unigram):
        fields = {
            "type": "Unigram",
            "unk_id": model.unk_id,
            "vocab": [[piece, score] for (piece, _), score in zip(model.vocab, model.scores.tolist(), strict=True)],
            "byte_fallback": model.byte_fallback,
        }
        if model.piece_types is not None:
            fields["piece_types"] = np.asarray(model.piece_types).tolist()  # HF ignores it
        return fields
    raise ValueError(f"{model!r} cannot be written as tokenizer.json; it has no type for it")


def _by_id(vocab: Mapping[str, int]) -> dict[str, int]:
    return dict(sorted(vocab.items(), key=operator.itemgetter(1)))
