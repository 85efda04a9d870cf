# SPDX-License-Identifier: Apache-2.0
"""Tokenizers in workers: they arrive as text, and each process builds them once.

Beam's `Shared` is not for them: it holds on to one object of a stage, where fused steps may have several of them, and
cannot take one that this process has already, as `keep_compiled` does.
"""

import threading
from collections.abc import Collection, Sequence

import apache_beam as beam

from tokenmill.tokenizer import Tokenizer

TokenizerText = str | beam.pvalue.AsSingleton
"""A `tokenizer.json` as text, or a side input that holds one."""

_compiled: dict[str, Tokenizer] = {}
_compiling = threading.Lock()
_KEPT_TOKENIZERS = 16


def compiled_tokenizer(tokenizer_json: str) -> Tokenizer:
    """Returns the tokenizer of a `tokenizer.json`, built once per process and shared by its threads.

    Building one takes seconds if the vocabulary is large. Keeps those that were used last.
    """
    return compiled_tokenizers([tokenizer_json], 1)[0]


def compiled_tokenizers(texts: Sequence[str], n: int) -> list[Tokenizer]:
    """Returns the tokenizer of each of `n` folders; `texts` are theirs, or one for all. Keeps all of them."""
    with _compiling:
        for text in dict.fromkeys(texts):
            found = _compiled.pop(text) if text in _compiled else Tokenizer.from_str(text)
            _keep(text, found, wanted=texts)  # the last is the one used last
        tokenizers = [_compiled[text] for text in texts]
    return tokenizers if len(tokenizers) == n else tokenizers * n


def keep_compiled(tokenizer: Tokenizer) -> None:
    """Makes `compiled_tokenizer` return `tokenizer` for its text in this process instead of parsing the text again."""
    with _compiling:
        _keep(tokenizer.to_str(), tokenizer)


def _keep(tokenizer_json: str, tokenizer: Tokenizer, wanted: Collection[str] = ()) -> None:
    for old in [text for text in _compiled if text not in wanted][: max(0, len(_compiled) + 1 - _KEPT_TOKENIZERS)]:
        del _compiled[old]
    _compiled[tokenizer_json] = tokenizer
