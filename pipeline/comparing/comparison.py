# SPDX-License-Identifier: Apache-2.0
"""A comparison from paths to numbers: loads tokenizers, and compares them on texts, counts, or every code point.

Each tokenizer has a label that no other has; or it is compared with itself at several sizes of its vocabulary. BPE
training adds one token after the other, so training for a smaller size would give the beginning of the vocabulary.
WordPiece by the same rule keeps no merges, and Unigram prunes down to a size: these must be trained for each size.
"""

import dataclasses
import functools
import os
import time
import timeit
import unicodedata
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from tokenmill.pipeline.comparing import corpora, measure, page
from tokenmill.pipeline.comparing.sums import Candidate
from tokenmill.pipeline.counting import counts
from tokenmill.pipeline.reporting import html
from tokenmill.pipeline.statistics.words import encode_each
from tokenmill.tokenizer import BPE, Tokenizer

_SAYS_NOTHING = ("vocab", "tokenizer.json")
_SPEED_BYTES = 8_000_000
"""Bytes of text on which speed is measured."""
_TEXTS = ("{}", "a{}b")
"""Texts in which a code point is tried: alone, and inside a word, where punctuation cuts."""
_BATCH = 1 << 15
"""Code points that are encoded at once."""
_ORACLES = {"0.23": "8", "1.0": "17", "8": "8", "17": "17"}
"""What may come after "@": a version of HF tokenizers, or of Unicode -> `unicode` of `Tokenizer.from_file`."""


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
    candidates = load(tokenizers, least=1 if len(sizes) > 1 else 2)
    if sizes:
        candidates = at_sizes(candidates, sizes)
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


def load(paths: Sequence[str], least: int = 2) -> list[Candidate]:
    """Loads tokenizers of any format.

    Args:
      paths: files or folders, as `Tokenizer.from_file` takes them; "bert@1.0" is the file bert with the ids of HF
        tokenizers 1.0, "bert@0.23" with those of 0.23.

    Raises:
      ValueError: if there are fewer, or one is broken or not supported. OSError: if one cannot be read.
    """
    if len(paths) < least:
        raise ValueError(f"a comparison takes two tokenizers or more, got {len(paths)}")
    candidates = []
    for label, path in zip(labels(paths), paths, strict=True):
        started = time.perf_counter()
        name, _, oracle = ("", "", "") if os.path.lexists(path) else path.rpartition("@")
        try:
            if name and oracle not in _ORACLES:
                raise ValueError(f"after '@' comes one of {', '.join(_ORACLES)}, got {oracle!r}")
            tokenizer = Tokenizer.from_file(name or path, unicode=_ORACLES[oracle] if name else None)
        except ValueError as error:
            raise ValueError(f"{path!r}: {error}") from error
        candidates.append(Candidate(label, path, tokenizer, time.perf_counter() - started))
    return candidates


def labels(paths: Sequence[str]) -> list[str]:
    """Returns a label for each path: its last names, as many as tell it from the others and say something; a number.

    >>> labels(["a/tokenizer.json", "b/tokenizer.json", "gpt2", "gpt2", "build/mine/vocab"])
    ['a/tokenizer.json', 'b/tokenizer.json', 'gpt2', 'gpt2#2', 'mine/vocab']
    """
    parts = [path.replace("\\", "/").rstrip("/").split("/") for path in paths]
    found = []
    for i, mine in enumerate(parts):
        others = [each for each in parts if each != mine]
        least = 2 if mine[-1] in _SAYS_NOTHING else 1
        n = next((n for n in range(least, len(mine)) if all(each[-n:] != mine[-n:] for each in others)), len(mine))
        same = parts[:i].count(mine)
        found.append("/".join(mine[-n:]) + (f"#{same + 1}" if same else ""))
    return found


def at_sizes(candidates: Sequence[Candidate], sizes: Sequence[int]) -> list[Candidate]:
    """Returns each tokenizer at each of the sizes, ascending, labelled `label@size`.

    Raises:
      ValueError: as `smaller`, naming the tokenizer.
    """
    found = []
    for each in candidates:
        for size in sorted(set(sizes)):
            try:
                tokenizer = smaller(each.tokenizer, size)
            except ValueError as error:
                raise ValueError(f"{each.path!r}: {error}") from error
            found.append(dataclasses.replace(each, label=f"{each.label}@{size}", tokenizer=tokenizer))
    return found


def smaller(tokenizer: Tokenizer, size: int) -> Tokenizer:
    """Returns a BPE tokenizer as it was when its vocabulary had `size` entries, the alphabet included.

    It adds no tokens around texts, which are compared bare, and has no added token except those in its vocabulary.

    Raises:
      ValueError: if it is not BPE with merges in the order of training, or its vocabulary never had this size.
    """
    model = tokenizer.model
    if not isinstance(model, BPE) or model.merge_ranks is not None:
        raise ValueError(
            f"--sizes: takes BPE with its merges, and this is {type(model).__name__}"
            f"{' of SentencePiece' if isinstance(model, BPE) else ''}, which does not say what a smaller one would "
            "hold; train it with tokenizer.train.vocab_size: [8000, 16000, ...] and compare those"
        )
    prefix = model.continuing_subword_prefix or ""
    made = [left + right.removeprefix(prefix) for left, right in model.merges]
    kept = set(model.vocab) - set(made)
    n_first, n_merges = len(kept), 0
    while n_merges < len(made) and len(kept) < size:
        kept.add(made[n_merges])
        n_merges += 1
    if len(kept) != size:
        raise ValueError(
            f"--sizes: must be from {n_first:,}, what the vocabulary begins with, to {len(model.vocab):,}, all of it; "
            f"got {size:,}"
        )
    ids = {token: i for i, token in enumerate(sorted(kept, key=model.vocab.__getitem__))}
    added = [dataclasses.replace(each, id=ids[each.content]) for each in tokenizer.added_tokens if each.content in ids]
    return tokenizer.replace(
        model=dataclasses.replace(model, vocab=ids, merges=list(model.merges[:n_merges])),
        added_tokens=tuple(added), post_processor=None, truncation=None, padding=None,
    )  # fmt: skip


def _speed(candidates: Sequence[Candidate], columns: Sequence[pa.Array]) -> dict[str, Any]:
    """Returns how long each tokenizer took to load, and the megabytes that it encodes in a second, best of three.

    One thread, as this machine is now: these numbers alone differ from run to run.
    """
    n_bytes = sum(int(column.nbytes) for column in columns)
    speeds = {}
    for each in candidates:
        encode_all = functools.partial(
            lambda tokenizer: [encode_each(tokenizer, one) for one in columns], each.tokenizer
        )
        rate = n_bytes / 1e6 / min(timeit.repeat(encode_all, number=1, repeat=3)) if columns else None
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
                ids = {each.label: each.tokenizer.encode(text, add_special_tokens=False).ids for each in candidates}
                by = {label: [first.tokenizer.id_to_token(i) or str(i) for i in made] for label, made in ids.items()}
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


def code_point_lines(report: dict[str, Any]) -> Iterator[str]:
    """Yields a comparison as text: the code points, one a line, and how many they are."""
    for each in report["differing"]:
        for text, by in each["texts"].items():
            tokens = "   ".join(f"{label}: {' '.join(found)}" for label, found in by.items())
            yield f"{each['code_point']:8} {text!r}   {tokens}   {each['name'].lower()}".rstrip()
    n = len(report["differing"])
    yield f"{n:,} of {report['code_points']:,} code points have other ids in one of {', '.join(report['tokenizers'])}"
