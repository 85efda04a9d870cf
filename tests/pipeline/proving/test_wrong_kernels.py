# SPDX-License-Identifier: Apache-2.0
"""`verify --deep` finds a kernel that is always wrong: in documents of every length, in jobs of every kind."""

import json
import shutil

import numpy as np
import pytest

from tests.chats import NAMED, TEMPLATES, make_tokenizer
from tokenmill import run
from tokenmill.pipeline import cli
from tokenmill.pipeline.commands.results import prove
from tokenmill.pipeline.proving import from_input
from tokenmill.tokenizer.plan import EncodePlan

LENGTHS = [1, 60, 4_095, 4_097, 9_000, 70_000]
SENTENCE = "Alle 30 Menschen sind frei und gleich an Würde und Rechten geboren. "
KINDS = {
    "plain": {},
    "steps": {"normalize": ["default"]},
    "spans": {"spans": [{"token": "<number>", "find": "number"}]},
    "steps and spans": {"normalize": ["nfc"], "spans": [{"token": "<number>", "find": "number"}]},
    "middle": {"output": {"fim": {"rate": 1.0, "mode": "both"}}},
    "middle of tokens": {"output": {"fim": {"rate": 0.5, "level": "token"}}},
    "concatenate": {"output": {"packing": {"length": 64, "separator": "<|eos|>"}}},
    "best fit": {"output": {"packing": {"length": 64, "strategy": "best_fit", "separator": "<|eos|>"}}},
    "no split": {"output": {"packing": {"length": 512, "strategy": "no_split", "separator": "<|eos|>"}}},
    "short rows": {"output": {"packing": {"length": 64, "incomplete": "short"}}},
    "chat, packed": {
        "input": {"messages_field": "messages"},
        "output": {"packing": {"length": 80_000, "strategy": "no_split"}},
    },
    "cut at the end": {"tokenizer": {"truncation": {"max_length": 69_990}}},
    "cut at the beginning": {"tokenizer": {"truncation": {"max_length": 69_990, "side": "left"}}},
    "windows, shuffled": {
        "tokenizer": {"truncation": {"max_length": 64, "stride": 8, "overflow": "rows"}},
        "output": {"shuffle": {"seed": 1}},
    },
    "windows": {"tokenizer": {"truncation": {"max_length": 64, "stride": 8, "overflow": "rows"}}},
    "padding": {"tokenizer": {"padding": {"length": 70_000}, "truncation": {"max_length": 70_000}}},
    "shuffle": {"output": {"shuffle": {"seed": 1}, "packing": {"length": 64, "separator": "<|eos|>"}}},
    "chat": {"input": {"messages_field": "messages"}},
    "languages": {"languages": {"keep": ["de", "und"]}},
    "parts by language": {"languages": {"keep": ["de", "und"]}, "output": {"parts": {"by": "lang"}}},
    "shares": {"output": {"parts": {"shares": {"train": 0.5, "test": 0.5}}}},
}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Returns a folder with a tokenizer, and documents with one id for all of them, and the letter Z once in each."""
    folder = tmp_path_factory.mktemp("corpus")
    tokenizer = make_tokenizer()
    tokenizer.add_special_tokens(["<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|eos|>", "[PAD]"])
    (folder / "tokenizer").mkdir()
    tokenizer.save(folder / "tokenizer" / "tokenizer.json")
    config = {"chat_template": TEMPLATES["chatml"], **NAMED}
    (folder / "tokenizer" / "tokenizer_config.json").write_text(json.dumps(config))
    with open(folder / "a.jsonl", "w", encoding="utf-8") as file:
        for length in LENGTHS:
            text = (SENTENCE * (length // len(SENTENCE) + 1))[: length - 1]
            text = text[: length // 2] + "Z" + text[length // 2 :]
            turns = [{"role": "user", "content": "ja"}, {"role": "assistant", "content": text}]
            file.write(json.dumps({"id": "same", "text": text, "messages": turns}) + "\n")
    return folder


def config_of(corpus, output, sections):
    made = {
        "input": {"paths": [str(corpus / "a.jsonl")], "id_field": "id"},
        "tokenizer": {"file": str(corpus / "tokenizer")},
        "output": {"path": str(output), "report": False},
    }
    for name, section in sections.items():
        made[name] = {**made.get(name, {}), **section} if isinstance(section, dict) else section
    return made


@pytest.fixture
def wrong_kernel(monkeypatch):
    """Makes the kernel give another id for one letter."""
    right, tokenizer = EncodePlan.encode, make_tokenizer()
    z, y = tokenizer.token_to_id("Z"), tokenizer.token_to_id("Y")

    def encode(self, text, tally=None):
        ids = right(self, text, tally)
        return ids._replace(values=np.where(ids.values == z, y, ids.values).astype(np.int32))

    monkeypatch.setattr(EncodePlan, "encode", encode)


@pytest.mark.parametrize("kind", KINDS)
def test_one_wrong_id_in_a_document_of_any_length(corpus, tmp_path, kind, wrong_kernel):
    run(config_of(corpus, tmp_path / "out", KINDS[kind]), mode="inline")
    report, again = prove(str(tmp_path / "out"), True, 1.0, ())
    found = [problem for problem in report.problems if "other ids than the reference implementation" in problem]
    assert len(found) == len(LENGTHS)
    assert report.problems == found
    assert not again.compared


@pytest.mark.parametrize("kind", KINDS)
def test_a_right_kernel_is_proven_in_all_documents(corpus, tmp_path, kind):
    run(config_of(corpus, tmp_path / "out", KINDS[kind]), mode="inline")
    report, again = prove(str(tmp_path / "out"), True, 1.0, ())
    assert report.problems == []
    assert sum(again.compared.values()) == again.n_documents == len(LENGTHS)


def test_a_kernel_that_was_wrong_only_when_the_job_ran(corpus, tmp_path, wrong_kernel, monkeypatch):
    run(config_of(corpus, tmp_path / "out", {}), mode="inline")
    monkeypatch.undo()
    problems = from_input.verify_deep(str(tmp_path / "out"), 1.0).problems
    assert any("input_ids of row 0, document 'same', is not what the input gives" in problem for problem in problems)


def test_the_first_line_says_what_was_compared_and_what_not(corpus, tmp_path, monkeypatch, capsys):
    copy = tmp_path / "corpus"
    shutil.copytree(corpus, copy)
    out = str(tmp_path / "out")
    run(config_of(copy, out, {}), mode="inline")
    monkeypatch.setattr(from_input, "_library", lambda _: ("", None))
    monkeypatch.setattr(from_input, "LEAST_DOCUMENTS", 1)
    monkeypatch.setattr(from_input, "_MAX_UNUSUAL_BYTES", -1)

    def said(*arguments):
        capsys.readouterr()
        status = cli.main(["verify", out, "--deep", *arguments])
        return status, capsys.readouterr().out.splitlines()

    again = f"{out}: proven: 1 of 1 splits were tokenized again, and gave the same rows; ids of 6 documents: "
    by = "equal those of the reference implementation"
    assert said("--share", "1")[1][0] == f"{again}6 {by}"
    assert said("--share", "0.5")[1][0] == f"{again}3 {by}, 3 not compared with anything else"
    assert said()[1][0] == f"{again}1 {by}, 5 not compared with anything else"
    monkeypatch.setattr(from_input, "MAX_BYTES", 0)
    status, (problem, first, _) = said("--share", "1")
    assert status == 1
    assert "none of 6 documents was compared with anything but the kernels" in problem
    assert first.startswith(f"{out}: 1 problem: 1 of 1 splits were tokenized again; ids of 6 documents: 6 not compared")
    (copy / "a.jsonl").unlink()
    status, (problem, first, _) = said("--share", "1")
    assert status == 1
    assert "a.jsonl' is not there any more, so it cannot be read again" in problem
    assert first.startswith(f"{out}: 1 problem: 0 of 1 splits were tokenized again; ids of 6 documents: 6 not compared")
