# SPDX-License-Identifier: Apache-2.0
"""Which ids a vocabulary may have."""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

MAX_ID = (1 << 24) - 1
"""Ids beyond this are refused: tables are as long as the largest id, and no file shall decide how long that is."""


def check_ids(vocab: Mapping[str, int]) -> npt.NDArray[np.int64]:
    """Returns the ids of a vocabulary, in its order.

    Raises:
      ValueError: if one is no integer in 0..2^24-1, or belongs to two tokens.
    """
    try:
        ids = np.array(list(vocab.values()) or np.zeros(0, np.int64))
    except OverflowError:  # beyond 64 bits
        ids = np.array(["?"])
    if ids.dtype != np.int64 or ids.min(initial=0) < 0 or ids.max(initial=0) > MAX_ID:
        for token, token_id in vocab.items():
            if not isinstance(token_id, int) or not 0 <= token_id <= MAX_ID:
                raise ValueError(f"id of token {token!r} must be in 0..{MAX_ID}, got {token_id!r}")
        ids = np.fromiter(vocab.values(), np.int64, len(vocab))
    if int(np.bincount(ids).max(initial=0)) > 1:
        owners: dict[int, str] = {}
        for token, token_id in vocab.items():
            if owners.setdefault(token_id, token) != token:
                raise ValueError(f"id {token_id} belongs to two tokens, {owners[token_id]!r} and {token!r}")
    return ids
