# SPDX-License-Identifier: Apache-2.0
"""Describes what a word is: normalizer, pre-tokenizer, Unicode. Only counts of the same words may be added up."""

import functools
import json
from collections.abc import Mapping
from typing import Any, get_args

from tokenmill.pipeline.config.tokenizer import PreTokenizerName
from tokenmill.tokenizer import UNICODE_VERSIONS, Tokenizer


def describe_words(tokenizer_json: str) -> dict[str, Any]:
    """Returns everything that decides what a word is, as plain JSON; equal for counts that may be added up."""
    parts = json.loads(tokenizer_json)
    return deciding({**parts, "unicode": dict(UNICODE_VERSIONS)})


def differences(words: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """Returns what words have in place of what others have, for a message, or "": `pre_tokenizer gpt2, not qwen`."""
    return "; ".join(
        f"{name} {_named(value)}, not {_named(other.get(name))}"
        for name, value in words.items()
        if other.get(name) != value
    )


def _named(component: Any) -> str:
    return preset(component) or json.dumps(component, ensure_ascii=False)[:300]


def preset(component: Any) -> str:
    """Returns the name that `tokenizer.train.pre_tokenizer` has for a component of `describe_words`; "" for none."""
    names = get_args(PreTokenizerName)
    made = (describe_words(Tokenizer.untrained("none", name).to_str())["pre_tokenizer"] for name in names)
    return next((name for name, each in zip(names, made, strict=True) if each == component), "")


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
