# SPDX-License-Identifier: Apache-2.0
"""`tokenmill diff`: it finds what was changed, nothing else, in rows of every kind; hashes agree with their twin."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.plain_job import PlainJob
from tokenmill.pipeline import cli
from tokenmill.pipeline.hashing import hash_rows
from tokenmill.pipeline.looking.difference import difference

TEXTS = ["the mill grinds", "text into tokens", "", "unaffable 玫", *["the text mill"] * 4]

SHAPES = {
    "plain": {},
    "windows": {"tokenizer": {"truncation": {"max_length": 4, "overflow": "rows", "stride": 1}}},
    "packed": {"output": {"packing": {"length": 16, "separator": "[SEP]"}}},
    "tfrecord": {"output": {"format": "tfrecord"}},
    "megatron": {"output": {"format": "megatron"}},
    "shuffled": {"output": {"shuffle": {"seed": 1}}},
}


@pytest.fixture(params=SHAPES)
def make(request, tmp_path, tiny_vocab_file):
    """`make(name, texts)`: a finished job of one of the shapes over some texts."""

    def of(name, texts, **sections):
        (tmp_path / name).mkdir(exist_ok=True)
        merged = {**json.loads(json.dumps(SHAPES[request.param])), **sections}
        return str(PlainJob(tmp_path / name, texts, tiny_vocab_file, **merged).run().output)

    return of


def test_equal_outputs_are_equal(make, capsys):
    one, other = make("one", TEXTS), make("other", TEXTS)
    found = difference(one, other)
    assert {name for name in found["config"] if name != "input.paths"} == set()
    assert found["rows"] == found["vocabulary"] == found["totals"] == {}
    assert cli.main(["diff", one, one]) == 0
    assert capsys.readouterr().out == "the outputs are equal\n"


def test_a_changed_text_is_found(make, capsys):
    one, other = make("one", TEXTS), make("other", [TEXTS[0], "text into the mill", *TEXTS[2:]])
    assert cli.main(["diff", one, other, "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["rows"]
    assert found["totals"]
    changed = found["rows"]["changed"]["first"][0]
    before, after = ("".join(texts) for texts in changed["shown"])
    assert before != after
    assert changed["token"] >= changed["shown_from"]
    assert cli.main(["diff", one, other]) == 1
    assert "rows " in capsys.readouterr().out


@given(st.permutations(range(len(TEXTS))), st.sets(st.integers(0, len(TEXTS) - 1)))
def test_hashes_of_rows_are_those_of_rows_alone(order, empty):
    rows = [[] if i in empty else list(range(i, 2 * i)) for i in order]
    values = np.array([9, *(v for row in rows for v in row)], np.int32)
    offsets = np.cumsum([1, *map(len, rows)])
    found = hash_rows(values, offsets)
    alone = [int(hash_rows(np.array(row, np.int64), np.array([0, len(row)]))[0]) for row in rows]
    assert found.tolist() == alone
    distinct = {tuple(row) for row in rows}
    assert len(set(alone)) == len(distinct)


def test_rows_of_documents_are_told_by_name(tmp_path, tiny_vocab_file, tiny_vocab):
    texts = [*TEXTS[:4], "the mills", *TEXTS[5:]]
    one = PlainJob(tmp_path, texts, tiny_vocab_file, name="one").run()
    vocab = tmp_path / "other.txt"
    vocab.write_text("\n".join([*tiny_vocab, "mills"]), encoding="utf-8")
    other = PlainJob(tmp_path, texts, vocab, name="other", tokenizer={"oov": "contain"}).run()
    found = difference(str(one.output), str(other.output))
    rows = {name: [[row["doc_id"], row["input_ids"]] for row in job.rows()] for name, job in (("a", one), ("b", other))}
    changed = [a[0] for a, b in zip(rows["a"], rows["b"], strict=True) if a != b]
    assert [each["row"] for each in found["rows"]["changed"]["first"]] == changed == ["d4"]
    assert found["vocabulary"] == {"only_second": {"n": 1, "first": ["mills"]}}
    assert found["config"]["tokenizer.oov"] == [None, "contain"]
    (tmp_path / "fewer").mkdir()
    fewer = PlainJob(tmp_path / "fewer", TEXTS[:4], tiny_vocab_file).run()
    found = difference(str(one.output), str(fewer.output))
    assert found["rows"] == {"only_first": {"n": 4, "first": ["d4", "d5", "d6", "d7"]}}


def test_tokens_under_other_ids_are_told_apart_from_other_tokens(tmp_path, tiny_vocab_file, tiny_vocab, capsys):
    one = PlainJob(tmp_path, TEXTS, tiny_vocab_file, name="one").run()
    vocab = tmp_path / "moved.txt"
    vocab.write_text("\n".join([*tiny_vocab[:5], "mills", *tiny_vocab[5:]]), encoding="utf-8")
    other = PlainJob(tmp_path, [*TEXTS[:4], "the mills", *TEXTS[5:]], vocab, name="other").run()
    assert cli.main(["diff", str(one.output), str(other.output)]) == 1
    said = capsys.readouterr().out
    assert "d0: the same 3 tokens under other ids" in said
    assert "d4: 3 -> 2 tokens, from token 1\n    - the┊ text┊ mill\n    + the┊ mills\n" in said


def test_what_is_no_output_is_one_message(tmp_path, capsys):
    assert cli.main(["diff", str(tmp_path), str(tmp_path)]) == 2
    assert "holds no manifest.json" in capsys.readouterr().err
