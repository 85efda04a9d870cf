# SPDX-License-Identifier: Apache-2.0
"""`tokenmill vocab`: says what changes, writes it once it is proven, and refuses counts of other words."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest

from tokenmill.pipeline import cli, storage
from tokenmill.tokenizer import Tokenizer

TEXTS = {"en": "the mill grinds the text into tokens", "de": "die Mühle mahlt den Text zu Mehl"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Counts of two languages with a tokenizer trained on the first: `old/` and `new/`."""
    folder = tmp_path_factory.mktemp("vocab")
    for lang, text in TEXTS.items():
        lines = [json.dumps({"text": f"{text} {text[i % 9 :]}", "lang": lang}) + "\n" for i in range(30)]
        (folder / f"{lang}.jsonl").write_text("".join(lines), encoding="utf-8")
    train = {"model": "byte_level_bpe", "pre_tokenizer": "gpt2", "vocab_size": 280}
    config = {
        "input": {"paths": [str(folder / "en.jsonl")]},
        "tokenizer": {"train": train},
        "output": {"path": str(folder / "old"), "report": False},
    }
    assert run("train", folder, config) == 0
    config["input"] = {"paths": [str(folder / "*.jsonl")]}
    config |= {"tokenizer": {"file": str(folder / "old" / "vocab")}, "counts": {"by": ["source"]}}
    config["output"] = {"path": str(folder / "new"), "report": False}
    assert run("count", folder, config) == 0
    config |= {"input": {"paths": [str(folder / "de.jsonl")]}, "output": {"path": str(folder / "de"), "report": False}}
    assert run("count", folder, config) == 0
    return folder


def run(job, folder, config):
    (folder / "job.yaml").write_text(json.dumps(config))
    return cli.main([job, str(folder / "job.yaml"), "--workers", "1", "--mode", "inline", "--quiet"])


def vocab(*words):
    return cli.main(["vocab", *map(str, words)])


def test_extend_says_what_changes_and_writes_it(folder, tmp_path, capsys):
    words = [
        "extend", folder / "old", "--counts", folder / "new", "--add", "9", "--keep-segmentation-of", folder / "old",
    ]  # fmt: skip
    assert vocab(*words, "--dry-run") == 0
    planned = capsys.readouterr().out
    assert "280 ids before, 289 after" in planned
    assert "words to keep are cut as before" in planned
    assert ", ' Tex'" in planned  # spelled ĠTex
    out = [tmp_path / "new.json", "--map", tmp_path / "map.npy", "--map", tmp_path / "map.parquet"]
    assert vocab(*words, "--json", "--out", *out) == 0
    report = json.loads(capsys.readouterr().out)
    assert set(report["proof"].values()) == {0}
    assert [(row["name"], row["changed_words"] > 0) for row in report["words"]["source"]] == [
        ("de.jsonl", True),
        ("en.jsonl", False),
    ]
    tokenizer = Tokenizer.from_file(tmp_path / "new.json")
    assert tokenizer.n_ids == 289
    old = Tokenizer.from_file(folder / "old/vocab")
    assert tokenizer.encode(TEXTS["en"]).ids == old.encode(TEXTS["en"]).ids
    assert len(tokenizer.encode(TEXTS["de"]).ids) < len(old.encode(TEXTS["de"]).ids)
    assert np.load(tmp_path / "map.npy").tolist() == list(range(280))
    assert pq.read_table(tmp_path / "map.parquet")["new_id"].to_pylist() == list(range(280))


def test_mistakes_are_named_before_anything_is_written(folder, tmp_path, capsys):
    out = tmp_path / "new.json"
    words = ["extend", folder / "old", "--counts", folder / "new", "--add", "9", "--out", out]
    for more, said in (
        (["--into-reserved"], "--add 9: there are 0 reserved ids"),
        (["--map", "map.csv"], "--map: must end in .parquet or .npy, got 'map.csv'"),
        (["--keep-segmentation-of", tmp_path], "holds no finished word counts"),
        (["--min-count", "1000"], "nothing can be added: no pair occurs 1000 times"),
        (["--map", "map.npy", "--map", "map.npy"], "--map: 'map.npy' is given twice"),
        (["--out", tmp_path], "is a folder: give the name of a file"),
        (["--out", folder / "de.jsonl" / "new.json"], "de.jsonl' is no folder that you may write to"),
        (["--out", tmp_path / "new.model"], "sentencepiece cannot"),
    ):
        assert vocab(*words, *more) == 2
        assert said in capsys.readouterr().err
    other = Tokenizer.for_bert(["[UNK]", "a"])
    other.save(tmp_path / "other.json")
    words[1] = tmp_path / "other.json"
    assert vocab(*words) == 2
    assert "holds other words than this tokenizer has: normalizer" in capsys.readouterr().err
    assert not out.exists()


