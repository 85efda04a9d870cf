# SPDX-License-Identifier: Apache-2.0
"""Counts of a corpus by language: exact integers that add up in any order."""

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pydantic import TypeAdapter

from tokenmill.pipeline.books import json_files
from tokenmill.pipeline.books.json_files import Count
from tokenmill.pipeline.statistics import sample
from tokenmill.pipeline.statistics.vocabulary import gini, ratio

_COUNTED = (
    *("documents", "mixed", "bytes", "characters", "spaced_words", "text_tokens", "tokens", "oov_tokens", "filtered"),
    *sample.COUNTED,
)


_SHAPE = TypeAdapter(dict[str, dict[str, Count]])


@dataclass(frozen=True)
class LanguageCounts:
    """Counts by language, which can be added up."""

    languages: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """By code: documents, mixed documents, bytes, characters and spaced words of their texts after steps and spans,
    tokens of these, tokens of rows, unknown tokens; documents that a filter left out, which no other number includes;
    and what is counted of a sample."""

    def __add__(self, other: Self) -> Self:
        sums = {code: dict(counts) for code, counts in self.languages.items()}
        for code, counts in other.languages.items():
            ours = sums.setdefault(code, dict.fromkeys(_COUNTED, 0))
            for name, n in counts.items():
                ours[name] += n
        return dataclasses.replace(self, languages=sums)

    @classmethod
    def of(cls, codes: pa.DictionaryArray, **counts: npt.NDArray[np.int64]) -> Self:
        """Returns the counts of documents with these languages: of each number in `counts`, int64[n], the sums."""
        numbers, places = np.unique(codes.indices.to_numpy(zero_copy_only=False), return_inverse=True)
        sums = np.zeros((numbers.size, len(counts)), np.int64)
        np.add.at(sums, places, np.stack(list(counts.values()), axis=1))
        names = codes.dictionary.take(pa.array(numbers)).to_pylist()
        nothing = dict.fromkeys(_COUNTED, 0)
        rows = (dict(zip(counts, row, strict=True)) for row in sums.tolist())
        return cls({name: nothing | row for name, row in zip(names, rows, strict=True)})

    def to_json(self) -> str:
        """Returns this as JSON; the same text for equal counts."""
        return json.dumps(self.languages, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Returns the value that `to_json` turned into `text`.

        Raises:
          ValueError: if it is something else.
        """
        found = json_files.parse(text, _SHAPE, "counts of languages")
        if any(set(counts) != set(_COUNTED) for counts in found.values()):
            raise ValueError(f"not counts of languages: {text[:60]!r}")
        return cls(found)

    def summary(self) -> dict[str, Any]:
        """Returns the part of stats.json about languages."""
        prices = {code: ratio(counts["text_tokens"], counts["characters"]) for code, counts in self.languages.items()}
        paying = {code: price for code, price in prices.items() if price}
        reference = max(sorted(paying), key=lambda code: self.languages[code]["characters"], default=None)
        return {
            "reference": reference,
            "gini_of_tokens_per_character": gini(list(paying.values())),
            "by_code": {
                code: {
                    **{name: n for name, n in counts.items() if name not in sample.COUNTED},
                    "tokens_per_spaced_word": ratio(counts["text_tokens"], counts["spaced_words"]),
                    "bytes_per_token": ratio(counts["bytes"], counts["text_tokens"]),
                    "tokens_per_character": prices[code],
                    "premium": paying[code] / paying[reference] if reference and code in paying else None,
                    "share_of_oov_tokens": ratio(counts["oov_tokens"], counts["tokens"]),
                    "sample": sample.summary(counts),
                }
                for code, counts in self.languages.items()
            },
        }
