# SPDX-License-Identifier: Apache-2.0
"""`datasets.load_dataset(folder)` reads the rows of an output folder as it is."""

import json

import pytest

from tokenmill.pipeline import cli

datasets = pytest.importorskip("datasets")


@pytest.fixture
def job(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_DATASETS_OFFLINE", "1")
    texts = [(f"d{i}", f"the mill grinds text {i}") for i in range(30)]
    texts += [(f"f{i}", f"le chien mange du pain et boit de l'eau tous les jours {i}") for i in range(10)]
    lines = [json.dumps({"id": name, "text": text, "url": name}) for name, text in texts]
    (tmp_path / "a.jsonl").write_text("\n".join([*lines, "broken"]))
    output = tmp_path / "out"

    def run(**sections):
        sections = {
            "input": {"paths": [str(tmp_path / "*.jsonl")], "split_bytes": 1000, **sections.pop("input", {})},
            "tokenizer": {"train": {"model": "wordpiece", "vocab_size": 120}, **sections.pop("tokenizer", {})},
            "output": {"path": str(output), **sections.pop("output", {})},
            **sections,
        }
        (tmp_path / "job.yaml").write_text(json.dumps(sections))
        assert cli.main(["run", str(tmp_path / "job.yaml"), "--mode", "inline", "--workers", "1", "--quiet"]) == 0
        return output

    return run


def load(path, tmp_path, *name):
    return datasets.load_dataset(str(path), *name, cache_dir=str(tmp_path / "cache"))


@pytest.mark.parametrize("output", [{}, {"format": ["arrow"]}, {"format": ["mds", "parquet"]}])
def test_a_folder_loads_as_its_rows(job, tmp_path, output):
    found = load(job(output=output, input={"keep_fields": ["url"]}), tmp_path)
    assert [*found] == ["train"]
    assert sorted(found["train"]["doc_id"]) == sorted([f"d{i}" for i in range(30)] + [f"f{i}" for i in range(10)])
    assert found["train"]["url"] == found["train"]["doc_id"]
    assert {"input_ids", "n_tokens"} <= {*found["train"].column_names}


def test_a_replay_and_a_report_change_nothing(job, tmp_path):
    output = job()
    assert cli.main(["replay", str(tmp_path / "job.yaml"), "--quiet"]) == 0
    assert cli.main(["verify", str(output), "--quiet"]) == 0
    assert load(output, tmp_path)["train"].num_rows == 40


def test_parts_are_the_splits_of_one_data_set(job, tmp_path):
    output = job(output={"parts": {"shares": {"train": 0.6, "validation": 0.2, "test": 0.2}}})
    found = load(output, tmp_path)
    assert sorted(found) == ["test", "train", "validation"]
    assert {name: part.num_rows for name, part in found.items()} == {
        name: load(output / name, tmp_path)["train"].num_rows for name in found
    }
    assert sum(part.num_rows for part in found.values()) == 40


def test_folders_of_one_tokenizer_are_one_data_set(job, tmp_path):
    output = job(languages={"keep": ["fr", "und"]}, output={"parts": {"by": "lang"}})
    assert load(output, tmp_path)["train"].num_rows == load(output / "lang=fr", tmp_path)["train"].num_rows + (
        load(output / "lang=und", tmp_path)["train"].num_rows
    )
    assert cli.main(["verify", str(output), "--quiet"]) == 0


def test_folders_of_several_tokenizers_are_one_data_set_each(job, tmp_path):
    parts = {"by": "lang", "train": True}
    output = job(languages={}, counts={"by": ["lang"], "languages": ["fr"]}, output={"parts": parts})
    assert datasets.get_dataset_config_names(str(output)) == ["default", "fr"]
    assert load(output, tmp_path, "fr")["train"].num_rows == 10
    assert load(output, tmp_path, "default")["train"].num_rows == 30


def test_a_format_that_datasets_does_not_read_has_no_such_file(job):
    assert not (job(output={"format": "tfrecord"}) / ".huggingface.yaml").exists()
