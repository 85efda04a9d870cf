# SPDX-License-Identifier: Apache-2.0
"""`identify`: finds the language of each document, by its script if that decides, else by a statistical identifier."""

import dataclasses
import functools
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tokenmill.tokenizer.languages import model, score_kernels
from tokenmill.tokenizer.languages.script_kernels import HAN
from tokenmill.tokenizer.languages.scripts import SCRIPTS, ScriptCounts, count_scripts
from tokenmill.tokenizer.ragged import Errors, Ragged, gathered, text_rows

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
        return frozenset(model.load_model().classes) - _NOT_LATIN
    return frozenset(SEVERAL_LANGUAGES[script])


@functools.cache
def _allowed_table() -> npt.NDArray[np.bool_]:
    """Returns which classes of the model each script may have, bool[n_scripts, n_classes]."""
    table = np.zeros((len(SCRIPTS), len(model.load_model().classes)), np.bool_)
    for script in _scripts():
        table[SCRIPTS.index(script)] = [name in languages_of(script) for name in model.load_model().classes]
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
    score_kernels.cut_samples(documents.values, documents.offsets, bounds)
    starts, stops = documents.offsets[:-1], documents.offsets[1:]
    allowed = _allowed_table()[counts.first[asked]]
    number_of = {name: i for i, name in enumerate(language_codes())}
    numbers = np.array([number_of.get(name, -1) for name in model.load_model().classes], np.int32)
    whole = model.guess(gathered(documents.values, starts, bounds[:, 0]), allowed)
    differ = np.zeros(asked.size, np.bool_)
    long = np.flatnonzero(stops - starts >= MIXED_BYTES)
    if long.size:
        begin = model.guess(gathered(documents.values, starts[long], bounds[long, 1]), allowed[long])
        end = model.guess(gathered(documents.values, bounds[long, 2], stops[long]), allowed[long])
        sure = (begin.confidence >= SURE) & (end.confidence >= SURE)
        differ[long] = (numbers[begin.classes] != numbers[end.classes]) & sure
    return numbers[whole.classes], whole.confidence, differ
