# SPDX-License-Identifier: Apache-2.0
"""What is said of waits for kernels: that they begin, and their true sum."""

import threading
import time

import pytest

from tokenmill.tokenizer.compiling import waiting as waiting_module
from tokenmill.tokenizer.compiling.waiting import Waiting


@pytest.fixture
def waiting(monkeypatch):
    """A process's waits, ten times as fast."""
    monkeypatch.setattr(waiting_module, "_LEAST", 0.1)
    return Waiting()


def test_a_wait_is_announced_once_counted_while_it_lasts_and_summed_up(waiting, capsys):
    for n in range(2):
        with waiting.wait("compiling ..."):
            time.sleep(0.2)
            assert waiting.is_on
            assert waiting.seconds >= 0.2 * (n + 1)
    assert not waiting.is_on
    assert 0.4 <= waiting.seconds < 2
    waiting.end()
    sum_of_both = f"tokenmill: waited {waiting.seconds:.1f} s for kernels, which are now kept\n"
    assert capsys.readouterr().err == f"tokenmill: compiling ...\n{sum_of_both}"


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
    assert 0.3 <= waiting.seconds <= time.monotonic() - started
    assert capsys.readouterr().err.count("compiling") == 1


def test_of_several_workers_one_says_that_another_process_compiles(waiting, capsys):
    waiting.speaks = False
    with waiting.wait():
        time.sleep(0.2)
    waiting.end()
    assert capsys.readouterr().err == ""
    waiting.speaks = True
    with waiting.wait():
        time.sleep(0.2)
    waiting.end()
    assert "waited 0." in capsys.readouterr().err
