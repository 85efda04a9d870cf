# SPDX-License-Identifier: Apache-2.0
"""Checks the ids of a vocabulary."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from tokenmill.tokenizer.models.vocabulary import Vocabulary

MAX_ID = (1 << 24) - 1
"""The largest id: tables are as long as it, and a file should not be able to make them arbitrarily long."""


def check_ids(vocab: Mapping[str, int]) -> npt.NDArray[np.int64]:
    """Returns the ids of a vocabulary, in its order.

    Raises:
      ValueError: if an id is no integer in 0..2^24-1, or belongs to two tokens.
    """
    if isinstance(vocab, Vocabulary):
        return check_all_ids(vocab.ids, vocab.tokens)
    return check_all_ids(list(vocab.values()), vocab)


def check_all_ids(token_ids: Sequence[int] | npt.NDArray[np.integer], tokens: Iterable[str]) -> npt.NDArray[np.int64]:
    """Does `check_ids` for a sequence of ids; `tokens`, in the same order, are for messages."""
    try:
        ids = np.array(token_ids if len(token_ids) else np.zeros(0, np.int64))
    except OverflowError:  # beyond 64 bits
        ids = np.array(["?"])
    if ids.dtype.kind != "i" or ids.min(initial=0) < 0 or ids.max(initial=0) > MAX_ID:
        given = token_ids.tolist() if isinstance(token_ids, np.ndarray) else token_ids
        for token, token_id in zip(tokens, given, strict=True):
            if not isinstance(token_id, int) or not 0 <= token_id <= MAX_ID:
                raise ValueError(f"id of token {token!r} must be in 0..{MAX_ID}, got {token_id!r}")
    ids = ids.astype(np.int64)
    if int(np.bincount(ids).max(initial=0)) > 1:
        owners: dict[int, str] = {}
        for token, token_id in zip(tokens, ids.tolist(), strict=True):
            if owners.setdefault(token_id, token) != token:
                raise ValueError(f"id {token_id} belongs to two tokens, {owners[token_id]!r} and {token!r}")
    return ids
