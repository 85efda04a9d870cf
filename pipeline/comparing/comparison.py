# SPDX-License-Identifier: Apache-2.0
"""A comparison from paths to numbers: loads tokenizers, and compares them on texts or on counts, whichever is given."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from tokenmill.pipeline.comparing import from_counts, from_text, loading, page, probes
from tokenmill.pipeline.comparing.reading import Corpus
from tokenmill.pipeline.counting import counts
from tokenmill.pipeline.reporting import html

_SPEED_BYTES = 8_000_000
"""Bytes of text on which speed is measured."""


class Comparison(dict[str, Any]):
    """A comparison as plain JSON; a notebook shows it as the page that `tokenmill compare` writes."""

    def _repr_html_(self) -> str:
        return html.framed(page.page(self))


def compare(
    tokenizers: Sequence[str],
    on: str | Sequence[str],
    *,
    sizes: Sequence[int] = (),
    text_field: str = "text",
    lang_field: str | None = None,
    max_bytes: int = 50_000_000,
    parallel: str | None = None,
    speed: bool = False,
) -> Comparison:
    """Returns the comparison of tokenizers, see `tokenmill compare`.

    Args:
      tokenizers: files or folders of any format; the others are compared with the first one.
      on: files, folders or globs of a corpus, or a folder with word counts.
      sizes: compare each tokenizer, which must be BPE, with itself at these sizes of its vocabulary instead.
      text_field, lang_field: fields of JSON lines or Parquet; without the latter, languages are identified.
      max_bytes: text to read, about the same from the beginning of every file; 0 for all.
      parallel: a language, if every language has the same documents as it, translated.
      speed: whether to measure how long loading and encoding take, the only numbers that differ from run to run.

    Raises:
      ValueError: if these cannot be compared; the message says why. OSError: if a file cannot be read.
    """
    if isinstance(tokenizers, str):
        raise TypeError(f"tokenizers must be a list, got one str, {tokenizers!r}; put it into a list")
    on = [on] if isinstance(on, str) else on
    candidates = loading.load(tokenizers, least=1 if len(sizes) > 1 else 2)
    if sizes:
        candidates = loading.at_sizes(candidates, sizes)
    texts = []
    if any(counts.is_counts(path) for path in on):
        if len(on) > 1:
            raise ValueError(
                "--on: takes a corpus, or one folder with word counts; `tokenmill counts merge` adds counts up"
            )
        for name, given in (("lang-field", lang_field), ("parallel", parallel)):
            if given is not None:
                raise ValueError(f"--{name}: is for texts, and {on[0]!r} holds word counts")
        report = from_counts.compare(candidates, counts.open_counts(on[0]))
    else:
        corpus = Corpus(on, text_field, lang_field, max_bytes)
        report = from_text.compare(candidates, corpus, parallel)
        if speed:
            again = dataclasses.replace(corpus, max_bytes=_SPEED_BYTES)
            texts = [read.table.column("text") for read in again.documents()]
    if sizes:
        report["sizes"] = loading.gains(report, candidates)
    if speed:
        report["speed"] = probes.speed(candidates, texts)
    return Comparison(report)
