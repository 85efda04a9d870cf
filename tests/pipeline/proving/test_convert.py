# SPDX-License-Identifier: Apache-2.0
"""Conversions of a finished output: equal rows, counts that are carried over and proven, refusals before work."""

import importlib.util
import json
import os

import pytest

import tokenmill.data
from tests.plain_job import PlainJob, rows_of
from tokenmill.pipeline.cli import main
from tokenmill.pipeline.proving.convert import Conversion
from tokenmill.pipeline.proving.verify import verify

TEXTS = ["the mill grinds text odd " * (i % 5) for i in range(10)]
SUFFIXES = {
    "parquet": ".parquet", "arrow": ".arrow", "tfrecord": ".tfrecord", "mds": ".mds", "megatron": ".bin",
    "memmap": ".ids.bin",
}  # fmt: skip
ALL = [*SUFFIXES]
JOBS = {
    "documents": {},
    "marked": {"output": {"prepend": "[MASK]", "append": "[UNK]"}, "tokenizer": {"add_special_tokens": True}},
    "padded": {"tokenizer": {"truncation": {"max_length": 9}, "padding": {"length": 11, "side": "left"}}},
    "shuffled": {"output": {"shuffle": {"shards": 2}}},
    "packed": {"output": {"packing": {"length": 8, "separator": "[SEP]", "boundaries": ["cu_seqlens", "positions"]}}},
    "windows": {"tokenizer": {"truncation": {"max_length": 8, "stride": 3, "overflow": "rows"}}},
}


def job_of(tmp_path, vocab, name, formats, **sections):
    sections = {**sections, "output": {**sections.get("output", {}), "format": formats}}
    return PlainJob(tmp_path, TEXTS, vocab, name, **sections).run()


@pytest.mark.parametrize("kind", JOBS)
def test_rows_of_every_format_are_those_of_a_job_that_writes_it(tmp_path, tiny_vocab_file, kind):
    formats = [name for name in ALL if (name, kind) != ("tfrecord", "packed")]
    direct = job_of(tmp_path, tiny_vocab_file, "direct", formats, **JOBS[kind])
    for source in formats if kind == "documents" else formats[::4]:  # one that keeps most, and one that keeps least
        from_one = job_of(tmp_path, tiny_vocab_file, f"from-{source}", source, **JOBS[kind])
        to = [name for name in formats if kind != "windows" or source in ("parquet", "arrow") or name not in ALL[:2]]
        new = tmp_path / f"to-{source}"
        built = Conversion(str(from_one.output), str(new), to).run()
        report = verify(str(new))
        assert report.problems == []
        totals = from_one.json("manifest.json")["totals"]
        assert built["totals"] == {**totals, "shard_bytes": built["totals"]["shard_bytes"]}
        assert built["converted_from"] == from_one.json("manifest.json")["digest"]
        for name in to:
            assert rows_of(new, SUFFIXES[name]) == direct.rows(SUFFIXES[name]), (source, name)
        for path in direct.output.glob("tokens-*"):
            if path.name.endswith(tuple(SUFFIXES[name] for name in to)) and path.suffix != ".gz":
                assert (new / path.name).read_bytes() == path.read_bytes()


FIELDS = {"url": None, "score": "double", "tags": ["string"], "meta": {"lang": "string"}}


def test_kept_fields_go_where_the_new_formats_have_them(tmp_path, tiny_vocab_file):
    lines = [
        {
            "text": text,
            "url": f"u{i}" if i % 3 else None,
            "score": i / 2,
            "tags": ["a", None][: i % 3],
            "meta": {"lang": "de"},
        }
        for i, text in enumerate(TEXTS)
    ]
    (tmp_path / "kept.jsonl").write_text("\n".join(map(json.dumps, lines)))
    read = {"paths": [str(tmp_path / "kept.jsonl")], "split_bytes": 300, "keep_fields": FIELDS}
    to = {
        "parquet": ("megatron", "arrow", "tfrecord", "mds", "arrow,memmap"),
        "memmap": ("parquet", "arrow", "mds", "mds,tfrecord"),
        "mds": (),
        "mds,megatron": ("parquet", "mds", "arrow,mds,memmap"),
    }
    for output in ({}, {"shuffle": {"shards": 2}}):
        name = f"{len(output)}-"
        sources = {
            key: job_of(tmp_path, tiny_vocab_file, name + key, key.split(","), input=read, output=output) for key in to
        }
        for source, targets in to.items():
            for target in targets:
                direct = job_of(
                    tmp_path, tiny_vocab_file, f"{name}{source}-{target}", target.split(","), input=read, output=output
                )
                new = tmp_path / f"{name}{source}-to-{target}"
                Conversion(str(sources[source].output), str(new), target.split(",")).run()
                assert verify(str(new)).problems == []
                for path in (*direct.output.glob("tokens-*"), *direct.output.glob("documents/*")):
                    assert (new / path.relative_to(direct.output)).read_bytes() == path.read_bytes(), (
                        source,
                        target,
                        path,
                    )
        with pytest.raises(
            ValueError, match=r"parquet has the column 'url', which its rows in mds hold as JSON; run the job"
        ):
            Conversion(str(sources["mds"].output), str(tmp_path / "new"), ["parquet"])
        with pytest.raises(
            ValueError, match=r"the table of documents has the column 'url', which its rows in mds hold"
        ):
            Conversion(str(sources["mds"].output), str(tmp_path / "new"), ["memmap"])


