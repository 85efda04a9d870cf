# SPDX-License-Identifier: Apache-2.0
"""The comparison of tokenizers on a corpus, as plain JSON. No number in it depends on the machine.

Definitions follow TokEval (github.com/swiss-ai/tokenizer-intrinsic-evals) and TokLens 0.1 (the package toklens):

- `fertility`, TokEval: the tokens of texts, divided by the words in them; over several texts TokEval takes the mean of
  what this is for each;
- `fertility_alone` and `strr_alone`, TokLens: tokens per word, and the share of words that are one token, where each
  word is a text of its own; `strr` lets a word also stand behind a space, as in a text, and takes the better, but
  does not take an unknown token for a word;
- `parity`, TokLens: the tokens of a language, divided by those of the reference for the same documents;
- `gini`, TokEval: the Gini coefficient over languages of tokens per byte; of tokens per document of parallel texts.

All of them are diagnostics: they say how text is cut, not how well a model learns from it.
"""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tokenmill.pipeline.comparing.loading import Candidate
from tokenmill.pipeline.comparing.probes import made_texts, robustness
from tokenmill.pipeline.comparing.sums import (
    ALL,
    LEAST_BLOCKS,
    OTHER,
    SUMMED,
    Bootstrap,
    Floats,
    Found,
    GroupSums,
    Ints,
    changes,
    intervals,
)
from tokenmill.pipeline.statistics.token_table import describe, token_counts
from tokenmill.pipeline.statistics.vocabulary import gini, ratio
from tokenmill.tokenizer.languages import UNKNOWN

FORMAT_VERSION = 1
"""Version of the JSON of a comparison."""

TOP_WORDS = 100
"""How many of the words that gain and lose most are listed for each tokenizer."""


def report(candidates: Sequence[Candidate], found: Found, parallel: str | None = None) -> dict[str, Any]:
    """Returns a comparison as plain JSON.

    Args:
      candidates: two or more; the others are compared with the first one.
      parallel: a language, if every language has the same documents as it, translated; None if not.

    Raises:
      ValueError: if languages differ in their number of documents although `parallel`.
    """
    labels = [each.label for each in candidates]
    bootstrap = Bootstrap() if found.has_documents else None
    groups = {kind: _rows(sums, labels, bootstrap) for kind, sums in found.groups.items()}
    total = groups.pop(ALL)[0]
    made: dict[str, Any] = {
        "format_version": FORMAT_VERSION,
        "tokenizers": [_tokenizer(each, ids) for each, ids in zip(candidates, found.ids, strict=True)],
        "overlap": _overlap(candidates),
        "on": {**{name: total[name] for name in SUMMED}, "parallel": parallel},
        ALL: total,
        **groups,
        "robustness": robustness(candidates, (str(word) for word in found.words.dictionary)),
        "made_texts": made_texts(candidates),
    }
    _add_words(made, found, labels)
    if "language" in groups:
        _add_languages(made, parallel)
    return made


def _tokenizer(candidate: Candidate, ids: Ints) -> dict[str, Any]:
    vocabulary = describe(token_counts(ids, candidate.tokenizer))
    return {"label": candidate.label, "digest": candidate.tokenizer.digest, "vocabulary": vocabulary}


def _overlap(candidates: Sequence[Candidate]) -> list[dict[str, Any]]:
    """Returns for each two tokenizers how many tokens they share, as their vocabularies spell them.

    `Ġthe` and `▁the` are two tokens here, as in TokLens: vocabularies of one kind compare, others share little.
    """
    vocabularies = [(each.label, set(each.tokenizer.get_vocab())) for each in candidates]
    return [
        {
            "tokenizers": [a, b],
            "shared": len(mine & other),
            "only_first": len(mine - other),
            "only_second": len(other - mine),
            "jaccard": ratio(len(mine & other), len(mine | other)),
        }
        for (a, mine), (b, other) in itertools.combinations(vocabularies, 2)
    ]


def _add_words(made: dict[str, Any], found: Found, labels: Sequence[str]) -> None:
    """Adds which words are kept whole, by language too, and which gain and lose most.

    An unknown token is no whole word, except to `strr_alone`, as in TokLens; a word that one of the tokenizers does not
    know does not gain by it.
    """
    numbers, counts = found.words.indices.to_numpy(), found.rows["count"].to_numpy()
    # A word on which one of them fails counts for none.
    is_good = np.min(np.stack([each.in_text for each in found.encoded]), axis=0) >= 0
    is_known = is_good & (np.max(np.stack([each.n_unknown for each in found.encoded]), axis=0) == 0)
    kinds: list[tuple[Ints, list[dict[str, Any]]]] = [(np.zeros(len(numbers), np.int64), [made[ALL]])]
    if "language" in made:
        places = {row["name"]: i for i, row in enumerate(made["language"])}
        languages = found.rows["language"].combine_chunks().dictionary_encode()
        of_language = [places.get(name, places.get(OTHER)) for name in languages.dictionary.to_pylist()]
        kinds.append((np.array(of_language, np.int64)[languages.indices.to_numpy()], made["language"]))
    weights = counts * is_good[numbers]
    for groups, rows in kinds:
        n_words = _sums(groups, weights, len(rows))
        for i, label in enumerate(labels):
            measures: dict[str, Any] = {"strr": found.encoded[i].is_whole[numbers]}
            if found.has_documents:
                alone = found.encoded[i].alone[numbers]
                measures |= {"strr_alone": alone == 1, "fertility_alone": alone}
            for name, values in measures.items():
                for row, n, total in zip(rows, _sums(groups, weights * values, len(rows)), n_words, strict=True):
                    row["by"][label][name] = ratio(n, total)
    total_counts = np.zeros(len(found.words.dictionary), np.int64)
    np.add.at(total_counts, numbers, counts)
    made["words"] = {
        "distinct": len(found.words.dictionary),
        "left_out": found.n_left_out,
        "changes": {
            label: changes(
                found.words.dictionary, total_counts * is_known, found.encoded[0].in_text, each.in_text, TOP_WORDS
            )
            for label, each in zip(labels[1:], found.encoded[1:], strict=True)
        },
    }


