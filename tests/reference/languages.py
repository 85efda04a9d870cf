# SPDX-License-Identifier: Apache-2.0
"""The reference implementation of `identify`, in plain Python, with py3langid itself."""

import functools
from collections import Counter
from typing import Any

from tokenmill.tokenizer.languages import identifying as rules
from tokenmill.tokenizer.languages.kernels import SAMPLE_BYTES
from tokenmill.tokenizer.languages.scripts import SCRIPTS, script_table


def identify_text(text: str, threshold: float = 0.5) -> tuple[str, float, bool]:
    """Returns (code, confidence, whether it is mixed) of one text."""
    counts = Counter(int(script_table()[ord(c)]) for c in text)
    del counts[0]
    total = sum(counts.values())
    if not total:
        return rules.UNKNOWN, 0.0, False
    han, kana = SCRIPTS.index("Han"), SCRIPTS.index("Hiragana")
    n_kana = counts.pop(kana, 0)
    counts[han] += n_kana
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    first, n_first = ordered[0]
    n_second = ordered[1][1] if len(ordered) > 1 else 0
    mixed = n_second >= max(rules.SECOND_SHARE * total, 1)
    script, confidence = SCRIPTS[first], n_first / total
    if script == "Han":
        code = "ja" if n_kana >= rules.KANA_SHARE * n_first else "zh"
    elif script == "Latin" or script in rules.SEVERAL_LANGUAGES:
        sample, halves = _samples(text)
        code, share = _classify(script, sample)
        confidence *= share
        if len(text.encode()) >= rules.MIXED_BYTES:
            (begin, sure), (end, too) = (_classify(script, half) for half in halves)
            mixed |= begin != end and min(sure, too) >= rules.SURE
    else:
        code = rules.ONE_LANGUAGE.get(script, rules.UNKNOWN)
        confidence = confidence if script in rules.ONE_LANGUAGE else 0.0
    return (code if confidence >= threshold else rules.UNKNOWN), confidence, mixed


def _samples(text: str) -> tuple[str, tuple[str, str]]:
    data = text.encode()
    sample = data[:SAMPLE_BYTES].decode(errors="ignore")
    n = len(sample.encode())
    middle = next(i for i in range(n // 2, n + 1) if i == n or data[i] & 0xC0 != 0x80)
    last = middle
    if n < len(data):
        last = max(n, len(data) - SAMPLE_BYTES // 2)
        last = next(i for i in range(last, len(data) + 1) if i == len(data) or data[i] & 0xC0 != 0x80)
    return sample, (data[:middle].decode(), data[last:].decode())


@functools.cache
def _identifier(script: str) -> Any:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    found = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
    found.set_languages(rules.languages_of(script))
    return found


def _classify(script: str, text: str) -> tuple[str, float]:
    code, share = _identifier(script).classify(text)
    return code, float(share)
