# SPDX-License-Identifier: Apache-2.0
"""`measure`: bytes per token of tokenizers on counted words, by size, and how equally languages are treated."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow.compute as pc

from tokenmill.tokenizer.core import Tokenizer
from tokenmill.tokenizer.pre_tokenizers import is_byte_level
from tokenmill.tokenizer.vocabulary.words import Counts, Printed, Tally, cutter, portions


class Measures(Printed, tuple[dict[str, Any], ...]):
    """What tokenizers make of the same words, a row for each tokenizer and label; printed, it says so.

    A row has `name`, `ids`, `kind` and `label`, `bytes`, `tokens`, `unknown`, `bytes_per_token`, and `gain`, the share
    of tokens that it saves against the tokenizer before it. Rows of all words also have `gini`, by kind of label: 0 if
    a byte, or the same text, costs as many tokens with each label, near 1 if one pays for all.
    """

    def lines(self) -> Iterator[str]:
        """Yields the rows, for people."""
        for row in self:
            label = "" if row["kind"] == "all" else f" {row['kind']} {row['label']}"
            gain = "" if row["gain"] is None else f", saves {row['gain']:.2%} against the one before"
            unknown = f", {row['unknown']:,} unknown" if row["unknown"] else ""
            gini = "".join(f", Gini by {kind} {value:.4f}" for kind, value in row.get("gini", {}).items())
            yield (
                f"{row['name']} ({row['ids']:,} ids){label}: {row['tokens']:,} tokens, "
                f"{row['bytes_per_token']:.3f} bytes each{gain}{unknown}{gini}"
            )


def measure(tokenizers: Mapping[str, Tokenizer], word_counts: Counts, *, parallel: bool = False) -> Measures:
    """Returns what tokenizers make of counted words: of text that none was trained on, it shows what a size is worth.

    Args:
      tokenizers: by name, all with the same words; those of byte-level models may be cut once more.
      word_counts: columns `word` and `count`, and labels such as `lang`.
      parallel: whether the words of each label are those of the same text; then it is the text that is to cost alike.

    Raises:
      TypeError, ValueError: as `extend`.
    """
    tally = Tally()
    cut = {name: cutter(each, whole=not is_byte_level(each.pre_tokenizer)) for name, each in tokenizers.items()}
    for part in portions(word_counts):
        columns = {"bytes": pc.binary_length(part.words).to_numpy().astype(np.int64) * part.counts}
        for name in tokenizers:
            cuts = cut[name](part)
            columns |= {f"tokens {name}": cuts.lengths * part.counts, f"unknown {name}": cuts.unknown * part.counts}
        tally.add(part, columns)
    rows, before = list[dict[str, Any]](), dict[tuple[str, str], int]()
    for name, tokenizer in tokenizers.items():
        first = len(rows)
        for kind, sums in tally.rows().items():
            for each in sums:
                n_bytes, tokens, label = each["bytes"], each[f"tokens {name}"], each["name"]
                was = before.get((kind, label))
                before[kind, label] = tokens
                rows.append({
                    "name": name, "ids": tokenizer.n_ids, "kind": kind, "label": label, "bytes": n_bytes,
                    "tokens": tokens, "unknown": each[f"unknown {name}"], "bytes_per_token": n_bytes / max(1, tokens),
                    "gain": None if was is None else (was - tokens) / max(1, was),
                })  # fmt: skip
        costs: dict[str, list[float]] = {}
        for row in rows[first + 1 :]:
            costs.setdefault(row["kind"], []).append(row["tokens"] / (1 if parallel else row["bytes"]))
        rows[first]["gini"] = {kind: gini(each) for kind, each in costs.items()}
    return Measures(rows)


def gini(costs: list[float]) -> float:
    """Returns the Gini coefficient of positive numbers: half their mean absolute difference, divided by their mean."""
    ordered = np.sort(np.asarray(costs, np.float64))
    n = ordered.size
    return float(((2 * np.arange(1, n + 1) - n - 1) * ordered).sum() / (n * ordered.sum()))
