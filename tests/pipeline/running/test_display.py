# SPDX-License-Identifier: Apache-2.0
"""What a person sees of a running job: rates, lines, bars."""

import io
import itertools
import threading
import time

import pytest

from tokenmill.pipeline.running import display
from tokenmill.pipeline.running.display import (
    Rates,
    describe,
    describe_end,
    show,
)
from tokenmill.pipeline.running.progress import Amount, Progress, Snapshot, Stage
from tokenmill.tokenizer.compiling.waiting import waiting

COUNT = Stage("counting", "_counts", {"a": 100, "b": 300})
TOKENIZE = Stage("tokenizing", "_ledger", {"a": 100, "b": 300})


def test_rates_are_those_of_the_last_seconds():
    rates = Rates()
    assert rates.seconds_left() is None
    for second in range(100):
        speed = 10 if second < 50 else 30
        done = 10 * min(second, 50) + max(0, second - 50) * speed
        rates.add(second, Snapshot("s", done, 5000, 2 * done, 3 * done, 0))
    assert rates.per_second("n_done") == pytest.approx(30)
    assert rates.per_second("n_tokens") == pytest.approx(90)
    assert rates.seconds_left() == pytest.approx((5000 - 500 - 49 * 30) / 30)
    rates.add(100, Snapshot("t", 0, 10, 0, 0, 0))
    assert not rates.are_known


def test_lines_read_well():
    rates = Rates()
    rates.add(0, Snapshot("tokenizing", 0, 200_000_000))
    now = Snapshot("tokenizing", 50_000_000, 200_000_000, 50_000_000, 12_345_678, 3)
    assert describe(now, rates) == "tokenizing 25% of 200.0 MB, 3 rejected"
    rates.add(2, now)
    assert describe(now, rates) == "tokenizing 25% of 200.0 MB, 25.0 MB/s, 6.2M tokens/s, 3 rejected, 0:06 left"
    assert describe_end(now, 4) == "tokenizing took 4.0 s, 25% of 200.0 MB, 12.5 MB/s, 3.1M tokens/s, 3 rejected"
    assert describe_end(now, 0) == "tokenizing took 0.0 s, 25% of 200.0 MB, 3 rejected"
    assert describe(Snapshot("training"), rates) == "training ..."
    assert describe(Snapshot("training"), rates, 75) == "training, 1:15 so far"
    assert describe_end(Snapshot("training"), 75) == "training took 1:15"
    merging = Snapshot("training", 1234, 8000, unit="merges")
    assert describe(merging, rates, 75) == "training, 1,234 of 8,000 merges, 1:15 so far"
    assert describe_end(merging, 75) == "training took 1:15, 1,234 of 8,000 merges"
    with waiting.wait():
        assert describe(merging, rates, 75) == "training, 1,234 of 8,000 merges, waiting for kernels, 1:15 so far"
        assert describe(now, Rates()) == "tokenizing 25% of 200.0 MB, 3 rejected, waiting for kernels"


class Terminal(io.StringIO):
    def isatty(self):
        return True


def run_a_job(stream, monkeypatch, line_seconds=0.0):
    monkeypatch.setattr(display, "_BAR_SECONDS", 0.01)
    watched = Progress([COUNT, TOKENIZE])
    with show(watched, stream, line_seconds=line_seconds):
        time.sleep(0.05)
        watched.advance("counting", "a", Amount(100))
        time.sleep(0.05)
        watched.finish("counting", "a")
        watched.finish("counting", "b")
        watched.enter("training")
        time.sleep(0.05)
        watched.advance("tokenizing", "b", Amount(300, n_rejected=1, n_tokens=9))
        watched.finish("tokenizing", "b")
    return stream.getvalue()


def test_plain_lines_where_there_is_no_terminal(monkeypatch):
    lines = run_a_job(io.StringIO(), monkeypatch, line_seconds=60).splitlines()
    assert [line.split(",")[0].rsplit(" ", 2)[0] if "took" in line else line for line in lines] == [
        "tokenmill: counting 0% of 400 B",
        "tokenmill: counting took",
        "tokenmill: training ...",
        "tokenmill: training took",
        "tokenmill: tokenizing took",
    ]
    assert "100% of 400 B" in lines[1]
    assert "75% of 400 B" in lines[-1]
    assert lines[-1].endswith("1 rejected")
    assert not any("\x1b" in line for line in lines)


class Notebook(io.StringIO):
    """As the streams of a notebook's kernel."""


Notebook.__module__ = "ipykernel.iostream"


def test_one_line_that_changes_in_a_notebook(monkeypatch, capsys):
    assert run_a_job(Notebook(), monkeypatch, line_seconds=0) == ""  # on stderr, every line would be red
    shown, told = capsys.readouterr()
    assert told == ""
    first, *lines = shown.removesuffix("\n").split("\r")
    assert (first, len(lines) >= 5, "\n" in "".join(lines)) == ("", True, False)
    assert lines[-1].rstrip().endswith("1 rejected")
    assert all(len(line) >= len(before.rstrip()) for before, line in itertools.pairwise(lines))  # nothing of it is left


def test_a_bar_on_a_terminal(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    text = run_a_job(Terminal(), monkeypatch)
    for expected in ("counting", "training", "tokenizing", "100%", "1 rejected", "\x1b["):
        assert expected in text
    assert "tokenmill:" not in text


def test_showing_ends_when_the_job_fails(monkeypatch):
    monkeypatch.setattr(display, "_BAR_SECONDS", 0.01)
    stream = io.StringIO()
    with pytest.raises(ValueError, match="broke"), show(Progress([COUNT]), stream):
        raise ValueError("broke")
    assert display._THREAD_NAME not in [thread.name for thread in threading.enumerate()]
    assert "counting took" in stream.getvalue()
