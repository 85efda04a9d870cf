# SPDX-License-Identifier: Apache-2.0
"""Fill in the middle: what is put where is undone, never across documents, the same whatever the splits."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.chats import make_tokenizer
from tokenmill import JobError, run, verify
from tokenmill.pipeline.config.file import load_config
from tokenmill.pipeline.config.sections import ConfigError
from tokenmill.pipeline.tokenizing.fim import cut
from tokenmill.tokenizer import Tokenizer, unchecked_text_rows

NAMES = ["<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"]
TEXTS = ["", "x", "def f(x):\n    return x\n", "é世界🙂 = 1\n", "a b " * 40] * 40


def tokenizer_of(folder: Path) -> Tokenizer:
    tokenizer = make_tokenizer()
    tokenizer.add_special_tokens(NAMES)
    tokenizer.save(folder / "tokenizer.json")
    return tokenizer


def config_of(folder: Path, name: str, **fim: Any) -> dict[str, Any]:
    (folder / "code.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
    return {
        "input": {"paths": [str(folder / "code.jsonl")]},
        "tokenizer": {"file": str(folder / "tokenizer.json")},
        "output": {"path": str(folder / name), "report": False, "fim": fim},
    }


def rows_of(folder: Path, name: str) -> list[list[int]]:
    found = []
    for path in sorted((folder / name).glob("tokens-*.parquet")):
        found += pq.read_table(path).column("input_ids").to_pylist()
    return found


def undone(row: list[int], tokenizer: Tokenizer) -> tuple[str, str, list[str]]:
    """Returns the mode of a row, the text before anything was moved, and prefix, middle and suffix."""
    pre, suf, mid = (tokenizer.token_to_id(name) for name in NAMES)

    def text(ids: list[int]) -> str:
        return tokenizer.decode(ids, skip_special_tokens=False)

    if pre not in row:
        return "plain", text(row), []
    assert row[0] == pre
    assert row.count(pre) == row.count(suf) == row.count(mid) == 1
    prefix, suffix = row[1 : row.index(suf)], row[row.index(suf) + 1 : row.index(mid)]
    rest = row[row.index(mid) + 1 :]
    if row[1] == suf and not prefix and suffix and text(rest) + text(suffix) in TEXTS:
        return "spm", text(rest) + text(suffix), ["", text(rest), text(suffix)]
    mode = "psm" if prefix or suffix else "either"
    return mode, text(prefix) + text(rest) + text(suffix), [text(prefix), text(rest), text(suffix)]


@pytest.mark.parametrize("mode", ["psm", "spm", "both"])
@pytest.mark.parametrize("rate", [0.5, 1.0])
def test_every_document_can_be_put_back(tmp_path: Path, mode: str, rate: float) -> None:
    tokenizer = tokenizer_of(tmp_path)
    run(config_of(tmp_path, "out", mode=mode, rate=rate))
    found = [undone(row, tokenizer) for row in rows_of(tmp_path, "out")]
    assert [text for _, text, _ in found] == TEXTS
    modes = [each for each, text, _ in found if len(text) > 100]  # long enough to tell
    assert {*modes} - {"plain", "either"} == ({"psm", "spm"} if mode == "both" else {mode})
    share = 1 - sum(each == "plain" for each, _, _ in found) / len(found)
    assert share == 1 if rate == 1 else 0.35 < share < 0.65
    assert verify(str(tmp_path / "out"), deep=True).problems == []


@pytest.mark.parametrize("level", ["character", "token"])
@pytest.mark.parametrize(
    ("tokenizer", "output"),
    [
        ({"truncation": {"max_length": 12, "warn_above": 1.0}}, {}),
        ({"truncation": {"max_length": 12, "side": "left", "warn_above": 1.0}}, {"append": "</s>"}),
        ({"truncation": {"max_length": 12, "overflow": "rows"}}, {"append": "</s>"}),
        ({}, {"packing": {"length": 12, "strategy": "best_fit", "separator": "</s>"}}),
    ],
)
def test_a_document_that_would_be_cut_stays_as_it_is(tmp_path: Path, level: str, tokenizer: Any, output: Any) -> None:
    made = config_of(tmp_path, "out", rate=1.0, level=level)
    pre, suf, mid = (tokenizer_of(tmp_path).token_to_id(name) for name in NAMES)
    end = tokenizer_of(tmp_path).token_to_id("</s>")
    made["tokenizer"] |= tokenizer
    made["output"] |= output
    run(made)
    assert verify(str(tmp_path / "out"), deep=True).problems == []
    rows = rows_of(tmp_path, "out")
    n_whole = n_long = 0
    for row in rows:
        assert len(row) <= 12
        assert row.count(pre) == row.count(suf) == row.count(mid)
        if pre in row and "packing" not in output:
            assert row[0] == pre
            assert "append" not in output or row[-1] == end
        n_whole += row.count(pre)
        n_long += len(row) == 12 and pre not in row
    assert n_whole >= len(TEXTS) * 2 // 5 > 0
    assert n_long > 0


@given(st.lists(st.text(max_size=9), min_size=1, max_size=5), st.integers(0, 1 << 63))
def test_cuts_are_between_characters(texts: list[str], key: int) -> None:
    texts = [text.encode("utf-8", "ignore").decode() for text in texts]
    rows = unchecked_text_rows(pa.array(texts))
    keys = np.arange(len(texts), dtype=np.uint64) + np.uint64(key)
    for text, (start, stop) in zip(texts, cut(rows.values, rows.offsets, keys).tolist(), strict=True):
        assert 0 <= start <= stop <= len(text.encode())
        for place in (start, stop):
            text.encode()[:place].decode()


def test_a_tokenizer_without_the_tokens_is_refused_before_work_begins(tmp_path: Path) -> None:
    make_tokenizer().save(tmp_path / "tokenizer.json")
    with pytest.raises((JobError, ConfigError, ValueError), match=r"output\.fim\.prefix: the tokenizer has none of"):
        run(config_of(tmp_path, "out"))
    with pytest.raises(ValueError, match="prefix '<s>', suffix '</s>', middle '<s>': must be three tokens"):
        run(config_of(tmp_path, "out", prefix="<s>", suffix="</s>", middle="<s>"))
    with pytest.raises((JobError, ConfigError, ValueError), match="'<PRE>': the tokenizer has no such token"):
        run(config_of(tmp_path, "out", prefix="<PRE>"))


def test_texts_that_are_changed_first_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"output\.fim"):
        load_config({**config_of(tmp_path, "out"), "normalize": ["nfc"]})
