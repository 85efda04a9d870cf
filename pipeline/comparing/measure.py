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
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tokenmill.pipeline.comparing.sums import ALL, N_BLOCKS, OTHER, SUMMED, Candidate, Ints, Sums
from tokenmill.pipeline.statistics.vocabulary import describe, gini, ratio, token_counts
from tokenmill.pipeline.statistics.words import Encoded
from tokenmill.tokenizer import Tokenizer
from tokenmill.tokenizer.languages import UNKNOWN

FORMAT_VERSION = 2
"""Version of the JSON of a comparison."""

TOP_WORDS = 100
"""How many of the words that gain and lose most are listed for each tokenizer."""

N_RESAMPLES = 1000
CONFIDENCE = 0.95
LEAST_BLOCKS = 10
"""A group with documents in fewer blocks has no intervals: they would be meaningless."""
_LIMITS = (50 * (1 - CONFIDENCE), 50 * (1 + CONFIDENCE))
_SEED = 1

Floats = npt.NDArray[np.float64]


def report(
    candidates: Sequence[Candidate],
    sums: Sums,
    encode: Callable[[Tokenizer, pa.Array], Encoded],
    *,
    has_documents: bool,
    parallel: str | None = None,
) -> dict[str, Any]:
    """Returns a comparison as plain JSON.

    Args:
      candidates: two or more; the others are compared with the first one.
      sums: of their tokenizers, in this order.
      encode: encodes the distinct words, each alone.
      has_documents: whether texts were read: the sums are by blocks of documents, so that there are intervals, and a
        word by itself is a text, too.
      parallel: a language, if every language has the same documents as it, translated; None if not.

    Raises:
      ValueError: if languages differ in their number of documents although `parallel`.
    """
    labels = [each.label for each in candidates]
    weights = _draw() if has_documents else None
    groups = {
        kind: sorted(
            (_row(name, blocks, labels, weights) for name, blocks in sums.groups(kind).items()),
            key=lambda row: (-row["bytes"], row["name"]),
        )
        for kind in sums.kinds
    }
    total = groups.pop(ALL)[0]
    made: dict[str, Any] = {
        "format_version": FORMAT_VERSION,
        "tokenizers": [_tokenizer(each, ids) for each, ids in zip(candidates, sums.ids, strict=True)],
        "overlap": _overlap(candidates),
        "on": {**{name: total[name] for name in SUMMED}, "parallel": parallel},
        ALL: total,
        **groups,
    }
    table = sums.words.table()
    words = table["word"].combine_chunks().dictionary_encode()
    encoded = [encode(each, words.dictionary) for each in sums.tokenizers]
    _add_words(made, labels, table, words, encoded, has_documents=has_documents)
    made["words"]["left_out"] = sums.words.n_left_out
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


def _add_words(
    made: dict[str, Any],
    labels: Sequence[str],
    table: pa.Table,
    words: pa.DictionaryArray,
    encoded: Sequence[Encoded],
    *,
    has_documents: bool,
) -> None:
    """Adds which words are kept whole, by language too, and which gain and lose most.

    An unknown token is no whole word, except to `strr_alone`, as in TokLens; a word that one of the tokenizers does not
    know does not gain by it.

    Args:
      made: the comparison.
      labels: of the tokenizers.
      table: `WORDS`.
      words: dictionary<int32, large_string>[n]: the word of each row of the table.
      encoded: for each tokenizer, how many tokens each distinct word has.
      has_documents: as for `report`.
    """
    numbers, counts = words.indices.to_numpy(), table["count"].to_numpy()
    # A word on which one of them fails counts for none.
    is_good = np.min(np.stack([each.in_text for each in encoded]), axis=0) >= 0
    is_known = is_good & (np.max(np.stack([each.n_unknown for each in encoded]), axis=0) == 0)
    kinds: list[tuple[Ints, list[dict[str, Any]]]] = [(np.zeros(len(numbers), np.int64), [made[ALL]])]
    if "language" in made:
        places = {row["name"]: i for i, row in enumerate(made["language"])}
        languages = table["language"].combine_chunks().dictionary_encode()
        of_language = [places.get(name, places.get(OTHER)) for name in languages.dictionary.to_pylist()]
        kinds.append((np.array(of_language, np.int64)[languages.indices.to_numpy()], made["language"]))
    weights = counts * is_good[numbers]
    for groups, rows in kinds:
        n_words = _add_up(groups, weights, len(rows))
        for label, each in zip(labels, encoded, strict=True):
            measures: dict[str, Any] = {"strr": each.is_whole[numbers]}
            if has_documents:
                alone = each.alone[numbers]
                measures |= {"strr_alone": alone == 1, "fertility_alone": alone}
            for name, values in measures.items():
                for row, n, total in zip(rows, _add_up(groups, weights * values, len(rows)), n_words, strict=True):
                    row["by"][label][name] = ratio(n, total)
    known_counts = np.array(_add_up(numbers, counts, len(words.dictionary)), np.int64) * is_known
    first = encoded[0].in_text
    made["words"] = {
        "distinct": len(words.dictionary),
        "changes": {
            label: changes(words.dictionary, known_counts, first, each.in_text, TOP_WORDS)
            for label, each in zip(labels[1:], encoded[1:], strict=True)
        },
    }


