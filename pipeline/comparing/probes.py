# SPDX-License-Identifier: Apache-2.0
"""Tests tokenizers on made-up texts: words with mistakes, digits, white space, code."""

import time
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from tokenmill.pipeline.comparing.loading import Candidate
from tokenmill.pipeline.statistics.vocabulary import ratio
from tokenmill.pipeline.statistics.words import encode_each

MAX_WORDS = 2000
"""At most this many words are changed, the most frequent ones."""

LEAST_LETTERS = 4

HOMOGLYPHS = str.maketrans("aceiopsxyABCEHKMOPTX", "асеіорѕхуАВСЕНКМОРТХ")
"""Latin letters, and the Cyrillic ones that look like them."""


def _swap(word: str) -> str:
    middle = len(word) // 2
    return word[: middle - 1] + word[middle] + word[middle - 1] + word[middle + 1 :]


def _drop(word: str) -> str:
    return word[: len(word) // 2] + word[len(word) // 2 + 1 :]


CHANGES: dict[str, Callable[[str], str]] = {
    "two letters swapped": _swap,
    "a letter dropped": _drop,
    "upper case": str.upper,
    "NFD": lambda word: unicodedata.normalize("NFD", word),
    "homoglyphs": lambda word: word.translate(HOMOGLYPHS),
}
"""How a word is changed: the letters in its middle, or all of it."""

TEXTS: dict[str, list[str]] = {
    "digits": [str(3**power) for power in range(40)],
    "white space": [unit * n for unit in (" ", "\t", "\n", "\n    ") for n in range(1, 17)],
    "code": [
        "def area(r):\n    if r <= 0:\n        return None\n    return 3.14159 * r ** 2\n",
        "for (int i = 0; i < n; ++i) {\n\tsum += a[i] != 0 ? a[i] : -1;\n}\n",
        "const f = async (x) => { await g(`${x.id}`); return x?.y ?? []; };\n",
        "SELECT a.id, COUNT(*) AS n FROM a LEFT JOIN b ON a.id = b.a_id GROUP BY a.id;\n",
        '{"id": 17, "tags": ["x", "y"], "meta": {"ok": true, "score": 0.25}}\n',
        '<div class="row"><a href="/index.html?q=1&amp;p=2">link</a></div>\n',
        '#include <stdio.h>\nint main(void) { return printf("%d\\n", 0x1F & ~mask); }\n',
        'x=$(ls -1 *.txt | wc -l) && [ "$x" -gt 0 ] || exit 1\n',
    ],
}


def robustness(candidates: Sequence[Candidate], words: Iterable[str]) -> dict[str, Any]:
    """Returns the tokens of changed words as a multiple of those of the originals, by change and tokenizer.

    Words are put after a space. Only words that a change alters are counted, the same ones for all tokenizers.

    Args:
      words: the most frequent first; those of `LEAST_LETTERS` letters or more and nothing else are taken.
    """
    taken: list[str] = []
    for word in words:
        if len(taken) == MAX_WORDS:
            break
        if len(word) >= LEAST_LETTERS and word.isalpha():
            taken.append(word)
    found: dict[str, Any] = {}
    for name, change in CHANGES.items():
        pairs = [(word, changed) for word in taken if (changed := change(word)) != word]
        both = [before for before, _ in pairs] + [after for _, after in pairs]
        column = pa.array([f" {word}" for word in both], pa.large_string())
        encoded = [np.stack(encode_each(each.tokenizer, column)).reshape(2, 2, len(pairs)) for each in candidates]
        is_good = np.all([sizes >= 0 for sizes, _ in encoded], axis=(0, 1))
        by = {}
        for each, (sizes, n_unknown) in zip(candidates, encoded, strict=True):
            before, after = sizes[:, is_good].sum(axis=1).tolist()
            is_unknown = n_unknown[1, is_good] > 0
            by[each.label] = {
                "growth": ratio(after, before),
                "unknown": ratio(int(is_unknown.sum()), is_unknown.size),
            }
        found[name] = {"words": int(is_good.sum()), "by": by}
    return found


def made_texts(candidates: Sequence[Candidate]) -> dict[str, Any]:
    """Returns the characters per token of `TEXTS`, and the share of the texts that decoding restores."""
    return {name: {each.label: _made_texts(each, texts) for each in candidates} for name, texts in TEXTS.items()}


def _made_texts(candidate: Candidate, texts: Sequence[str]) -> dict[str, float | None]:
    column = pa.array(texts, pa.large_string())
    sizes, _ = encode_each(candidate.tokenizer, column)
    good = [text for text, size in zip(texts, sizes.tolist(), strict=True) if size >= 0]
    back = candidate.tokenizer.decode_arrow(candidate.tokenizer.encode_bare(good), skip_special_tokens=False)
    n_same = sum(text == again for text, again in zip(good, back.to_pylist(), strict=True))
    return {
        "characters_per_token": ratio(sum(map(len, good)), int(sizes[sizes >= 0].sum())),
        "restored": ratio(n_same, len(texts)),
    }


def speed(candidates: Sequence[Candidate], columns: Sequence[pa.Array]) -> dict[str, Any]:
    """Returns how long each tokenizer took to load, and the megabytes that it encodes in a second, best of three.

    One thread, as this machine is now: these numbers alone differ from run to run.
    """
    n_bytes = sum(int(column.nbytes) for column in columns)
    found = {}
    for each in candidates:
        seconds = []
        for _ in range(3 if columns else 0):
            started = time.perf_counter()
            for column in columns:
                encode_each(each.tokenizer, column)
            seconds.append(time.perf_counter() - started)
        found[each.label] = {
            "load_seconds": each.load_seconds,
            "megabytes_per_second": n_bytes / 1e6 / min(seconds) if seconds else None,
        }
    return found
