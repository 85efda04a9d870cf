# SPDX-License-Identifier: Apache-2.0
"""What trainings say of themselves while they run: how many merges or rounds there are, and how many are done."""

import random
import threading
import time

from tests.word_counts import table
from tokenmill.tokenizer import BPETrainer, UnigramTrainer

WORDS = {"".join(random.Random(i).choices("abcdefgh", k=9)): 1 + i % 40 for i in range(30_000)}


class Told:
    """Writes down what a training tells, and looks at it from another thread as often as it can."""

    def __init__(self):
        self.calls = []
        self.seen = []
        self.is_over = threading.Event()
        self.thread = threading.Thread(target=self.look)

    def __call__(self, unit, n_planned, n_done):
        self.calls.append((unit, n_planned, n_done))

    def look(self):
        while not self.is_over.is_set():
            if self.calls:
                _, n_planned, n_done = self.calls[-1]
                self.seen.append((n_planned, n_done()))
            time.sleep(0.001)

    def train(self, trainer, size):
        self.thread.start()
        try:
            return trainer.train_sizes(table(WORDS.items()), [size], self)[size]
        finally:
            self.is_over.set()
            self.thread.join()


def test_fewer_merges_than_were_planned_are_told_as_they_are():
    told = Told()
    BPETrainer(vocab_size=50).train_sizes(table({"abc": 2}.items()), [50], told)
    ((_, n_planned, n_done),) = told.calls
    assert (n_planned, n_done()) == (3, 2)  # three characters, so three merges at most, of which two are possible


def test_rounds_are_told_before_each_and_at_the_end():
    told = Told()
    told.train(UnigramTrainer(), 300)
    assert {unit for unit, _, _ in told.calls} == {"rounds"}
    assert [n_done() for _, _, n_done in told.calls] == list(range(len(told.calls)))
    assert len(told.calls) > 5
    _, n_planned, n_done = told.calls[-1]
    assert n_done() == n_planned <= told.calls[0][1]
    assert len({n for _, n in told.seen}) > 2