def changes(words: Sequence[Any], counts: Ints, before: Ints, after: Ints, top: int) -> dict[str, list[dict[str, Any]]]:
    """Returns the words of which a tokenizer makes fewer tokens than another, and those of which it makes more.

    Each list has the `top` words that make up most of it: `count` times the difference, ties in the order of `words`.
    """
    difference = (after - before) * counts

    def most(values: Ints) -> list[dict[str, Any]]:
        return [
            {
                "word": str(words[i]),
                "count": int(counts[i]),
                "tokens_before": int(before[i]),
                "tokens_after": int(after[i]),
                "tokens": int(difference[i]),
            }
            for i in np.argsort(-values, kind="stable")[:top].tolist()
            if values[i] > 0
        ]

    return {"gained": most(-difference), "lost": most(difference)}


def _add_up(groups: Ints, values: Ints, n: int) -> list[int]:
    """Returns the sums of values by group."""
    sums = np.zeros(n, np.int64)
    np.add.at(sums, groups, values)
    return sums.tolist()


def _row(name: str, blocks: Ints, labels: Sequence[str], weights: Floats | None) -> dict[str, Any]:
    """Returns the row of a group: its sums, and the measures of each tokenizer by its label.

    A measure is computed for all documents, and for each resample, whose spread is its interval; None if it has no
    limit, above or below, in one of them.
    """
    samples = blocks.sum(axis=0, keepdims=True).astype(np.float64)
    if weights is not None and np.count_nonzero(blocks[:, 0]) >= LEAST_BLOCKS:
        samples = np.vstack([samples, weights @ blocks])
    has_intervals = len(samples) > 1
    n_bytes, n_words = (samples[:, [SUMMED.index(each)]] for each in ("bytes", "words"))
    n_tokens, n_unknown = np.split(samples[:, len(SUMMED) :], 2, axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        both = {"bytes_per_token": n_bytes / n_tokens, "tokens_per_megabyte": 1e6 * n_tokens / n_bytes}
        differences = {f"{measure}_difference": values - values[:, :1] for measure, values in both.items()}
        others = {"fertility": n_tokens / n_words, "unknown": n_unknown / n_tokens}
    by: dict[str, dict[str, Any]] = {label: {"tokens": int(n)} for label, n in zip(labels, n_tokens[0], strict=True)}
    for measure, values in (both | others | differences).items():
        is_finite = np.isfinite(values)
        limits = np.percentile(np.where(is_finite, values, 0)[1:], _LIMITS, axis=0).T if has_intervals else ()
        for i, label in enumerate(labels):
            if measure in differences and not i:
                continue
            by[label][measure] = values[0, i].item() if is_finite[0, i] else None
            if has_intervals and measure not in others:
                by[label][f"{measure}_interval"] = limits[i].tolist() if is_finite[1:, i].all() else None
    return {"name": name, **dict(zip(SUMMED, samples[0].astype(np.int64).tolist(), strict=False)), "by": by}


def _draw() -> Floats:
    """Returns how often each resample of the bootstrap has each block, float64[N_RESAMPLES, N_BLOCKS].

    They are the same in every run, and for all groups and columns, so that differences are paired.
    """
    drawn = np.random.default_rng(_SEED).integers(0, N_BLOCKS, (N_RESAMPLES, N_BLOCKS))
    weights = np.zeros((N_RESAMPLES, N_BLOCKS))
    np.add.at(weights, (np.arange(N_RESAMPLES)[:, None], drawn), 1.0)
    return weights


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


def gains(report: Mapping[str, Any], candidates: Sequence[Candidate]) -> list[dict[str, Any]]:
    """Returns bytes per token at each size, and how many of them each doubling since the size before gained."""
    gained: list[dict[str, Any]] = []
    for before, each in zip([None, *candidates], candidates, strict=False):
        size, measured = each.tokenizer.n_ids, report[ALL]["by"][each.label]["bytes_per_token"]
        gain = None
        if before is not None and before.path == each.path and before.tokenizer.n_ids < size and measured:
            more = measured - report[ALL]["by"][before.label]["bytes_per_token"]
            gain = more / math.log2(size / before.tokenizer.n_ids)
        gained.append({"label": each.label, "size": size, "bytes_per_token": measured, "gain_per_doubling": gain})
    return gained
