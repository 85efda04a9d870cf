# SPDX-License-Identifier: Apache-2.0
"""From a training step to bytes: the rows of every step, and documents through selection, packing and mixture."""

import itertools
import json
import shutil
from pathlib import Path

import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tokenmill.data
from tests.pipeline.data.test_samples import Numbers
from tests.plain_job import PlainJob
from tokenmill.data import Samples
from tokenmill.pipeline.cli import main
from tokenmill.pipeline.proving.trace import explain, locate

TEXTS = [
    " ".join("the mill grinds text a texts".split()[(i * 7 + j) % 6] for j in range(i * 5 % 23)) for i in range(41)
]


@given(
    st.integers(1, 30), st.integers(1, 5), st.integers(1, 4), st.sampled_from(["", "drop_last", "endless"]),
    st.integers(0, 5),
)  # fmt: skip
def test_a_step_is_counted_from_the_position_on(n: int, batch_size: int, world_size: int, kind: str, done: int) -> None:
    for rank in range(world_size):
        options = {kind: True} if kind else {}
        samples = Samples(Numbers(n), batch_size, seed=2, rank=rank, world_size=world_size, **options)
        list(itertools.islice(samples, done))
        state = samples.state_dict()
        read = [batch["row"].tolist() for _ in range(3) for batch in itertools.islice(samples, 7)]
        samples.load_state_dict(state)
        for step, rows in enumerate(read):
            assert [int(samples.rows_at([samples.place(step, row)])[0]) for row in range(len(rows))] == rows
            with pytest.raises(IndexError, match=f"step {step} has no row {len(rows)}"):
                samples.place(step, len(rows))
        with pytest.raises(IndexError, match="step -1 has no row 0"):
            samples.place(-1, 0)


@pytest.fixture(scope="module")
def outputs(tmp_path_factory) -> dict[str, Path]:
    vocab = tmp_path_factory.mktemp("vocab") / "vocab.txt"
    vocab.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"the mill grinds text a ##s".split()]))
    folders = {name: tmp_path_factory.mktemp(name) for name in ("web", "code")}
    output = {"format": ["parquet", "memmap"]}
    return {name: PlainJob(folder, TEXTS, vocab, output=output).run().output for name, folder in folders.items()}


@pytest.fixture
def mixture(outputs, tmp_path) -> tokenmill.data.Mixture:
    packed = tokenmill.data.pack(outputs["web"], tmp_path / "packed", length=16, strategy="best_fit", separator="[SEP]")
    some = tokenmill.data.open(outputs["code"], format="memmap").where(range(5, 30))
    return tokenmill.data.mix(
        {"packed": {"path": packed.name, "weight": 2}, "some": {"rows": some, "weight": 1}}, total_tokens=700
    ).write(tmp_path / "mixture")


def test_a_step_leads_through_mixture_and_packing_to_documents_and_bytes(mixture, outputs) -> None:
    samples = mixture.samples(4, rank=1, world_size=2)
    next(iter(samples))
    n_parts = 0
    for step, batch in enumerate(itertools.islice(mixture.samples(4, rank=1, world_size=2), 1, 6)):
        for row, ids in enumerate(batch["input_ids"]):
            explained = tokenmill.data.explain(samples, step, row)
            assert explained["epoch"] == 0
            assert mixture[explained["row"]]["input_ids"].tolist() == ids.tolist()
            assert explained["parts"]
            for part in explained["parts"]:
                (document,) = part["documents"]
                source = {"packed": "web", "some": "code"}[part["through"][0]["source"]]
                assert part["output"] == str(outputs[source])
                assert part["through"][0]["index"] == mixture.name
                place = document["source"]
                record = json.loads(Path(place["path"]).read_bytes()[place["offset"] :][: place["n_bytes"]])
                assert record["id"] == document["doc_id"]
                stored = tokenmill.data.open(part["output"])
                (number,) = stored.where(pc.field("doc_id") == record["id"]).numbers
                its = stored[int(number)]["input_ids"][part["first"] :][: part["size"]]
                assert ids[part["start"] :][: part["size"]].tolist() == its.tolist()
                assert part["through"][-1]["row"] == number - 5 * (source == "code")
                n_parts += 1
    assert n_parts > 20


def test_a_token_leads_to_its_place_in_the_text(mixture) -> None:
    row = next(i for i in range(len(mixture)) if len(list(locate(mixture, i))) > 2)
    second = list(locate(mixture, row))[1]
    (part,) = explain(mixture, row, second["start"] + second["size"] - 1)
    at, text = part["documents"][0]["at"], part["documents"][0]["text"]
    assert text[slice(*at["characters"])] == text.split()[-1][-(at["characters"][1] - at["characters"][0]) :]
    assert explain(mixture, row, second["start"] + second["size"]) == []  # the separator
    with pytest.raises(TypeError, match="numbers is no output, mixture or packing"):
        list(locate(Numbers(3), 1))


def test_trace_takes_an_index(mixture, tmp_path, capsys) -> None:
    packed = tmp_path / "packed"
    assert main(["trace", str(packed), "0"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"{packed}: documents, row ")
    assert "tokens-" in lines[1]
    assert main(["trace", "--json", str(packed), "0", "1"]) == 0
    (part,) = json.loads(capsys.readouterr().out)["parts"]
    assert part["token"] == part["first"] + 1 - part["start"]
    ids = tokenmill.data.open(packed)[:]["input_ids"].to_pylist()
    row = next(i for i in range(len(ids)) if 3 in ids[i])
    assert main(["trace", str(packed), str(row), str(ids[row].index(3))]) == 0
    assert capsys.readouterr().out == "separator or padding: belongs to no document\n"
    for words, message in [
        ([str(packed), "9999"], "has the rows 0 to"),
        ([mixture.name, "0"], "its source 'some' has the digest"),
    ]:
        assert main(["trace", *words]) == 2
        assert message in capsys.readouterr().err


def test_an_index_is_verified(mixture, outputs, capsys) -> None:
    packed = mixture.sources["packed"]
    for path, rows in ((mixture.name, mixture), (packed.name, packed)):
        if rows is mixture:  # a source that is a selection has no folder
            assert main(["verify", path]) == 1
            assert "its source 'some'" in capsys.readouterr().out
            assert [*rows.problems()] == []
            rows.record["given"]["packed"]["tokens"] += 1
            assert f"gives {rows.record['given']['packed']['tokens'] - 1} tokens in" in next(rows.problems())
            continue
        assert main(["verify", path]) == 0
        assert f"{len(rows):,} rows" in capsys.readouterr().out
        pieces = rows._pieces.copy()
        pieces["first"][0] += 1
        rows._pieces = pieces
        assert f"document {pieces['document'][0]} is not in sequences with each of its" in next(rows.problems())


def test_a_changed_source_of_an_index_is_found(tmp_path, outputs, capsys) -> None:
    copied = tmp_path / "copied"
    shutil.copytree(outputs["code"], copied)
    packed = tokenmill.data.pack(copied, tmp_path / "packed", length=16, separator="[SEP]")
    shard = copied / packed.sources["documents"].files["file"][0].as_py()
    data = shard.read_bytes()
    shard.write_bytes(data[:-9] + bytes([data[-9] ^ 1]) + data[-8:])
    assert main(["verify", packed.name]) == 1
    assert "changed: its SHA-256 is" in capsys.readouterr().out
    shard.unlink()
    assert main(["verify", packed.name]) == 1
    assert shard.name in capsys.readouterr().out
