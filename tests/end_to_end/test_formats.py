# SPDX-License-Identifier: Apache-2.0
"""Every input format, from files to proven shards: plan, books, trace, replay, resume. Nothing here names a format."""

import gzip
import io
import itertools
import json
import tarfile
import zipfile

import pytest

from tokenmill.pipeline import cli
from tokenmill.pipeline.config.formats import FORMATS
from tokenmill.pipeline.config.input import InputConfig
from tokenmill.pipeline.input.readers import ROW_READERS, STREAM_READERS, write

LONG = "the mill " * 60
CASES = [*FORMATS, *(f"{name}.gz" for name, each in FORMATS.items() if not each.has_rows)]
CASES += [  # all three files as members of an archive
    f"{name}.{'tar' if each.has_rows else kind}"
    for (name, each), kind in zip(FORMATS.items(), itertools.cycle(["zip", "tar.gz", "tar"]), strict=False)
]
WORDS = ["the", "mill", "grinds", "text", "玫", "a"]


def texts_of(file):
    texts = [" ".join(WORDS[(i * i + 7 * j * file) % 6] for j in range(1 + i % 9)) for i in range(40)]
    return [*texts[:20], LONG, *texts[20:]]


def write_archive(path, members):
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, data in members.items():
                archive.writestr(name, data)
        return
    with tarfile.open(path, "w:gz" if path.suffix == ".gz" else "w") as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))


@pytest.fixture
def make(make_job, tiny_vocab_file, tmp_path):
    """Makes jobs over three files of a format, with a record in each that is too long."""

    def make(case, name="job", **options):
        format_, _, suffix = case.partition(".")
        folder = tmp_path / "in"
        folder.mkdir(exist_ok=True)
        config = InputConfig(paths=["a"])
        members = {}
        for file in range(3):
            records = [{"id": f"{file}-{i}", "text": text} for i, text in enumerate(texts_of(file))]
            data = write(format_, records, config)
            path = folder / f"{file}{FORMATS[format_].suffixes[0]}"
            if suffix not in ("", "gz"):
                members[path.name] = data
                continue
            path = path.with_name(path.name + (suffix and f".{suffix}"))
            if not path.exists():  # a job may not find its files changed
                path.write_bytes(gzip.compress(data, mtime=0) if suffix else data)
        if members and not (folder / f"all.{suffix}").exists():
            write_archive(folder / f"all.{suffix}", members)
        given = {"max_document_bytes": 300, "split_bytes": 1500, "on_damage": "warn", **options}
        return make_job(
            name, input={"paths": [str(folder / "*")], **given}, tokenizer={"file": str(tiny_vocab_file)}
        )  # fmt: skip

    return make


def test_every_format_has_a_reader_of_its_kind():
    assert {*STREAM_READERS, *ROW_READERS} == {*FORMATS}
    assert all(FORMATS[name].has_rows for name in ROW_READERS)


@pytest.mark.parametrize("case", CASES)
def test_a_job_from_plan_to_proof(make, case, capsys):
    job = make(case)
    assert job.run("plan") == 0
    assert job.run("tokenize", "--workers", "1") == 0
    assert job.manifest()["totals"]["rejected"] == {"too_large": 3}
    assert job.run("verify", "--deep") == 0
    rows = job.rows()
    assert len(rows) == 120
    capsys.readouterr()
    assert cli.main(["trace", "--json", str(job.output), "50", "0"]) == 0
    (document,) = json.loads(capsys.readouterr().out)["documents"]
    texts = [text for file in range(3) for text in texts_of(file) if text != LONG]
    assert document["doc_id"] == rows[50]["doc_id"]
    assert document["text"] == texts[50]
    if "." not in case and not FORMATS[case].has_rows:
        offset, n_bytes = document["source"]["offset"], document["source"]["n_bytes"]
        with open(document["source"]["path"], "rb") as handle:
            record = handle.read()[offset : offset + n_bytes].decode()
        assert texts[50] in (record if "\\u" not in record else json.loads(record)["text"])
    assert job.run("replay", "--set", "input.max_document_bytes=100000") == 0
    totals = json.loads((job.output / "replay/manifest.json").read_text())["totals"]
    assert totals["n_documents"] == 3
    assert job.run("verify", "--deep") == 0
