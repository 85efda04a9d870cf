# SPDX-License-Identifier: Apache-2.0
"""Which source each sample of a mixture comes from, in plain Python with exact numbers."""

from collections.abc import Sequence
from fractions import Fraction


def choose(sizes: Sequence[Sequence[int]], goals: Sequence[Sequence[int]]) -> list[int]:
    """Returns the sources, until all have given what they should; see the kernel.

    Args:
      sizes: the tokens of the samples of each source, which are repeated.
      goals: the tokens that each source should give in each stage.
    """
    n_stages, sources = len(goals), range(len(sizes))
    asked = [[sum(stage[i] for stage in goals[:k]) for i in sources] for k in range(n_stages + 1)]
    bounds = [sum(row) for row in asked]
    given, at, chosen = [0 for _ in sources], [0 for _ in sources], []

    def deadline(i: int, end: int) -> Fraction | float:
        if end > asked[-1][i]:
            return float("inf")
        stage = next(k for k in range(n_stages) if asked[k + 1][i] >= end)
        if not goals[stage][i]:
            return Fraction(bounds[stage])
        return bounds[stage] + Fraction(end - asked[stage][i], goals[stage][i]) * sum(goals[stage])

    while any(given[i] < asked[-1][i] for i in sources):
        now = sum(given)
        stage = max(k for k in range(n_stages) if k == 0 or now >= bounds[k])
        passed = min(Fraction(1), Fraction(now - bounds[stage], sum(goals[stage])))
        due = []
        for i in sources:
            too_many = given[i] - (asked[stage][i] + passed * goals[stage][i])
            is_on_time = too_many < 0 or (too_many == 0 and goals[stage][i] > 0)
            if given[i] < asked[-1][i] and is_on_time:
                due.append((deadline(i, given[i] + sizes[i][at[i] % len(sizes[i])]), i))
        _, i = min(due)
        given[i] += sizes[i][at[i] % len(sizes[i])]
        at[i] += 1
        chosen.append(i)
    return chosen