@pytest.mark.parametrize("kind", ["documents", "shuffled"])
def test_a_conversion_that_was_interrupted_goes_on(tmp_path, tiny_vocab_file, kind, monkeypatch, capsys):
    job = job_of(tmp_path, tiny_vocab_file, "out", "parquet", **JOBS[kind])
    whole = tmp_path / "whole"
    Conversion(str(job.output), str(whole), ["arrow", "memmap"]).run()
    command = ["convert", str(job.output), "--to", "arrow,memmap", "--output", str(tmp_path / "new")]
    replace, n_runs = os.replace, 0

    def interrupted(*paths, **options):
        nonlocal n_left
        n_left -= 1
        if n_left < 0:
            raise KeyboardInterrupt
        replace(*paths, **options)

    monkeypatch.setattr(os, "replace", interrupted)
    for n_allowed in range(4, 200, 8):  # any number of files could be in place when the next call goes on
        n_left = n_allowed
        assert main(command) in (0, 130)
        n_runs += 1
        if (tmp_path / "new/manifest.json").exists():
            break
    assert n_runs > 2
    monkeypatch.undo()
    assert verify(str(tmp_path / "new")).problems == []
    mine, others = (
        {p.relative_to(f): p.read_bytes() for p in f.rglob("*") if p.is_file()} for f in (tmp_path / "new", whole)
    )
    assert mine == others
    capsys.readouterr()
    assert main(command) == 2
    assert "holds all of this conversion already: verify it, or give a new folder" in capsys.readouterr().err
    assert main([*command[:3], "mds", *command[4:]]) == 2
    assert "holds what another job made, with output.format" in (said := capsys.readouterr().err)
    assert "--" not in said


def test_the_command_writes_a_card_and_its_rows_can_be_read(tmp_path, tiny_vocab_file, capsys):
    job = job_of(tmp_path, tiny_vocab_file, "out", "megatron")
    new = tmp_path / "new"
    assert main(["convert", str(job.output), "--to", "parquet,mds", "--output", str(new), "--card"]) == 0
    assert "proven; 10 rows" in capsys.readouterr().out
    rows = tokenmill.data.open(new)
    assert len(rows) == 10
    assert rows.n_tokens == job.json("manifest.json")["totals"]["n_tokens"]
    _, front, text = (new / "README.md").read_text().split("---\n", 2)
    import yaml

    card = yaml.safe_load(front)
    assert card["license"] is None
    assert card["size_categories"] == ["n<1K"]
    assert card["configs"][0]["data_files"] == [{"split": "train", "path": "tokens-*-of-*.parquet"}]
    if importlib.util.find_spec("datasets") is not None:
        import datasets

        loaded = datasets.load_dataset(str(new), cache_dir=str(tmp_path / "cache"), split="train")
        assert loaded.column_names == rows.schema.names
        assert loaded["input_ids"][:] == [rows[i]["input_ids"].tolist() for i in range(10)]
    assert f"| tokens | {rows.n_tokens} |" in text
    assert main(["convert", str(job.output), "--to", "parquet", "--output", str(new)]) == 2
    assert "holds what another job made, with output.format" in capsys.readouterr().err


def test_what_cannot_be_converted_is_told_before_work(tmp_path, tiny_vocab_file, capsys):
    windows = job_of(tmp_path, tiny_vocab_file, "windows", "memmap", **JOBS["windows"])
    packed = job_of(tmp_path, tiny_vocab_file, "packed", "parquet", **JOBS["packed"])
    spans = [{"token": "<url>", "find": "url", "keep_source": True}]
    sources = job_of(tmp_path, tiny_vocab_file, "sources", "parquet", spans=spans)
    for job, to, message in (
        (windows, "parquet", "parquet has the column 'n_oov', which its rows in memmap do not keep; run the job again"),
        (packed, "tfrecord", "TFRecord holds documents only"),
        (packed, "parquet,parquet", "output.format: ['parquet', 'parquet']: must name each format once"),
        (packed, "csv", "with --output give --to, one or more of parquet, tfrecord"),
    ):
        assert main(["convert", str(job.output), "--to", to, "--output", str(tmp_path / "new")]) == 2
        assert message in capsys.readouterr().err
    Conversion(str(sources.output), str(tmp_path / "new"), ["arrow"])
    for target in (sources.output, sources.output / "new", sources.output.parent):
        with pytest.raises(ValueError, match="or one lies in the other: give a new folder"):
            Conversion(str(sources.output), str(target), ["arrow"])
    (sources.output / "manifest.json").unlink()
    with pytest.raises(ValueError, match=r"holds no manifest.json; its job has not finished"):
        Conversion(str(sources.output), str(tmp_path / "new"), ["arrow"])
    assert not (tmp_path / "new").exists()


def test_a_shard_that_was_changed_is_not_converted(tmp_path, tiny_vocab_file):
    job = job_of(tmp_path, tiny_vocab_file, "out", "memmap")
    shard = next(iter(sorted(job.output.glob("tokens-*.ids.bin"))))
    shard.write_bytes(bytes([shard.read_bytes()[0] ^ 1]) + shard.read_bytes()[1:])
    with pytest.raises(ValueError, match=r"ids.bin: sha256 .*; verify the folder"):
        Conversion(str(job.output), str(tmp_path / "new"), ["parquet"]).run()
    assert not (tmp_path / "new/manifest.json").exists()
    assert json.loads((tmp_path / "new/_ledger/job.json").read_text())["parts"]["converted_from"]
