# SPDX-License-Identifier: Apache-2.0
"""Memory that is used again: only once nothing refers to it, and no more of it than is allowed."""

import itertools
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest

from tokenmill.tokenizer import Tokenizer, recycled
from tokenmill.tokenizer.models import BPE


@pytest.fixture(autouse=True)
def nothing_kept() -> Iterator[None]:
    recycled._kept.clear()
    yield
    recycled._kept.clear()


def address(array: np.ndarray) -> int:
    return int(array.ctypes.data)


def test_arrays_that_are_alive_never_share_memory() -> None:
    rng = np.random.default_rng(0)
    alive: list[np.ndarray] = []
    for _ in range(300):
        if alive and rng.random() < 0.5:
            del alive[int(rng.integers(len(alive)))]
        alive.append(recycled.empty(int(rng.integers(1 << 17, 1 << 22)), np.uint64))
        spans = sorted((address(array), address(array) + array.nbytes) for array in alive)
        assert all(stop <= start for (_, stop), (start, _) in itertools.pairwise(spans))
        assert sum(kept.size for kept, _ in recycled._kept) <= recycled._MOST_KEPT_BYTES
        del alive[:-6]


def test_ids_stay_what_they_are_while_others_are_encoded() -> None:
    vocab = {chr(c): c - 97 for c in range(97, 123)}
    tok = Tokenizer(model=BPE(vocab, []))
    columns = [pa.array([letter * 400_000], pa.large_string()) for letter in "abc"]
    results = []
    for _ in range(3):
        results += [tok.encode_arrow(column) for column in columns]
        del results[:-4]  # some memory comes back, some does not
    for result, letter in zip(results, "cabc", strict=True):
        values = result.values.to_numpy()
        assert values.size == 400_000
        assert bool((values == vocab[letter]).all())
