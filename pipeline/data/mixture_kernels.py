# SPDX-License-Identifier: Apache-2.0
"""The kernel that chooses the source of each sample of a mixture; compiled when a mixture is written, not to read it.

Its reference implementation is `tests.reference.mixture.choose`; `tests/pipeline/data/test_mixture.py` compares them,
and checks what is promised against any sizes and shares.
"""

from typing import Any

import numpy as np

from tokenmill.tokenizer.compiling.kernel import kernel


@kernel
def choose(sizes: Any, n_sizes: Any, at: Any, given: Any, ending: Any, asked: Any, bounds: Any, out: Any) -> int:
    """Chooses sources until all have given what is asked, `out` is full, or one of them is read to its end.

    A source is due if it has given no more than it should have by now. Of those that are, the one comes first whose
    next sample should be complete first. So at any time a source has given at most one of its samples too many, and it
    lacks at most one sample, the longest of all: packets are scheduled so in fair queueing (WF2Q, Bennett and Zhang
    1996), where the shares are rates of a line. The largest deficit first, without that rule, holds the first bound
    only.

    Args:
      sizes: int64[n_sources, n], the tokens of the next samples of each source.
      n_sizes: int64[n_sources], how many these are.
      at: int64[n_sources], which of them comes next; changed.
      given: int64[n_sources], the tokens of all samples so far; changed.
      ending: int64[n_sources], 0 at first: the stage in which each one's next sample should be complete; changed.
      asked: int64[n_stages + 1, n_sources], what each should have given at the beginning of each stage and at the end.
      bounds: int64[n_stages + 1], the sums of these.
      out: uint8[n], filled with the sources.

    Returns:
      How many were chosen.
    """
    n_stages, n_sources = asked.shape[0] - 1, asked.shape[1]
    now = 0
    for i in range(n_sources):
        now += given[i]
    stage = 0
    for n in range(out.size):
        while stage < n_stages - 1 and now >= bounds[stage + 1]:
            stage += 1
        passed = min(1.0, (now - bounds[stage]) / (bounds[stage + 1] - bounds[stage]))
        chosen, is_due, best = -1, False, 0.0
        for i in range(n_sources):
            if given[i] >= asked[n_stages, i]:
                continue
            if at[i] == n_sizes[i]:
                return n
            rate = asked[stage + 1, i] - asked[stage, i]
            too_many = given[i] - (asked[stage, i] + passed * rate)
            if too_many > 0 or (too_many == 0 and rate == 0):
                # Rounded numbers may say that of all.
                if not is_due and (chosen < 0 or too_many < best):
                    chosen, best = i, too_many
                continue
            end = given[i] + sizes[i, at[i]]
            while ending[i] < n_stages - 1 and asked[ending[i] + 1, i] < end:
                ending[i] += 1
            first, last = asked[ending[i], i], asked[ending[i] + 1, i]
            begin, width = bounds[ending[i]], bounds[ending[i] + 1] - bounds[ending[i]]
            deadline = float(begin)
            if end > last:
                deadline = np.inf
            elif last > first:
                deadline += (end - first) / (last - first) * width
            if not is_due or deadline < best:
                chosen, is_due, best = i, True, deadline
        if chosen < 0:
            return n
        given[chosen] += sizes[chosen, at[chosen]]
        now += sizes[chosen, at[chosen]]
        at[chosen] += 1
        out[n] = chosen
    return int(out.size)
