# SPDX-License-Identifier: Apache-2.0
"""Describes what a word is: normalizer, pre-tokenizer, Unicode. Only counts of the same words may be added up."""

import functools
import json
from collections.abc import Mapping
from typing import Any

from tokenmill.tokenizer import UNICODE_VERSIONS, Tokenizer


def describe_words(tokenizer_json: str) -> dict[str, Any]:
    """Returns everything that decides what a word is, as plain JSON; equal for counts that may be added up."""
    parts = json.loads(tokenizer_json)
    return deciding({**parts, "unicode": dict(UNICODE_VERSIONS)})


def differences(tokenizer_json: str, counted: Mapping[str, Any]) -> str:
    """Returns how the words of a tokenizer differ from those that were counted, for a message; "" if they are equal."""
    mine = describe_words(tokenizer_json)
    return "; ".join(
        f"its {name} is {json.dumps(mine[name])[:200]}, that of the counts {json.dumps(counted[name])[:200]}"
        for name in mine
        if mine[name] != counted[name]
    )


def deciding(words: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the parts of a description of words that affect which words there are, in one canonical form.

    Words are counted as they are in the text, not spelled in bytes. So of a `ByteLevel` at the end only its split
    pattern matters.
    """
    normalizers = _steps(words.get("normalizer"), "normalizers")
    for i, step in enumerate(normalizers):
        if step["type"] == "BertNormalizer" and step.get("strip_accents") is None:
            normalizers[i] = {**step, "strip_accents": step.get("lowercase", True)}
    cuts = _steps(words.get("pre_tokenizer"), "pretokenizers")
    if cuts and cuts[-1]["type"] == "ByteLevel":
        last = cuts.pop()
        if last["add_prefix_space"]:
            cuts.append({key: last[key] for key in last if key != "trim_offsets"})
        elif last.get("use_regex", True):
            cuts.append(_gpt2_pattern())
    return {
        "normalizer": _joined(normalizers, "normalizers"),
        "pre_tokenizer": _joined(cuts, "pretokenizers"),
        "unicode": words["unicode"],
    }


@functools.cache
def _gpt2_pattern() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Tokenizer.untrained("none", "gpt2").to_str())["pre_tokenizer"]
    return found


def _steps(component: Any, key: str) -> list[dict[str, Any]]:
    """Returns a component as a flat list of steps."""
    if component is None:
        return []
    if component["type"] != "Sequence":
        return [component]
    return [step for part in component[key] for step in _steps(part, key)]


def _joined(steps: list[dict[str, Any]], key: str) -> dict[str, Any] | None:
    return {"type": "Sequence", key: steps} if len(steps) > 1 else next(iter(steps), None)
