# SPDX-License-Identifier: Apache-2.0
"""Prepares and tokenizes columns in several languages, each document by the rule of its language, in the same order.

`RULES` are the built-in rules: text steps by language, for those who ask for them.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tokenmill.tokenizer.core import Tokenizer
from tokenmill.tokenizer.languages.identifying import Languages, identify, language_codes
from tokenmill.tokenizer.normalizers.base import Edges
from tokenmill.tokenizer.ragged import Errors, Ragged, put_rows, text_column, text_rows
from tokenmill.tokenizer.text import PreparedText, SpanRule, TextChain, TextStep, TextTokenizer, parse_steps
from tokenmill.tokenizer.text.base import StepReport
from tokenmill.tokenizer.text.chain import ChainResult

Steps = Sequence[str | Mapping[str, Any] | TextStep]

DEFAULT = "default"
"""The name of the rule for languages without their own."""

RULES: Mapping[str, Sequence[str | Mapping[str, Any]]] = {
    DEFAULT: ["default"],
    # Full-width Latin letters, digits and punctuation become narrow; Chinese punctuation, like 。, stays.
    "zh": ["default", "full_width", {"segment": "han"}],
    # Half-width kana become kana, with their marks; that takes NFKC.
    "ja": ["nfkc", "default", {"segment": "japanese"}],
    # NFC joins letters to syllables. Korean writes spaces.
    "ko": ["default", "full_width"],
    # Presentation forms become letters, which takes NFKC; vowel signs stay.
    "ar": ["nfkc", "default", "tatweel", "ascii_digits"],
    # ё and й are letters: nothing is stripped. « » and dashes get one form.
    "ru": ["default", "punctuation"],
    # U+200B separates words in Thai. Not NFKC, which would decompose ำ.
    "th": [{"regex": {"pattern": "\u200b+", "replace": " "}}, "default", "ascii_digits", {"segment": "thai"}],
    # NFC writes nukta letters in one way. Joiners and marks are part of the spelling and stay.
    "hi": ["default", "ascii_digits"],
}
"""Steps by language; see `tokenmill.tokenizer.text.parse_steps`."""


class Router:
    """Finds the rule for each language: its own, or else `default`."""

    def __init__(self, names: Iterable[str]) -> None:
        """Takes the languages that have a rule.

        Raises:
          ValueError: if one is not a code that `identify` returns, or `default` is missing.
        """
        self.names = (DEFAULT, *sorted({*names} - {DEFAULT}))
        if unknown := [name for name in self.names[1:] if name not in language_codes()]:
            raise ValueError(f"{unknown[0]!r} is no language that is told apart; known: {', '.join(language_codes())}")
        self._rule_of = np.array([self.names.index(c) if c in self.names else 0 for c in language_codes()], np.int64)

    def rules(self, languages: Languages) -> npt.NDArray[np.int64]:
        """Returns the rule of each document, int64[n], as numbers in `names`."""
        return self._rule_of[languages.codes.indices.to_numpy(zero_copy_only=False)]


class LanguageTextTokenizer(TextTokenizer):
    """One tokenizer for all languages, with steps for each. Several threads may use it.

    The language is identified in the raw text. Then text is cut at spans, and the text between them goes through the
    steps of all languages and those of its own.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        rules: Mapping[str, Steps] | None = None,
        normalize: Steps = (),
        spans: Iterable[SpanRule | Mapping[str, Any]] = (),
        threshold: float = 0.5,
    ) -> None:
        """Puts a tokenizer, steps and spans together; see `TextTokenizer`.

        Args:
          tokenizer: the tokenizer for all languages.
          rules: language -> steps, as in `RULES`; `default` is for all other languages. None: no steps by language,
            so that the text stays as it is.
          normalize: steps for all languages, which come before those.
          spans: span rules for all languages.
          threshold: see `identify`.

        Raises:
          ValueError: if a step, a rule or a language is invalid.
        """
        super().__init__(tokenizer, normalize=normalize, spans=spans)
        rules = rules or {}
        self.router = Router(rules)
        self.threshold = threshold
        self.chains = [
            TextChain([*self.chain.steps, *parse_steps(rules.get(name, ()), f"rules[{name!r}]")])
            for name in self.router.names
        ]

    def prepare(self, texts: Any, languages: Languages | None = None) -> PreparedText:
        """Finds spans in a text column and applies to each document the steps of its language.

        Args:
          texts: the column.
          languages: the languages of its rows, if they are known already.
        """
        rows = text_rows(texts)
        known = languages or identify(rows, self.threshold)
        if len(known.codes) != rows.n_rows:
            raise ValueError(f"languages must have one entry for each of {rows.n_rows} texts, got {len(known.codes)}")
        return self.prepare_rows(rows, lambda *parts: self._route(known, *parts))

    def chain_for(self, text: str) -> TextChain:
        """Returns the steps of one text."""
        return self.chains[int(self.router.rules(identify([text], self.threshold))[0])]

    def _route(
        self,
        languages: Languages,
        rows: Ragged,
        edges: Edges | None = None,
        documents: npt.NDArray[np.int64] | None = None,
    ) -> ChainResult:
        edges = edges or Edges.of(rows.n_rows)
        if documents is None:
            documents = np.arange(rows.n_rows + 1)
        n_parts = np.diff(documents)
        rules, names = self.router.rules(languages), languages.codes.dictionary.to_pylist()
        owners = np.repeat(rules, n_parts)
        spoken = np.repeat(languages.codes.indices.to_numpy(zero_copy_only=False), n_parts)
        reports: list[StepReport] = []
        rejected = np.zeros(rules.size, np.bool_)
        parts: list[tuple[npt.NDArray[np.int64], Ragged]] = []
        for number, chain in enumerate(self.chains):
            taken = np.flatnonzero(owners == number)
            mine = rows if taken.size == rows.n_rows else rows.take(taken)
            whose = np.concatenate(([0], np.cumsum(n_parts[rules == number])))
            result = chain.apply_rows(mine, Edges(edges.begins[taken], edges.ends[taken]), whose)
            reports += _by_language(self.router.names[number], result, spoken[taken], names)
            rejected[rules == number] = result.rejected
            if result.rows is not mine:
                parts.append((taken, result.rows))
        return ChainResult(put_rows(rows, *parts) if parts else rows, reports, rejected, [])


