# SPDX-License-Identifier: Apache-2.0
"""Tokenizers on their way to workers: as text, compiled once per process."""

import threading

import apache_beam as beam

from tokenizer import Tokenizer

TokenizerText = str | beam.pvalue.AsSingleton
"""A `tokenizer.json` as text, or a side input that holds one."""

_compiled: dict[str, Tokenizer] = {}
_compiling = threading.Lock()
_KEPT_TOKENIZERS = 4


def compiled_tokenizer(tokenizer_json: str) -> Tokenizer:
    """Returns the tokenizer of a `tokenizer.json`, built once per process and shared by its threads.

    Building one takes seconds if the vocabulary is large. Keeps the last few.
    """
    with _compiling:
        if tokenizer_json not in _compiled:
            _keep(tokenizer_json, Tokenizer.from_str(tokenizer_json))
        return _compiled[tokenizer_json]


def keep_compiled(tokenizer: Tokenizer) -> None:
    """Makes `compiled_tokenizer` return `tokenizer` for its text in this process instead of parsing the text again."""
    with _compiling:
        _keep(tokenizer.to_str(), tokenizer)


def _keep(tokenizer_json: str, tokenizer: Tokenizer) -> None:
    while len(_compiled) >= _KEPT_TOKENIZERS:
        del _compiled[next(iter(_compiled))]
    _compiled[tokenizer_json] = tokenizer