def test_prune_and_replace_write_maps_for_embeddings(folder, tmp_path, capsys):
    words = [folder / "old", "--counts", folder / "old", "--json", "--map", tmp_path / "map.parquet"]
    assert vocab("prune", *words, "--to", "270", "--out", tmp_path / "pruned.json") == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["ids_after"], len(report["removed"]), set(report["proof"].values())) == (270, 10, {0})
    rows = pq.read_table(tmp_path / "map.parquet").to_pylist()
    assert sum(row["new_id"] < 0 for row in rows) == 10
    assert all(len(row["new_ids"]) > 1 for row in rows if row["new_id"] < 0)
    assert vocab("prune", *words, "--to", "7", "--out", tmp_path / "none.json") == 2
    assert "size, or --to: 7: must be from 257, which have to stay, to 280, all" in capsys.readouterr().err
    assert vocab("measure", tmp_path / "pruned.json", folder / "old", "--counts", folder / "old") == 0
    assert " bytes each, saves " in capsys.readouterr().out
    words = [folder / "old", "--counts", folder / "de", "--add", "5"]
    assert vocab("replace", *words, "--out", tmp_path / "replaced.json") == 0
    assert "280 ids before, 280 after" in capsys.readouterr().out
    assert Tokenizer.from_file(tmp_path / "replaced.json").n_ids == 280


def test_tokenizer_and_maps_are_written_together_or_not_at_all(folder, tmp_path, monkeypatch, capsys):
    words = ["prune", folder / "old", "--counts", folder / "old", "--to", "270", "--out", tmp_path / "x.json"]
    create = storage.create

    def full(path):
        if ".npy" in path:
            raise OSError(28, "No space left on device", path)
        return create(path)

    monkeypatch.setattr(storage, "create", full)
    assert vocab(*words, "--map", tmp_path / "x.parquet", "--map", tmp_path / "x.npy") == 2
    assert "No space left" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_counts_without_words_are_named_by_their_option(folder, tmp_path, capsys):
    (tmp_path / "none.jsonl").write_text('{"text": ""}\n')
    config = {"input": {"paths": [str(tmp_path / "none.jsonl")]}, "tokenizer": {"file": str(folder / "old" / "vocab")}}
    assert run("count", tmp_path, config | {"output": {"path": str(tmp_path / "none"), "report": False}}) == 0
    words = ["extend", folder / "old", "--counts", folder / "new", "--add", "9", "--dry-run"]
    for option in ("--counts", "--keep-segmentation-of"):
        assert vocab(*words, option, tmp_path / "none") == 2
        assert f"{option}: there are no words in" in capsys.readouterr().err


def test_check_and_transfer_print_what_they_find(folder, tmp_path, capsys):
    assert vocab("check", folder / "old") == 0
    assert capsys.readouterr().out == "every entry can be reached\n"
    Tokenizer.for_bert(["[UNK]", "Ab"]).save(tmp_path / "broken.json")
    assert vocab("check", tmp_path / "broken.json", "--json") == 1
    assert json.loads(capsys.readouterr().out) == [{"id": 1, "token": "Ab", "problem": "unreachable"}]
    assert vocab("transfer", folder / "old", tmp_path / "broken.json", "--out", tmp_path / "rows.parquet") == 0
    assert capsys.readouterr().out.startswith("2 ids, 0 of one old id, 1 of none; in ")
    assert pq.read_table(tmp_path / "rows.parquet")["weights"].to_pylist() == [[], [1 / 3] * 3]


def test_merge_balance_superwords_rename_and_measure_write_and_say_what(folder, tmp_path, capsys):
    old, new, out = folder / "old", folder / "new", tmp_path / "out.json"
    larger = tmp_path / "larger.json"
    assert vocab("extend", old, "--counts", new, "--add", "9", "--out", larger, "--json") == 0
    capsys.readouterr()
    assert vocab("merge", old, larger, "--counts", new, "--out", out, "--json") == 0
    added = json.loads(capsys.readouterr().out)["added"]
    assert (len(added), added[0]["count"]) == (9, None)
    assert added[0]["used"] > 0
    assert vocab("merge", old, larger, "--dry-run", "--json") == 0
    assert {each["used"] for each in json.loads(capsys.readouterr().out)["added"]} == {None}
    assert Tokenizer.from_file(out).get_vocab() == Tokenizer.from_file(larger).get_vocab()
    assert vocab("balance", old, "--counts", new, "--dry-run") == 2
    assert "has no label 'lang', only source; count with counts.by: [lang]" in capsys.readouterr().err
    words = ["balance", old, "--counts", new, "--by", "source", "--ratio", "de=1.2", "--dry-run"]
    assert vocab(*words) == 2
    assert "dev and ratio must be of the languages" in capsys.readouterr().err
    assert vocab("balance", old, "--counts", new, "--by", "source", "--out", out) == 0
    assert "Gini by source" in capsys.readouterr().out
    assert Tokenizer.from_file(out).n_ids == Tokenizer.from_file(old / "vocab").n_ids
    assert vocab("measure", old, larger, "--counts", new, "--json") == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["ids"] for row in rows if row["kind"] == "all"] == [280, 289]
    assert vocab("superwords", old, "--words", "2", "--out", out) == 0
    assert vocab("extend", out, "--counts", new, "--add", "9", "--dry-run") == 2  # of other words
    capsys.readouterr()
    assert vocab("rename", old, "--name", "<|endoftext|>=<|end|>", "--out", tmp_path / "renamed", "--json") == 0
    assert "tokenizer.json" in json.loads(capsys.readouterr().out)["files"]
    assert Tokenizer.from_file(tmp_path / "renamed").token_to_id("<|end|>") == 0