def _sums(groups: Ints, values: Ints, n: int) -> list[int]:
    sums = np.zeros(n, np.int64)
    np.add.at(sums, groups, values)
    return [int(each) for each in sums.tolist()]


def _rows(sums: GroupSums, labels: Sequence[str], bootstrap: Bootstrap | None) -> list[dict[str, Any]]:
    """Returns a row for each group, those with most bytes first."""
    rows = [_row(name, blocks, labels, bootstrap) for name, blocks in zip(sums.names, sums.blocks, strict=True)]
    return sorted(rows, key=lambda row: (-row["bytes"], row["name"]))


def _row(name: str, blocks: Ints, labels: Sequence[str], bootstrap: Bootstrap | None) -> dict[str, Any]:
    """Returns the row of a group: its sums, and the measures of each tokenizer by its label."""
    numbers = blocks.sum(axis=0).tolist()
    sums, of_each = dict(zip(SUMMED, numbers, strict=False)), numbers[len(SUMMED) :]
    by: dict[str, dict[str, Any]] = {
        label: {
            "tokens": n,
            "bytes_per_token": ratio(sums["bytes"], n),
            "tokens_per_megabyte": ratio(1e6 * n, sums["bytes"]),
            "fertility": ratio(n, sums["words"]),
            "unknown": ratio(n_unknown, n),
        }
        for label, n, n_unknown in zip(labels, of_each[: len(labels)], of_each[len(labels) :], strict=True)
    }
    for label in labels[1:]:
        for measure in ("bytes_per_token", "tokens_per_megabyte"):
            mine, first = by[label][measure], by[labels[0]][measure]
            by[label][f"{measure}_difference"] = None if mine is None or first is None else mine - first
    if bootstrap is not None and np.count_nonzero(blocks[:, 0]) >= LEAST_BLOCKS:
        for (label, measure), found in _intervals(bootstrap.resample(blocks), labels).items():
            by[label][f"{measure}_interval"] = found
    return {"name": name, **{each: sums[each] for each in SUMMED}, "by": by}


def _intervals(resampled: Floats, labels: Sequence[str]) -> dict[tuple[str, str], list[float] | None]:
    n_bytes, n_tokens = resampled[:, [SUMMED.index("bytes")]], resampled[:, len(SUMMED) : len(SUMMED) + len(labels)]
    with np.errstate(divide="ignore", invalid="ignore"):
        measures = {"bytes_per_token": n_bytes / n_tokens, "tokens_per_megabyte": 1e6 * n_tokens / n_bytes}
    found: dict[tuple[str, str], list[float] | None] = {}
    for measure, values in measures.items():
        with np.errstate(invalid="ignore"):
            differences = values[:, 1:] - values[:, :1]
        limits = intervals(np.hstack([values, differences]))
        names = [(label, measure) for label in labels]
        names += [(label, f"{measure}_difference") for label in labels[1:]]
        found.update(zip(names, limits, strict=True))
    return found


def _add_languages(report: dict[str, Any], parallel: str | None) -> None:
    """Adds measures over all languages: Gini, and for parallel texts parity with the reference."""
    rows = [row for row in report["language"] if row["name"] != UNKNOWN]
    units = ["bytes", "characters"]
    if parallel is not None:
        _check_parallel(rows, parallel)
        units.append("documents")
    reference = next((row for row in rows if row["name"] == parallel), None)
    for tokenizer in report["tokenizers"]:
        label = tokenizer["label"]
        tokenizer["gini"] = {
            unit: gini(
                [row["by"][label]["tokens"] / row[unit] for row in rows if row[unit] and row["by"][label]["tokens"]]
            )
            for unit in units
        }
        for row in rows if reference is not None else ():
            assert reference is not None
            row["by"][label]["parity"] = ratio(row["by"][label]["tokens"], reference["by"][label]["tokens"])


def _check_parallel(rows: Sequence[Mapping[str, Any]], parallel: str) -> None:
    n = {row["name"]: row["documents"] for row in rows}
    if parallel not in n:
        raise ValueError(f"--parallel {parallel}: there is no document of this language; there are {', '.join(n)}")
    if unlike := [name for name in n if n[name] != n[parallel]]:
        raise ValueError(
            f"--parallel {parallel}: its {n[parallel]:,} documents are not those of {unlike[0]}, which has "
            f"{n[unlike[0]]:,}; parity compares translations of the same documents, with --max-bytes 0 and --lang-field"
        )
