# SPDX-License-Identifier: Apache-2.0
"""The statistical identifier: py3langid's model, a file of its wheel, run by a kernel over columns.

Source: py3langid 0.4, `LanguageIdentifier.classify` with `norm_probs=True` after `set_languages`; the same languages,
and confidences to six digits.
"""

import functools
from importlib import metadata
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tokenmill.tokenizer.languages import score_kernels
from tokenmill.tokenizer.normalizers.base import Edges, put_rows
from tokenmill.tokenizer.normalizers.forms import NormalForm
from tokenmill.tokenizer.ragged import Ragged, read_only
from tokenmill.tokenizer.text.base import CharacterSet
from tokenmill.tokenizer.text.characters import Lowercase

_PIECES = 1 << 12
"""The most pieces to score at a time: each has 142 scores."""


class Model(NamedTuple):
    """Arrays of the kernel; see `score_kernels.score_pieces`. About 110 MB, shared by all threads."""

    classes: tuple[str, ...]
    moves: npt.NDArray[np.uint32]
    bases: npt.NDArray[np.int64]
    outputs: npt.NDArray[np.int32]
    weights: npt.NDArray[np.float32]
    priors: npt.NDArray[np.float32]
    logs: npt.NDArray[np.float32]


@functools.cache
def load_model() -> Model:
    """Returns the model, read once per process: a third of a second.

    Raises:
      ImportError: if the py3langid that is installed keeps it in another way.
    """
    from py3langid import langid

    try:
        found = langid.LanguageIdentifier.from_model_file(langid.MODEL_FILE)
        return Model(
            tuple(found.nb_classes),
            read_only(np.asarray(found.tk_nextmove, np.uint32)),
            read_only(np.asarray(found.tk_row, np.int64) << 8),
            read_only(np.asarray(found.tk_output, np.int32)),
            read_only(np.ascontiguousarray(found.nb_ptc, np.float32)),
            read_only(np.ascontiguousarray(found.nb_pc, np.float32)),
            read_only(np.log1p(np.arange(score_kernels.ROOM + 1, dtype=np.float32))),
        )
    except AttributeError as error:
        version = metadata.version("py3langid")
        raise ImportError(f"py3langid {version} keeps its model in another way; install py3langid 0.4") from error


@functools.cache
def _small_letters() -> CharacterSet:
    """Returns the characters that do not occur in a text in capitals."""
    return CharacterSet.of(
        np.array([chr(c).islower() or (chr(c).istitle() and not chr(c).isupper()) for c in range(0x110000)])
    )


class Guesses(NamedTuple):
    """The most likely languages of pieces of text."""

    classes: npt.NDArray[np.int64]
    """int64[n]: numbers of `Model.classes`."""
    confidence: npt.NDArray[np.float64]
    """float64[n]: the share among all languages that were allowed; equal shares if no n-gram was found."""


def as_seen(rows: Ragged) -> Ragged:
    """Returns rows in the form of the model's training text: NFC, and lower case if all letters are capitals."""
    capitals = np.flatnonzero(~_small_letters().rows_with(rows))
    if capitals.size:
        lower = Lowercase(final_sigma=True)
        taken = rows.take(capitals)
        small = lower.apply_rows(taken, Edges.of(taken.n_rows)).rows
        if small is not taken:
            rows = put_rows(rows, (capitals, small))
    return NormalForm("NFC").apply_rows(rows, Edges.of(rows.n_rows)).rows


def guess(rows: Ragged, allowed: npt.NDArray[np.bool_]) -> Guesses:
    """Guesses the languages of rows of valid UTF-8, each of at most `SAMPLE_BYTES` bytes.

    Args:
      rows: pieces of text.
      allowed: bool[n_rows, n_classes], the languages that each may be in; at least one.
    """
    model = load_model()
    rows = as_seen(rows)
    classes, confidence = np.empty(rows.n_rows, np.int64), np.empty(rows.n_rows, np.float64)
    counts, touched = np.zeros(len(model.weights), np.int32), np.empty(score_kernels.ROOM, np.int32)
    for first in range(0, rows.n_rows, _PIECES):
        part = slice(first, min(rows.n_rows, first + _PIECES))
        starts, stops = rows.offsets[part].copy(), rows.offsets[1:][part].copy()
        scores = np.empty((starts.size, len(model.classes)), np.float32)
        score_kernels.score_pieces(
            rows.values, starts, stops, model.moves, model.bases, model.outputs, model.weights, model.priors,
            model.logs, counts, touched, scores,
        )  # fmt: skip
        shares = _shares(scores, stops - starts, allowed[part], model.classes)
        classes[part] = shares.argmax(axis=1)
        confidence[part] = shares.max(axis=1)
    return Guesses(classes, confidence)


def _shares(
    scores: npt.NDArray[np.float32],
    n_bytes: npt.NDArray[np.int64],
    allowed: npt.NDArray[np.bool_],
    classes: tuple[str, ...],
) -> npt.NDArray[np.float64]:
    """Returns scores as shares that add up to one; a language with several classes has its share in the first."""
    scaled = np.where(allowed, scores.astype(np.float64) / np.sqrt(np.maximum(n_bytes, 1))[:, None], -np.inf)
    shares = np.exp(scaled - scaled.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    for i, name in enumerate(classes):
        if (first := classes.index(name)) < i:
            shares[:, first] += shares[:, i]
            shares[:, i] = 0
    return shares
