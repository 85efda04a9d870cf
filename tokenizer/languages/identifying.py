# SPDX-License-Identifier: Apache-2.0
"""`identify`: finds the language of each document, by its script if that decides, else by a statistical identifier.

That is py3langid's model, a file of its wheel, run by a kernel over columns. Source: py3langid 0.4,
`LanguageIdentifier.classify` with `norm_probs=True` after `set_languages`; the same languages, and confidences to six
digits.
"""

import dataclasses
import functools
from importlib import metadata
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tokenmill.tokenizer.languages import kernels
from tokenmill.tokenizer.languages.kernels import HAN
from tokenmill.tokenizer.languages.scripts import SCRIPTS, ScriptCounts, count_scripts
from tokenmill.tokenizer.normalizers.base import Edges
from tokenmill.tokenizer.normalizers.forms import NormalForm
from tokenmill.tokenizer.ragged import Errors, Ragged, gathered, put_rows, read_only, text_rows
from tokenmill.tokenizer.text.base import CharacterSet
from tokenmill.tokenizer.text.characters import Lowercase

UNKNOWN = "und"
"""The code of documents whose language is undetermined."""

ONE_LANGUAGE = {
    "Hangul": "ko", "Thai": "th", "Lao": "lo", "Khmer": "km", "Myanmar": "my", "Tibetan": "bo", "Greek": "el",
    "Armenian": "hy", "Georgian": "ka", "Hebrew": "he", "Ethiopic": "am", "Gujarati": "gu", "Gurmukhi": "pa",
    "Oriya": "or", "Tamil": "ta", "Telugu": "te", "Kannada": "kn", "Malayalam": "ml", "Sinhala": "si", "Thaana": "dv",
    "Cherokee": "chr", "Yi": "ii",
}  # fmt: skip
"""Script that decides -> its one large language, or the one that no identifier distinguishes from the others. Han
decides too: Japanese with `KANA_SHARE` of kana, else Chinese."""

KANA_SHARE = 0.1
"""The least share of kana among Han and kana in Japanese."""

SECOND_SHARE = 0.2
"""A document is mixed if at least this share of its letters is of the second script."""

SURE = 0.8
"""A document is mixed if its ends are in two languages, both with this confidence."""

MIXED_BYTES = 256
"""The ends of shorter documents are not compared."""

SEVERAL_LANGUAGES = {
    "Cyrillic": "ba be bg kk ky mk mn ru sr tg tt uk uz".split(),
    "Arabic": "ar fa ku ps sdh ug ur uzs".split(),
    "Devanagari": "gom hi mr ne sa".split(),
    "Bengali": "as bn".split(),
}
"""Script that does not decide -> the languages that the identifier knows in it. Arabic and Chinese are not
distinguished from their dialects. Latin has all languages of the identifier that are not listed here."""

_NOT_LATIN = {"ja", "zh", "wuu", "yue", "arz", "ary", "grc", "hbo", "dz", *ONE_LANGUAGE.values()}
_NOT_LATIN |= {code for codes in SEVERAL_LANGUAGES.values() for code in codes} - {"ku", "uz"}

_PIECES = 1 << 12
"""The most pieces to score at a time: each has 142 scores."""


