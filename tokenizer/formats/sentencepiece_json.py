# SPDX-License-Identifier: Apache-2.0
"""sentencepiece's normalization in a `tokenizer.json` that HF loads: HF's closest parts, and the exact one besides.

HF has no type that does what sentencepiece does to a text, but its types come close. They are where HF looks; the
options of our exact normalizer are in a field `sentencepiece` of the model, which HF ignores. TokenMill reads
sentencepiece's ids from the file on every text, HF on ordinary text.
"""

from typing import Any

from tokenmill.tokenizer.errors import TokenizerFileError

SPACE = "▁"
_TYPE = "SentencePieceNormalizer"
_OPTIONS = (
    "add_dummy_prefix", "remove_extra_whitespaces", "escape_whitespaces", "treat_whitespace_as_suffix",
    "user_defined_symbols",
)  # fmt: skip
FIELD = "sentencepiece"


def hf_steps(normalizer: dict[str, Any], *, is_bpe: bool, splits: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns HF's closest normalizer and pre-tokenizer.

    Args:
      normalizer: a SentencePieceNormalizer as JSON.
      is_bpe: whether the model is BPE, whose user-defined pieces are added tokens.
      splits: whether words are cut at spaces, as only Unigram allows.

    Raises:
      ValueError: for treatment of white space that HF's parts cannot express: as a suffix, unescaped, or pieces that
        consist of spaces.
    """
    if normalizer["treat_whitespace_as_suffix"] or not normalizer["escape_whitespaces"]:
        raise ValueError("HF has no way to put spaces at the end of words, or to leave them unescaped")
    blank = [symbol for symbol in normalizer["user_defined_symbols"] if not symbol.strip(" ")]
    if blank and is_bpe and normalizer["remove_extra_whitespaces"]:
        raise ValueError(f"HF cannot keep the user-defined piece {blank[0]!r} where it removes extra spaces")
    steps: list[dict[str, Any]] = []
    if normalizer["precompiled_charsmap"]:
        steps.append({"type": "Precompiled", "precompiled_charsmap": normalizer["precompiled_charsmap"]})
    if normalizer["remove_extra_whitespaces"]:
        steps.append({"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "})
        # Only spaces; Strip would also remove line ends, and "^" means different things in different engines.
        steps.append({"type": "Replace", "pattern": {"Regex": r"(?<![\s\S]) | (?![\s\S])"}, "content": ""})
    # User-defined pieces cut a text into several, of which only the first gets a prefix: only Metaspace can tell.
    has_cuts = is_bpe and bool(normalizer["user_defined_symbols"])
    if normalizer["add_dummy_prefix"] and not has_cuts:
        steps.append({"type": "Prepend", "prepend": SPACE})
    steps.append({"type": "Replace", "pattern": {"String": " "}, "content": SPACE})
    scheme = "first" if normalizer["add_dummy_prefix"] and has_cuts else "never"
    metaspace = {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": scheme, "split": splits}
    return {"type": "Sequence", "normalizers": steps}, metaspace


def with_hf_steps(fields: dict[str, Any], splits: bool) -> dict[str, Any]:
    """Returns the fields of a `tokenizer.json` in a form that HF can load, unchanged if HF cannot express them."""
    normalizer, model = fields["normalizer"], fields["model"]
    if not normalizer or normalizer["type"] != _TYPE or fields["pre_tokenizer"]:
        return fields
    if not model or model["type"] not in _MODELS:
        return fields
    try:
        steps, metaspace = hf_steps(normalizer, is_bpe=model["type"] == "BPE", splits=splits)
    except ValueError:
        return fields
    options = {name: normalizer[name] for name in _OPTIONS}
    return fields | {"normalizer": steps, "pre_tokenizer": metaspace, "model": model | {FIELD: options}}


_MODELS = ("BPE", "Unigram")


def without_hf_steps(fields: dict[str, Any], source: str) -> dict[str, Any]:
    """Undoes `with_hf_steps`.

    Raises:
      TokenizerFileError: if the options contradict HF's parts in the file, because one of them has been changed.
    """
    model = fields.get("model")
    if not isinstance(model, dict) or FIELD not in model:
        return fields
    options, place = model[FIELD], f"{source}.model.{FIELD}"
    if not isinstance(options, dict) or set(options) != set(_OPTIONS):
        raise TokenizerFileError(f"{place}: expected an object with the fields {', '.join(_OPTIONS)}")
    steps, metaspace = fields.get("normalizer"), fields.get("pre_tokenizer")
    charsmap = ""
    if isinstance(steps, dict) and isinstance(steps.get("normalizers"), list):
        maps = [s for s in steps["normalizers"] if isinstance(s, dict) and s.get("type") == "Precompiled"]
        charsmap = maps[0].get("precompiled_charsmap", "") if maps else ""
    normalizer = {"type": _TYPE, "precompiled_charsmap": charsmap, **{name: options[name] for name in _OPTIONS}}
    splits = isinstance(metaspace, dict) and metaspace.get("split") is True
    try:
        expected = hf_steps(normalizer, is_bpe=model.get("type") == "BPE", splits=splits)
    except ValueError as error:
        raise TokenizerFileError(f"{place}: {error}") from error
    if expected != (steps, metaspace):
        raise TokenizerFileError(
            f"{place}: contradicts normalizer and pre_tokenizer, which have been changed; take it out to use only them"
        )
    rest = {key: value for key, value in model.items() if key != FIELD}
    return fields | {"normalizer": normalizer, "pre_tokenizer": None, "model": rest}
