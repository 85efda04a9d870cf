# SPDX-License-Identifier: Apache-2.0
"""The sum so far of a row, as sentencepiece rounds it, added up no sooner than somebody asks.

Most parts come from the cache, where all that matters is that the sum is small enough. So it is kept as three numbers:
`total`, exact for the ids before `at`; `at`; and `bound`, so that the sum of all ids is never larger than `bound *
SUM_UNIT` in size. A cached part adds its cost to the bound. Only where the bound does not do, or a part must be
tokenized from the sum, are the scores of the ids since `at` added, one by one.

That is the same sum: it would begin again at zero only beyond `-REBASE_BELOW`, and bounds stay below.
"""

import numpy as np

from tokenizer.kernels.compiling import kernel_part
from tokenizer.kernels.unigram import REBASE_BELOW

SUM_UNIT = 4
MAX_BOUND = np.int64(-REBASE_BELOW) // SUM_UNIT - 1
"""No bound of a sum that has not been added up is larger."""


@kernel_part
def cost_of(difference):
    """Returns by how much the bound grows with ids that have changed a sum by `difference`.

    The same ids may change another sum by a little more or less, as each of them is rounded anew; two units are plenty
    for a thousand ids, each of which may round by 2^-8.
    """
    return np.int64(min(abs(difference), 1e9)) // SUM_UNIT + 2


@kernel_part
def exactly(total, o):
    """Returns the sum of all ids before `o`, known exactly."""
    return total, np.int64(o), np.int64(abs(total)) // SUM_UNIT + 1


@kernel_part
def catch_up(follow, sums, out, o, model):
    """Adds what has been put off, up to `o`."""
    total, at, _ = sums
    if at == o:
        return sums
    return exactly(follow(total, out, at, o, model), o)


@kernel_part
def follow_one(follow, sums, out, first, o, cost, model):
    """Returns the sums after one more character, `out[first:o]`, whose scores are no larger than `cost` says."""
    total, at, bound = sums
    if bound + cost <= MAX_BOUND:
        return total, at, bound + cost
    total = follow(total, out, at, first, model)
    return exactly(follow(total, out, first, o, model), o)
