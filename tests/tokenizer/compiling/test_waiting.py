# SPDX-License-Identifier: Apache-2.0
"""What is said of waits for kernels: that they begin, how long they take so far, and their true sum."""

import threading
import time

import pytest

from tokenmill.tokenizer.compiling import waiting as waiting_module
from tokenmill.tokenizer.compiling.waiting import Waiting


def until_told(waiting):
    teller = waiting._teller
    if teller is not None:
        teller.join()


@pytest.fixture
def waiting(monkeypatch, capsys):
    """A process's waits, ten times as fast."""
    for name, seconds in (("_LEAST", 0.1), ("_EVERY", 0.3), ("_STEP", 0.01)):
        monkeypatch.setattr(waiting_module, name, seconds)
    until_told(waiting_module.waiting)  # of tests before this one
    capsys.readouterr()
    return Waiting()


def test_a_wait_is_announced_once_counted_while_it_lasts_and_summed_up(waiting, capsys):
    for _ in range(2):
        with waiting.wait("compiling ..."):
            time.sleep(0.4)
    until_told(waiting)
    first, *others, last = capsys.readouterr().err.splitlines()
    assert first == "tokenmill: compiling ..."
    assert others == [f"tokenmill: waiting for kernels, {n} s so far ..." for n in (0, 1)]
    assert last == f"tokenmill: waited {waiting.seconds:.1f} s for kernels, which are now kept"
    assert 0.8 <= waiting.seconds < 2


def test_waits_at_once_count_once(waiting, capsys):
    def wait():
        with waiting.wait("compiling ..."):
            time.sleep(0.3)

    started = time.monotonic()
    threads = [threading.Thread(target=wait) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took = time.monotonic() - started
    until_told(waiting)
    assert 0.3 <= waiting.seconds <= took
    assert capsys.readouterr().err.count("compiling") == 1


def test_of_several_workers_one_says_that_another_process_compiles(waiting, capsys):
    with waiting.wait():
        time.sleep(0.2)
    until_told(waiting)
    assert "waited 0." in capsys.readouterr().err
    waiting.speaks = False
    with waiting.wait():
        time.sleep(0.2)
    until_told(waiting)
    assert capsys.readouterr().err == ""


def test_where_a_display_shows_waits_only_the_beginning_and_the_sum_are_told(waiting, capsys):
    with waiting.displayed(), waiting.wait("compiling ..."):
        time.sleep(0.5)
    until_told(waiting)
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "tokenmill: compiling ...",
        f"tokenmill: waited {waiting.seconds:.1f} s for kernels, which are now kept",
    ]


def test_a_moment_is_not_worth_a_line_and_the_end_tells_the_rest(waiting, capsys):
    with waiting.wait():
        pass
    until_told(waiting)
    assert capsys.readouterr().err == ""
    with waiting.wait():
        time.sleep(0.2)
    waiting.end()
    assert capsys.readouterr().err == f"tokenmill: waited {waiting.seconds:.1f} s for kernels, which are now kept\n"


def test_many_short_waits_are_told_like_a_long_one(waiting, capsys):
    for _ in range(10):
        with waiting.wait("compiling ..."):
            time.sleep(0.05)
    assert "so far" in capsys.readouterr().err
