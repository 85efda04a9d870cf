# SPDX-License-Identifier: Apache-2.0
"""The vocabularies of a comparison: how much of each a corpus uses, what no text reaches, what they have in common."""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from pipeline.comparing.loading import Candidate
from pipeline.comparing.sums import Ints, ratio
from pipeline.statistics import entries, vocabulary

MAX_LISTED = 50
"""Unreachable entries that are named."""


def describe(candidate: Candidate, counts: Ints) -> dict[str, Any]:
    """Returns what there is to say of a tokenizer's vocabulary, as plain JSON.

    Args:
      candidate: the tokenizer.
      counts: int64[n_ids], how often each id occurred.
    """
    tokenizer = candidate.tokenizer
    kinds = entries.classify(tokenizer, counts > 0)
    size, used = int(kinds.named.sum()), int(np.count_nonzero(counts))
    unreachable = np.flatnonzero(kinds.unreachable)
    return {
        "label": candidate.label,
        "digest": tokenizer.digest,
        "vocabulary": {
            "size": size,
            "used": used,
            "coverage": ratio(used, size),
            "under_trained": int(np.count_nonzero((counts > 0) & (counts < vocabulary.UNDER_TRAINED))),
            "pieces_of_characters": int(kinds.pieces.sum()),
            "unreachable": unreachable.size,
            "unreachable_tokens": [tokenizer.id_to_token(i) for i in unreachable[:MAX_LISTED].tolist()],
            "entropy_bits": vocabulary.entropy_bits(counts),
            "renyi_efficiency": vocabulary.renyi_efficiency(counts[kinds.named]),
            "zipf_slope": vocabulary.zipf_slope(counts),
        },
    }


def overlap(candidates: Sequence[Candidate]) -> list[dict[str, Any]]:
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
