# SPDX-License-Identifier: Apache-2.0
"""What stats.json says about each language of a corpus."""

from collections.abc import Mapping
from typing import Any

from tokenmill.pipeline.statistics import sample
from tokenmill.pipeline.statistics.vocabulary import gini, ratio

_COUNTED = (
    "documents",
    "mixed",
    "bytes",
    "characters",
    "spaced_words",
    "text_tokens",
    "tokens",
    "oov_tokens",
    "filtered",
)


def summary(by_language: Mapping[str, Mapping[str, int]]) -> dict[str, Any]:
    """Returns the part of stats.json about languages.

    Args:
      by_language: by code: documents, mixed documents, bytes, characters and spaced words of their texts after steps
        and spans, tokens of these, tokens of rows, unknown tokens; documents that a filter left out, which no other
        number includes; and `sample.COUNTED`. What is missing is zero.
    """
    names = *_COUNTED, *sample.COUNTED
    languages = {code: dict.fromkeys(names, 0) | dict(counts) for code, counts in by_language.items()}
    prices = {code: ratio(counts["text_tokens"], counts["characters"]) for code, counts in languages.items()}
    paying = {code: price for code, price in prices.items() if price}
    reference = max(sorted(paying), key=lambda code: languages[code]["characters"], default=None)
    return {
        "reference": reference,
        "gini_of_tokens_per_character": gini(list(paying.values())),
        "by_code": {
            code: {
                **{name: counts[name] for name in _COUNTED},
                "tokens_per_spaced_word": ratio(counts["text_tokens"], counts["spaced_words"]),
                "bytes_per_token": ratio(counts["bytes"], counts["text_tokens"]),
                "tokens_per_character": prices[code],
                "premium": paying[code] / paying[reference] if reference and code in paying else None,
                "share_of_oov_tokens": ratio(counts["oov_tokens"], counts["tokens"]),
                "sample": sample.summary(counts),
            }
            for code, counts in languages.items()
        },
    }