class Model(NamedTuple):
    """Arrays of the kernel; see `kernels.score_pieces`. About 110 MB, shared by all threads."""

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
            read_only(np.log1p(np.arange(kernels.ROOM + 1, dtype=np.float32))),
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
    counts, touched = np.zeros(len(model.weights), np.int32), np.empty(kernels.ROOM, np.int32)
    for first in range(0, rows.n_rows, _PIECES):
        part = slice(first, min(rows.n_rows, first + _PIECES))
        starts, stops = rows.offsets[part].copy(), rows.offsets[1:][part].copy()
        scores = np.empty((starts.size, len(model.classes)), np.float32)
        kernels.score_pieces(
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


@dataclasses.dataclass(frozen=True)
class Languages:
    """The languages of documents."""

    codes: pa.DictionaryArray
    """dictionary<int32, string>[n]: ISO 639 codes, of two letters if there is one; `und` if undetermined."""
    confidence: npt.NDArray[np.float32]
    """float32[n]: the share of the letters that are of the first script; if that script does not decide, times the
    share of the language among all that are written in it. 0 without letters."""
    mixed: npt.NDArray[np.bool_]
    """bool[n]: whether the document is in several languages."""

    def __len__(self) -> int:
        return len(self.mixed)

    def filter(self, kept: npt.NDArray[np.bool_]) -> "Languages":
        """Returns the languages of some of the documents; kept: bool[n]."""
        return Languages(self.codes.filter(pa.array(kept)), self.confidence[kept], self.mixed[kept])


@functools.cache
def language_codes() -> tuple[str, ...]:
    """Returns all codes that `identify` may return, in alphabetical order."""
    return tuple(
        sorted({UNKNOWN, "ja", "zh", *ONE_LANGUAGE.values(), *(c for s in _scripts() for c in languages_of(s))})
    )


def _scripts() -> list[str]:
    return ["Latin", *SEVERAL_LANGUAGES]


@functools.cache
def languages_of(script: str) -> frozenset[str]:
    """Returns the languages of a script that does not decide."""
    if script == "Latin":
        return frozenset(load_model().classes) - _NOT_LATIN
    return frozenset(SEVERAL_LANGUAGES[script])


@functools.cache
def _allowed_table() -> npt.NDArray[np.bool_]:
    """Returns which classes of the model each script may have, bool[n_scripts, n_classes]."""
    table = np.zeros((len(SCRIPTS), len(load_model().classes)), np.bool_)
    for script in _scripts():
        table[SCRIPTS.index(script)] = [name in languages_of(script) for name in load_model().classes]
    return table


def identify(texts: Any, threshold: float = 0.5, errors: Errors = "strict") -> Languages:
    """Identifies the language of each row of a text column, which depends only on that row.

    Scripts are counted over the whole row. If they do not decide, the identifier reads its first 2048 bytes, and, to
    find whether it is mixed, both ends.

    Args:
      texts: a text column; null is a row without letters.
      threshold: rows with less confidence than this are `und`.
      errors: as for `Tokenizer.encode_arrow`.

    Raises:
      TypeError: if `texts` is not a text column. ValueError: if it is not valid.
    """
    rows = text_rows(texts, errors)
    counts = count_scripts(rows)
    codes = np.full(rows.n_rows, language_codes().index(UNKNOWN), np.int32)
    share = counts.n_first / np.maximum(counts.total, 1)
    mixed = counts.n_second >= np.maximum(SECOND_SHARE * counts.total, 1)
    confidence = np.zeros(rows.n_rows)
    for script, code in enumerate(_decided()):
        if code >= 0:
            codes[counts.first == script] = code
            confidence[counts.first == script] = share[counts.first == script]
    is_japanese = (counts.first == HAN) & (counts.n_kana >= KANA_SHARE * counts.n_first)
    codes[is_japanese] = language_codes().index("ja")
    asked = np.flatnonzero(np.isin(counts.first, [SCRIPTS.index(script) for script in _scripts()]))
    if asked.size:
        codes[asked], shares, differ = _guess(rows, asked, counts)
        confidence[asked] = share[asked] * shares
        mixed[asked] |= differ
    codes[confidence < threshold] = language_codes().index(UNKNOWN)
    names = pa.array(language_codes(), pa.string())
    return Languages(pa.DictionaryArray.from_arrays(pa.array(codes), names), confidence.astype(np.float32), mixed)


@functools.cache
def _decided() -> tuple[int, ...]:
    """Returns, for each script that decides, the number of its language; -1 for the others."""
    codes = {**ONE_LANGUAGE, "Han": "zh"}
    return tuple(language_codes().index(codes[script]) if script in codes else -1 for script in SCRIPTS)


def _guess(
    rows: Ragged, asked: npt.NDArray[np.int64], counts: ScriptCounts
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
    """Returns numbers of codes, shares, and whether the two ends are in different languages, for the rows `asked`."""
    documents = rows.take(asked)
    bounds = np.empty((asked.size, 3), np.int64)
    kernels.cut_samples(documents.values, documents.offsets, bounds)
    starts, stops = documents.offsets[:-1], documents.offsets[1:]
    allowed = _allowed_table()[counts.first[asked]]
    number_of = {name: i for i, name in enumerate(language_codes())}
    numbers = np.array([number_of.get(name, -1) for name in load_model().classes], np.int32)
    whole = guess(gathered(documents.values, starts, bounds[:, 0]), allowed)
    differ = np.zeros(asked.size, np.bool_)
    long = np.flatnonzero(stops - starts >= MIXED_BYTES)
    if long.size:
        begin = guess(gathered(documents.values, starts[long], bounds[long, 1]), allowed[long])
        end = guess(gathered(documents.values, bounds[long, 2], stops[long]), allowed[long])
        sure = (begin.confidence >= SURE) & (end.confidence >= SURE)
        differ[long] = (numbers[begin.classes] != numbers[end.classes]) & sure
    return numbers[whole.classes], whole.confidence, differ
