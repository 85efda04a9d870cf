# SPDX-License-Identifier: Apache-2.0
"""A comparison from paths to numbers: loads tokenizers, and compares them on texts, counts, or every code point."""

import dataclasses
import time
import unicodedata
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from tokenmill.pipeline.comparing import corpora, loading, measure, page
from tokenmill.pipeline.comparing.loading import Candidate
from tokenmill.pipeline.counting import counts
from tokenmill.pipeline.reporting import html
from tokenmill.pipeline.statistics.words import encode_each
from tokenmill.tokenizer import Tokenizer

_SPEED_BYTES = 8_000_000
"""Bytes of text on which speed is measured."""
_TEXTS = ("{}", "a{}b")
"""Texts in which a code point is tried: alone, and inside a word, where punctuation cuts."""
_BATCH = 1 << 15
"""Code points that are encoded at once."""


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
        report = corpora.compare_counts(candidates, counts.open_counts(on[0]))
    else:
        corpus = corpora.Corpus(on, text_field, lang_field, max_bytes)
        report = corpora.compare_texts(candidates, corpus, parallel)
        if speed:
            again = dataclasses.replace(corpus, max_bytes=_SPEED_BYTES)
            texts = [read.table.column("text") for read in again.documents()]
    if sizes:
        report["sizes"] = measure.gains(report, candidates)
    if speed:
        report["speed"] = _speed(candidates, texts)
    return Comparison(report)


def _speed(candidates: Sequence[Candidate], columns: Sequence[pa.Array]) -> dict[str, Any]:
    """Returns how long each tokenizer took to load, and the megabytes that it encodes in a second, best of three.

    One thread, as this machine is now: these numbers alone differ from run to run.
    """
    n_bytes = sum(int(column.nbytes) for column in columns)
    speeds = {}
    for each in candidates:
        seconds = []
        for _ in range(3 if columns else 0):
            started = time.perf_counter()
            for column in columns:
                encode_each(each.tokenizer, column)
            seconds.append(time.perf_counter() - started)
        rate = n_bytes / 1e6 / min(seconds) if seconds else None
        speeds[each.label] = {"load_seconds": each.load_seconds, "megabytes_per_second": rate}
    return speeds


def compare_code_points(candidates: Sequence[Candidate]) -> dict[str, Any]:
    """Returns the code points to which tokenizers give other ids than the first of them, as plain JSON.

    Raises:
      ValueError: if their vocabularies differ, so that ids say nothing.
    """
    first = candidates[0]
    vocabulary = first.tokenizer.get_vocab()
    for other in candidates[1:]:
        if other.tokenizer.get_vocab() != vocabulary:
            raise ValueError(
                f"--on: {first.label} and {other.label} have different vocabularies, so their ids cannot be compared; "
                "name a corpus or word counts to compare them on"
            )
    differing, n_tried = [], 0
    for start in range(0, 0x110000, _BATCH):
        characters = [chr(c) for c in range(start, start + _BATCH) if not 0xD800 <= c < 0xE000]
        n_tried += len(characters)
        found: dict[str, dict[str, dict[str, list[str]]]] = {}
        for form in _TEXTS:
            texts = [form.format(character) for character in characters]
            for i, text in _differing(candidates, texts):
                tokens = {each.label: each.tokenizer.encode(text, add_special_tokens=False) for each in candidates}
                by = {label: _shown(each.ids, candidates[0].tokenizer) for label, each in tokens.items()}
                found.setdefault(characters[i], {})[text] = by
        differing += [
            {"code_point": f"U+{ord(c):04X}", "name": unicodedata.name(c, ""), "texts": found[c]} for c in sorted(found)
        ]
    labels = [each.label for each in candidates]
    return {"format_version": 1, "tokenizers": labels, "code_points": n_tried, "differing": differing}


def _differing(candidates: Sequence[Candidate], texts: list[str]) -> Iterator[tuple[int, str]]:
    """Yields the texts with ids of which the tokenizers are not of one mind, and their places."""
    column = pa.array(texts, pa.string())
    rows = [each.tokenizer.encode_arrow(column) for each in candidates]
    if all(rows[0].equals(other) for other in rows[1:]):
        return
    lists = [each.to_pylist() for each in rows]
    yield from ((i, text) for i, text in enumerate(texts) if any(other[i] != lists[0][i] for other in lists[1:]))


def _shown(ids: Sequence[int], tokenizer: Tokenizer) -> list[str]:
    return [tokenizer.id_to_token(token_id) or str(token_id) for token_id in ids]


def code_point_lines(report: dict[str, Any]) -> Iterator[str]:
    """Yields a comparison as text: the code points, one a line, and how many they are."""
    for each in report["differing"]:
        for text, by in each["texts"].items():
            tokens = "   ".join(f"{label}: {' '.join(found)}" for label, found in by.items())
            yield f"{each['code_point']:8} {text!r}   {tokens}   {each['name'].lower()}".rstrip()
    n = len(report["differing"])
    yield f"{n:,} of {report['code_points']:,} code points have other ids in one of {', '.join(report['tokenizers'])}"
