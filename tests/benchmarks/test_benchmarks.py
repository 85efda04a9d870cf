# SPDX-License-Identifier: Apache-2.0
"""The benchmarks' own arithmetic, and the gate that keeps a number off the page when ids differ."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks import (
    corpora,
    encode,
    peers,
    pipeline,
    scale,
    shuffle,
    superwords,
    timing,
    tokenizers,
    train,
)


def test_timing_is_median_and_spread() -> None:
    ours, theirs = timing.Timing((1.0, 2.0, 4.0)), timing.Timing((20.0, 10.0, 40.0))
    assert ours.median == 2.0
    assert ours.spread == 1.5
    assert ours.times_faster_than(theirs) == 10.0
    assert theirs.times_faster_than(ours) == 0.1


def test_functions_take_turns_and_single_calls_stay_single() -> None:
    calls: list[str] = []
    functions = {"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}
    samples = timing.interleave(functions, rounds=2, at_least_seconds=0.001, once={"b"})
    assert "".join(calls).replace("aa", "a").replace("aa", "a").count("b") == 2
    assert calls.count("a") > 2
    assert calls[0] == "a"
    assert calls[-1] == "b"
    assert all(len(timed.seconds) == 2 for timed in samples.values())


def test_memory_of_a_process_and_its_children_is_seen(tmp_path: Path) -> None:
    child = "x = bytearray(60_000_000); import time; time.sleep(0.5)"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}], check=True)"
    run = timing.run_process([sys.executable, "-c", parent], environment={}, log=tmp_path / "log")
    assert run.largest_process_bytes > 60_000_000
    assert run.all_processes_bytes > run.largest_process_bytes
    assert run.seconds > 0.5


def test_failed_process_is_shown(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"(?s)exit code 3:.*out of luck"):
        timing.run_process(
            [sys.executable, "-c", "print('out of luck'); raise SystemExit(3)"], environment={}, log=tmp_path / "log"
        )


def test_digest_of_a_corpus_sees_where_documents_end() -> None:
    assert corpora.Corpus("x", "", ("ab", "c")).digest != corpora.Corpus("x", "", ("a", "bc")).digest


def test_first_documents_reach_the_size_uncut() -> None:
    corpus = corpora.Corpus("x", "", ("é" * 4, "b" * 8, "c"))
    assert corpus.first(9).texts == ("éééé", "b" * 8)
    assert corpus.first(8).texts == ("éééé",)
    assert corpus.first(100) is corpus


def test_repeated_documents_get_ids_of_their_own(tmp_path: Path) -> None:
    corpus = corpora.Corpus("x", "", ("one", "two"))
    paths = corpora.write_jsonl([corpus], tmp_path, n_bytes=1000, n_files=2)
    rows = [json.loads(line) for path in paths for line in path.read_text(encoding="utf-8").splitlines()]
    assert len({row["id"] for row in rows}) == len(rows) > 20
    assert {row["text"] for row in rows} == {"one", "two"}
    sizes = [path.stat().st_size for path in paths]
    assert sum(sizes) >= 1000
    assert max(sizes) - min(sizes) < 100


def test_totals_do_not_depend_on_order_or_files_or_layout(tmp_path: Path) -> None:
    documents = [[1, 2, 3], [], [70000], [4]]

    def parquet(folder: Path, *files: list[list[int]]) -> pipeline.Totals:
        folder.mkdir()
        for i, rows in enumerate(files):
            pq.write_table(
                pa.table({"input_ids": pa.array(rows, pa.list_(pa.int32()))}), folder / f"tokens-{i}.parquet"
            )
        return pipeline.totals_of("tokenmill", folder)

    whole = parquet(tmp_path / "a", documents)
    assert (whole.documents, whole.tokens) == (3, 5)
    assert parquet(tmp_path / "b", documents[2:], documents[:2]) == whole
    assert parquet(tmp_path / "c", [[1, 2], [3], [70000], [4]]) != whole

    tokens = tmp_path / "d" / "tokens"
    tokens.mkdir(parents=True)
    np.array([1, 2, 3, 70000, 4], "<u4").tofile(tokens / "0.ds")
    np.array([3, 3, 4, 5], "<u8").tofile(tokens / "0.ds.index")
    assert pipeline.totals_of("datatrove", tmp_path / "d") == whole


def _peer(ids: list[list[int]], *, other_rules: bool = False, fails: bool = False) -> peers.Peer:
    calls: list[object] = []

    def encode(texts: Sequence[str]) -> list[list[int]]:
        calls.append(texts)
        if fails and len(calls) > 1:
            raise AssertionError("timed although the ids differ")
        return ids[: len(texts)]

    return peers.Peer(lambda: encode, list, other_rules)


def test_no_number_is_printed_where_ids_differ(tiny_vocab_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from tokenmill.tokenizer import Tokenizer

    tok = Tokenizer.from_file(str(tiny_vocab_file))
    texts = ("the mill grinds", "the mill")
    ids = tok.encode_arrow(pa.array(texts)).to_pylist()
    others = {
        "right": _peer(ids),
        "wrong": _peer([ids[0], [*ids[1], 0]], fails=True),
        "other rules": _peer([ids[0], [0]], other_rules=True),
        "all others": _peer([[0], [0]], other_rules=True, fails=True),
    }
    subject = tokenizers.Subject("tiny", tok, others)
    (measurement,) = encode.measure(subject, [corpora.Corpus("x", "made", texts)], rounds=1)
    assert measurement["wrong"] == ["wrong"]
    assert measurement["n_bytes"] == {"tokenmill": 23, "right": 23, "other rules": 15}
    assert measurement["warm"].keys() == measurement["cold"].keys() == {"tokenmill", "right", "other rules"}
    out = capsys.readouterr().out
    assert f"ids of wrong differ in 1 of 2 documents; not measured; document 1, token {len(ids[1])}: [] here" in out
    assert "ids of other rules differ in 1 of 2 documents; measured on the others" in out
    cells = [cell.strip() for cell in out.splitlines()[-1].split("|")[1:-1]]
    assert [cells[0], cells[3], cells[5]] == ["x", "ids differ", "ids differ"]
    assert all(" / " in cells[i] for i in (1, 2, 4))


def test_no_number_is_printed_where_vocabularies_differ(capsys: pytest.CaptureFixture[str]) -> None:
    calls: list[str] = []

    def learns(*tokens: str, name: str = "") -> train.Train:
        return lambda texts, vocab_size: (calls.append(name), list(tokens))[1]

    expected = learns(*map(str, range(200)))
    peers = {
        "sys": train.Peer(learns(*map(str, range(200)), name="equal"), expected),
        "json": train.Peer(learns("1", "0", *map(str, range(2, 200)), name="another order"), expected),
        "no_such_module": train.Peer(learns(name="absent"), expected),
    }
    corpus = corpora.Corpus("x", "made", ("text",))
    measurement, row = train.measure("x", train.Subject(expected, peers, train.same), corpus, 4, rounds=1)
    assert measurement["equal"] == {"sys": True, "json": False}
    assert measurement["seconds"].keys() == {"tokenmill", "sys"}
    assert row[4:6] == ["differs", "not installed"]
    assert (calls.count("another order"), calls.count("absent")) == (1, 0)
    assert calls.count("equal") > 1
    assert "the vocabulary of json differs: 200 tokens here, 200 there" in capsys.readouterr().err
    measurement, _ = train.measure("x", train.Subject(expected, peers, train.mostly_shared), corpus, 4, rounds=1)
    assert measurement["equal"] == {"sys": True, "json": True}
    assert not train.mostly_shared(["a", "b"], ["a", "c"], ())[0]


def test_a_plan_of_files_that_do_not_exist_is_closed(capfd: pytest.CaptureFixture[str]) -> None:
    assert scale.main(["--files", "300", "--vocabulary", "100"]) == 0
    told = capfd.readouterr().out
    assert "300 files" in told
    assert "manifest.json" in told
    assert "verify: ledger and lists" in told


def test_the_steps_of_a_shuffle_are_measured(tmp_path: Path) -> None:
    assert all(seconds > 0 for seconds in shuffle.measure(str(tmp_path), 1 << 16, 3))


def test_the_second_stage_of_superbpe_is_measured_on_counts_that_are_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["--gb", "0.002", "--vocab-size", "8000", "--add", "300", "--folder", str(tmp_path)]
    assert superwords.main(asked) == 0
    assert capsys.readouterr().out.rstrip().endswith("yes |")
    assert not list(tmp_path.iterdir())
