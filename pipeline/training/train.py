# SPDX-License-Identifier: Apache-2.0
"""Vocabularies from a counts artifact, one for each requested size and source, each with a training record. No Beam."""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa

from tokenmill.pipeline.config.tokenizer import TokenizerConfig, TrainConfig
from tokenmill.pipeline.counting.counts import CountsArtifact, Group, words_digest
from tokenmill.pipeline.counting.words import describe_words, differences
from tokenmill.pipeline.training.tokenizers import counting_tokenizer, shape_rows, train_tokenizer
from tokenmill.tokenizer import Tokenizer

if TYPE_CHECKING:
    from tokenmill.tokenizer.trainers import Tell

FORMAT_VERSION = 1
"""Version of training.json."""

_KEPT = "._-"
_TOO_FEW = re.compile(r"vocab_size=\d+ is too high, these words give (\d+) pieces")
"""What the trainer of Unigram says, which has no config."""


@dataclass(frozen=True)
class Vocabulary:
    """A tokenizer that was trained, and how."""

    folder: str
    """Its folder below `vocab/`; empty if there is only one vocabulary."""
    tokenizer_json: str
    record: dict[str, Any]
    """The contents of training.json."""

    def to_json(self) -> str:
        """Returns this as JSON."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Returns the value that `to_json` turned into `text`."""
        return cls(**json.loads(text))


def check_counts(artifact: CountsArtifact, config: TokenizerConfig, by: str | None = None) -> None:
    """Checks that an artifact can be trained on as a config says.

    Raises:
      ValueError: if its words are not those of the config's normalizer and pre-tokenizer, it lacks the labels
        `by`, or its files are not as recorded.
    """
    assert config.train is not None
    asked = describe_words(counting_tokenizer(config).to_str())
    if words_digest(asked) != words_digest(artifact.words):
        raise ValueError(
            f"tokenizer.train.counts: {artifact.output!r} holds counts of other words "
            f"({differences(artifact.words, asked)}); "
            "set tokenizer.train.normalizer and pre_tokenizer, lowercase and strip_accents as they were, or count again"
        )
    if by is not None and by not in artifact.labels:
        raise ValueError(f"output.parts.by: {artifact.output!r} holds no counts by {by}; count with counts.by: [{by}]")
    artifact.check_files()


def train_vocabularies(
    artifact: CountsArtifact,
    config: TokenizerConfig,
    span_tokens: Sequence[str] = (),
    tell: "Tell | None" = None,
    by: str | None = None,
    labels: Sequence[str] = (),
) -> Iterator[Vocabulary]:
    """Yields every vocabulary that `config.train` asks for: by label, then by size, in the order of the config.

    Deterministic: a function of the counts and the config. Memory: the distinct words that one of them is trained on.

    Args:
      artifact: the counts.
      config: the section.
      span_tokens: special tokens besides those of the config.
      tell: as trainers take it.
      by: `source` or `lang`: one for each of these labels; None: one for all.
      labels: what must have a vocabulary; what the counts have is trained in any case.

    Raises:
      ValueError: if the artifact does not fit the config, or training fails.
    """
    train = config.train
    assert train is not None
    check_counts(artifact, config, by)
    grouped = _grouped(artifact, by)
    if missing := sorted({*labels} - {label for label, _ in grouped if label is not None}):
        raise ValueError(
            f"there is no text for {', '.join(missing)} to train on: counts.languages must name languages that the "
            "input has, and leave some for default"
        )
    for label, groups in grouped:
        counts = artifact.load(groups)
        try:
            trained = train_tokenizer(counts, config, span_tokens, tell)
        except ValueError as error:
            said = str(error)
            if too_few := _TOO_FEW.search(said):
                said = (
                    f"tokenizer.train.vocab_size: {max(train.sizes)}: is too high, as the words give {too_few[1]} "
                    "pieces, special ones included; lower it, or allow a smaller vocabulary by "
                    "tokenizer.train.hard_vocab_limit: false; then start with --overwrite, as --resume takes no other "
                    "config"
                )
            raise ValueError(f"{label}: {said}" if label is not None else said) from error
        for size in train.sizes:
            parts = [_folder(label)] if label is not None else []
            parts += [str(size)] if isinstance(train.vocab_size, list) else []
            tokenizer = shape_rows(trained[size], config)
            record = _record(artifact, train, label, size, counts, tokenizer)
            yield Vocabulary("/".join(parts), tokenizer.to_str(), record)


def _grouped(artifact: CountsArtifact, by: str | None) -> list[tuple[str | None, list[Group] | None]]:
    if by is None:
        return [(None, None)]
    place = artifact.labels.index(by)
    labels = sorted({group[place] for group in artifact.groups})
    return [(label, [group for group in artifact.groups if group[place] == label]) for label in labels]


def _folder(label: str) -> str:
    """Returns a label as the name of a folder; characters other than letters, digits and `._-` become %XX of UTF-8."""
    name = "".join(
        c if c.isascii() and (c.isalnum() or c in _KEPT) else "".join(f"%{b:02X}" for b in c.encode()) for c in label
    )
    return f"%2E{name[1:]}" if name.startswith(".") else name


def _record(
    artifact: CountsArtifact, train: TrainConfig, label: str | None, size: int, counts: pa.Table, tokenizer: Tokenizer
) -> dict[str, Any]:
    """Returns the contents of training.json: what was trained on, how, and the result; no times and no paths."""
    merges = getattr(tokenizer.model, "merges", None)
    return {
        "format_version": FORMAT_VERSION,
        "counts_digest": artifact.digest,
        "words": dict(artifact.words),
        "label": label,
        "pruned": dict(artifact.report["pruned"]),
        "n_words": int(counts["count"].to_numpy().sum()),
        "n_distinct_words": counts.num_rows,
        "model": train.model,
        "options": train.trainer_options,
        "asked_vocab_size": size,
        "vocab_size": tokenizer.n_ids,
        "n_merges": len(merges) if merges is not None else None,
        "coverage": _coverage(counts),
        "tokenizer_digest": tokenizer.digest,
    }


def _coverage(counts: pa.Table) -> list[dict[str, Any]]:
    """Returns the share of all occurrences that the k most frequent words have, for k = 1, 2, 4, ... up to all."""
    ordered = -np.sort(-counts["count"].to_numpy())
    sums = np.cumsum(ordered)
    n = ordered.size
    tops = sorted({*(1 << i for i in range(n.bit_length())), n} - {0})
    return [{"top_words": k, "share": round(int(sums[k - 1]) / int(sums[-1]), 6)} for k in tops if k <= n]
