# SPDX-License-Identifier: Apache-2.0
"""Simulates how long workers wait for the last splits of a crawl, by the order in which splits are taken.

Sizes are log-normal with a heavy tail, and a quarter of the files are gzip, as in `bench scale`; the splits and their
order are those of a job. A worker takes the next split when it has finished one, or gets its share in advance, every
n-th split, as from runners that do not rebalance. What a compressed file expands to differs from file to file; a file
takes some time to open, too. With `--preempted-minutes` workers are taken away at random, and come back a minute later;
the split that one had is lost, and the next free worker begins it again.
"""

import argparse
import collections
import heapq
import math
import random
import sys
from collections.abc import Sequence

import numpy as np

from benchmarks import report
from benchmarks.scale import PATTERNS, list_crawl
from tokenmill.pipeline.config.input import InputConfig
from tokenmill.pipeline.input.splitting import plan_splits
from tokenmill.pipeline.splits import Piece, Split

BYTES_PER_SECOND = 100e6
OPEN_SECONDS = 0.06
AWAY_SECONDS = 60.0
WORKERS = (4, 16, 64, 256, 1024, 4096)


def main(arguments: list[str]) -> int:
    """Simulates; returns the exit code."""
    parser = argparse.ArgumentParser(prog="./run.sh bench stragglers", description=__doc__, allow_abbrev=False)
    parser.add_argument("--files", type=int, default=300_000, help="files of the crawl (default 300,000)")
    parser.add_argument("--split-mb", type=int, default=64, help="input.split_bytes in MiB (default 64)")
    parser.add_argument(
        "--preempted-minutes",
        type=float,
        default=math.inf,
        help="how long a worker lives on average (default: until all is done)",
    )
    options = parser.parse_args(arguments)
    lifetime = 60 * options.preempted_minutes
    print(report.describe(report.machine() | report.versions("tokenmill")))
    list_crawl(options.files)
    splits = plan_splits(InputConfig(paths=PATTERNS, split_bytes=options.split_mb << 20), "")
    seconds = {split.index: _seconds(split) for split in splits}
    n_bytes, total, longest = sum(split.n_bytes for split in splits), sum(seconds.values()), max(seconds.values())
    print(f"{options.files:,} files, {n_bytes / 1e12:.2f} TB, {len(splits):,} splits, the longest {longest:.0f} s\n")
    orders = {
        "as listed": splits,
        "most bytes first": sorted(splits, key=lambda split: (-split.n_bytes, split.index)),
        "most work first": [*map(Split.from_json, splits.lines_by_work())],
    }
    print(
        "seconds until all is done, of these for the last 5 % of the work, and until all is done if shares are fixed\n"
    )
    print(f"{'workers':>8}{'at best':>10}" + "".join(f"{name:>28}" for name in orders))
    for n_workers in WORKERS:
        line = f"{n_workers:8,}{max(total / n_workers, longest):10.0f}"
        for order in orders.values():
            lengths = [seconds[split.index] for split in order]
            makespan, last = simulate(lengths, n_workers, lifetime)
            fixed = max(sum(lengths[i::n_workers]) for i in range(n_workers))
            line += f"{makespan:12.0f}{last:8.0f}{fixed:8.0f}"
        print(line, flush=True)
    return 0


def _seconds(split: Split) -> float:
    return sum(OPEN_SECONDS + piece.n_planned * _ratio(piece) / BYTES_PER_SECOND for piece in split.pieces)


def _ratio(piece: Piece) -> float:
    """Returns how many bytes of text each byte of a file is, log-normal around 4 for compressed ones."""
    return 1.0 if piece.compression == "none" else random.Random(piece.file).lognormvariate(1.386, 0.3)


def simulate(seconds: Sequence[float], n_workers: int, lifetime: float = math.inf) -> tuple[float, float]:
    """Returns how long all takes, and how long the last 5 % of the work of it, in seconds.

    Args:
      seconds: of each piece of work, in the order in which they are taken.
      n_workers: how many take them.
      lifetime: after how long a worker is taken away, on average.
    """
    rng = random.Random(0)
    waiting, idle, now = collections.deque(range(len(seconds))), n_workers, 0.0
    starts, lengths = np.empty(len(seconds)), np.array(seconds)
    events: list[tuple[float, int, bool]] = []  # when which piece is done, or lost; -1: a worker comes back
    while waiting or events:
        while waiting and idle:
            piece = waiting.popleft()
            idle -= 1
            starts[piece] = now
            lives = rng.expovariate(1 / lifetime) if math.isfinite(lifetime) else math.inf
            heapq.heappush(events, (now + min(lives, seconds[piece]), piece, lives < seconds[piece]))
        now, piece, is_lost = heapq.heappop(events)
        if is_lost:
            waiting.appendleft(piece)
            heapq.heappush(events, (now + AWAY_SECONDS, -1, False))
        else:
            idle += 1
    low, makespan = 0.0, float((starts + lengths).max())
    high = makespan
    for _ in range(40):
        middle = (low + high) / 2
        done = np.clip(middle - starts, 0, lengths).sum()
        low, high = (middle, high) if done < 0.95 * lengths.sum() else (low, middle)
    return makespan, makespan - high


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
