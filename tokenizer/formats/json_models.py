# SPDX-License-Identifier: Apache-2.0
"""Models in `tokenizer.json`."""

import functools
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tokenmill.tokenizer.formats.components import Field, Spec, flag, integer, optional, read_fields, text
from tokenmill.tokenizer.formats.json_node import Node
from tokenmill.tokenizer.models import BPE, Unigram, WordLevel, WordPiece
from tokenmill.tokenizer.models.vocabulary import ScoredTokens


def read_model(node: Node, *, byte_level: bool) -> Any:
    """Reads a model, None for null.

    Args:
      node: the model.
      byte_level: whether the pre-tokenizer is ByteLevel, so that BPE works on bytes.
    """
    if node.value is None:
        return None
    spec = node.child("type", _guess(node)).one_of(MODELS)
    given: dict[str, Any] = {"byte_level": byte_level} if spec.make is BPE else {}
    return read_fields(node, spec, **given)


def _guess(node: Node) -> str:
    """Returns the type of the model in a file that is too old to name it, judging by its fields."""
    fields = node.object()
    if "merges" in fields:
        return "BPE"
    return "WordPiece" if "max_input_chars_per_word" in fields else "Unigram" if "unk_id" in fields else "WordLevel"


def _read_vocab(node: Node) -> Mapping[str, int]:
    vocab = node.object()
    if not set(map(type, vocab.values())) <= {int}:
        token, token_id = next(item for item in vocab.items() if type(item[1]) is not int)
        raise node.fail(f"id of {token!r} must be an integer, got {json.dumps(token_id)[:80]}")
    return vocab


def _read_number(node: Node) -> float:
    if isinstance(node.value, bool) or not isinstance(node.value, (int, float)):
        raise node.fail(f"expected a number, got {json.dumps(node.value)[:80]}")
    return float(node.value)


def _read_integers(node: Node) -> npt.NDArray[np.int64]:
    values = node.as_(list, "a list")
    for i, value in enumerate(values):
        if type(value) is not int or not -(1 << 63) <= value < 1 << 63:
            raise Node(value, f"{node.path}[{i}]").fail(f"expected an integer, got {json.dumps(value)[:80]}")
    return np.array(values, np.int64)


def _read_merges(node: Node) -> Sequence[Any]:
    """Reads merges: pairs, or, in older files, strings of two tokens with a space between; the model checks them."""
    values: list[Any] = node.as_(list, "a list")
    if set(map(type, values)) <= {list}:
        return values
    merges = (merge for merge in values if not (isinstance(merge, str) and merge.startswith("#version")))  # as HF does
    return [merge.split(" ") if isinstance(merge, str) else merge for merge in merges]


def _read_pieces(node: Node) -> ScoredTokens:
    vocab = []
    for i, entry in enumerate(node.as_(list, "a list")):
        if not isinstance(entry, list) or len(entry) != 2 or type(entry[0]) is not str:
            raise Node(entry, f"{node.path}[{i}]").fail(f"expected [piece, score], got {json.dumps(entry)[:80]}")
        piece, score = entry
        if type(score) is not float:
            score = _read_number(Node(score, f"{node.path}[{i}][1]"))
        vocab.append((piece, score))
    return ScoredTokens.of(vocab)


@functools.wraps(Unigram)
def _make_unigram(pieces: ScoredTokens, piece_types: npt.NDArray[np.int64] | None, **others: Any) -> Unigram:
    if piece_types is not None:
        # sentencepiece's scores are in single precision. Earlier versions wrote numbers that HF's reader, which misses
        # some by a little, takes for them.
        with np.errstate(over="ignore"):  # numbers that are too large are refused by the model
            pieces = ScoredTokens(pieces.tokens, pieces.scores.astype(np.float32).astype(np.float64))
    return Unigram(pieces, piece_types=piece_types, **others)


def _integers(name: str) -> Field:
    """A list of integers or null; ours, which HF passes over."""
    return optional(
        name,
        _read_integers,
        write=lambda values: None if values is None else np.asarray(values).tolist(),
        is_own=True,
    )


_VOCAB = Field("vocab", "vocab", _read_vocab, write=lambda vocab: dict(sorted(vocab.items(), key=lambda item: item[1])))
_BYTE_FALLBACK = flag("byte_fallback", False)

MODELS: dict[str, Spec] = {
    "WordPiece": Spec(
        WordPiece,
        (
            text("unk_token", "[UNK]"),
            text("continuing_subword_prefix", "##"),
            integer("max_input_chars_per_word", 100),
            text("oov_policy", "word", is_own=True),
            _VOCAB,
        ),
    ),
    "BPE": Spec(
        BPE,
        (
            optional("dropout", _read_number),
            *(optional(name, Node.text) for name in ("unk_token", "continuing_subword_prefix", "end_of_word_suffix")),
            flag("fuse_unk", False),
            _BYTE_FALLBACK,
            flag("ignore_merges", False),
            _VOCAB,
            Field("merges", "merges", _read_merges, write=list),
            _integers("merge_ranks"),
        ),
    ),
    "Unigram": Spec(
        _make_unigram,
        (
            optional("unk_id", Node.integer),
            Field(
                "vocab",
                "pieces",
                _read_pieces,
                write=lambda model: [
                    [piece, score] for (piece, _), score in zip(model.vocab, model.scores.tolist(), strict=True)
                ],
            ),
            _BYTE_FALLBACK,
            _integers("piece_types"),
        ),
    ),
    "WordLevel": Spec(WordLevel, (_VOCAB, text("unk_token", "<unk>"))),
}
"""Types of models."""