def _by_language(
    rule: str, result: ChainResult, spoken: npt.NDArray[Any], names: Sequence[str]
) -> Iterator[StepReport]:
    """Yields the reports of a rule's steps with its name and their characters by language.

    Args:
      rule: its name.
      result: of its chain.
      spoken: the language of each row, as a number in `names`.
      names: of languages.
    """
    present = np.unique(spoken).tolist()
    sums = [np.bincount(spoken, sizes, len(names)).astype(np.int64) for sizes in result.n_chars]
    for report, before, after in zip(result.reports, sums, sums[1:], strict=False):
        by_language = {names[code]: (int(before[code]), int(after[code])) for code in present}
        yield dataclasses.replace(report, step=f"{rule}.{report.step}", by_language=by_language)


class RoutedText(NamedTuple):
    """The result of `LanguageTokenizers.encode_arrow`."""

    ids: pa.LargeListArray
    """One row of int32 ids per text, in the vocabulary of its tokenizer; null for null and for rejected texts."""
    rules: pa.DictionaryArray
    """dictionary<int32, string>[n]: the rule of each row, which names its tokenizer."""
    languages: Languages


class LanguageTokenizers:
    """A tokenizer for each language, for columns in several languages. Several threads may use it."""

    def __init__(self, tokenizers: Mapping[str, Tokenizer | TextTokenizer], threshold: float = 0.5) -> None:
        """Takes tokenizers by language, one of them for `default`; see `Router`.

        Raises:
          ValueError: if there is none for `default`, or a language is not known.
        """
        if DEFAULT not in tokenizers:
            raise ValueError(f"tokenizers must have one for {DEFAULT!r}, got {', '.join(tokenizers) or 'none'}")
        self.router = Router(tokenizers)
        self.threshold = threshold
        self.tokenizers = {
            name: t if isinstance(t, TextTokenizer) else TextTokenizer(t) for name, t in tokenizers.items()
        }

    def encode_arrow(self, texts: Any, add_special_tokens: bool = False, *, errors: Errors = "strict") -> RoutedText:
        """Encodes a text column, each row by the tokenizer of its language; see `Tokenizer.encode_arrow`.

        Raises:
          TypeError, ValueError: as `Tokenizer.encode_arrow`.
        """
        rows, nulls = text_column(texts, errors)
        languages = identify(rows, self.threshold)
        rules = self.router.rules(languages)
        parts, places = [], []
        for number, name in enumerate(self.router.names):
            taken = np.flatnonzero(rules == number)
            if taken.size or not number:
                parts.append(self.tokenizers[name].encode_arrow(rows.take(taken), add_special_tokens).ids)
                places.append(taken)
        mask = None if nulls is None else nulls.to_numpy(zero_copy_only=False)
        ids = pa.concat_arrays(parts).take(pa.array(np.argsort(np.concatenate(places)), mask=mask))
        names = pa.DictionaryArray.from_arrays(pa.array(rules.astype(np.int32)), pa.array(self.router.names))
        return RoutedText(ids, names, languages)
