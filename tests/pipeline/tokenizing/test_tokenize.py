# SPDX-License-Identifier: Apache-2.0
"""From a split to a committed shard to a finished folder, without Beam."""

import dataclasses
import gzip
import json
import threading

import pytest

from tests.plain_job import StepJob
from tokenmill.pipeline import filenames
from tokenmill.pipeline.books import ledger
from tokenmill.pipeline.books.quantities import BooksError
from tokenmill.pipeline.input import reading
from tokenmill.pipeline.tokenizing import pages
from tokenmill.pipeline.tokenizing.tokenize import tokenize_split

TEXTS = [
    "The mill grinds text into tokens!", "", "un affable unaffable 玫瑰花 3Ⰻ7朵", "[PAD] [PAD]", "x " * 40,
    *("a mill, the mill. " * n for n in range(1, 12)),
]  # fmt: skip
BAD_LINES = ['{"text": 3}', "not json", '{"id": "x"}']


@pytest.fixture
def corpus(tmp_path):
    """Three files: documents with bad lines among them, nothing, and compressed documents."""
    folder = tmp_path / "corpus"
    folder.mkdir()
    lines = [json.dumps({"id": f"doc{i}", "text": text}, ensure_ascii=False) for i, text in enumerate(TEXTS)]
    lines[3:3] = BAD_LINES
    (folder / "a.jsonl").write_text("\n".join(["", *lines, "", ""]), encoding="utf-8")
    (folder / "b.jsonl").write_text("")
    (folder / "c.jsonl.gz").write_bytes(gzip.compress(b'{"text": "the text"}\n{"text": "un"}\n', mtime=0))
    return folder


@pytest.fixture
def work(corpus, tmp_path, tiny_vocab):
    """Makes a job over the corpus; its output folder is `out` unless named."""

    def make(name="out", **changes):
        return StepJob(tmp_path / name, tiny_vocab, [corpus / "*"], **{"split_bytes": 400, "oov": "contain", **changes})

    return make


def test_a_row_longer_than_the_padding_is_an_error(work):
    job = work(tokenizer={"padding": {"length": 30}})
    with pytest.raises(ValueError, match=r"document 'doc4' has 40 tokens, more than tokenizer\.padding\.length 30"):
        job.tokenize()
    assert not list(job.output.glob("tokens-00001*"))


def test_padding_of_tokenizer_and_config_must_agree(work):
    job = work()
    job.tokenizer.enable_padding(length=50)
    with pytest.raises(ValueError, match="call enable_padding or no_padding as the config says"):
        job.tokenize()
    job = work("other", tokenizer={"padding": {"length": 50}})
    for arguments in ({"length": 49}, {"length": 50, "direction": "left"}, {}):
        job.tokenizer.enable_padding(**arguments)
        with pytest.raises(ValueError, match="the tokenizer's padding is"):
            job.tokenize()


def test_a_changed_split_is_made_again(work):
    job = work(format=["parquet", "megatron"])
    entries = job.tokenize()
    before = job.files()
    (job.output / entries[0].shard.file).write_bytes(b"")
    (job.output / entries[1].statistics.file).unlink()
    (job.output / next(each.file for each in entries[2].companions if each.file.endswith(".idx"))).unlink()
    assert job.tokenize() == entries
    assert job.files() == before

    other = work(oov="word")
    assert [entry.tokenizer for entry in other.tokenize()] == [other.tokenizer.digest] * len(entries)
    assert job.files() != before


def test_books_that_do_not_balance_are_not_committed(work, monkeypatch):
    def lossy(split, config, **_):
        for batch in reading.read_split(split, config):
            yield dataclasses.replace(batch, documents=batch.documents.slice(1))

    monkeypatch.setattr(pages, "read_split", lossy)
    job = work(split_bytes=10**6)
    with pytest.raises(BooksError, match=r"records read 21 != documents \+ rejected \+ filtered 20"):
        job.tokenize()
    assert job.files() == {}


def test_two_attempts_at_once_agree(work):
    job = work(split_bytes=10**6)
    found = []

    def attempt():
        found.append(tokenize_split(job.splits[0], job.config, job.tokenizer, 1))

    threads = [threading.Thread(target=attempt) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert len(set(map(str, found))) == 1
    names = ["tokens-00000-of-00001.parquet", "documents/documents-00000-of-00001.parquet"]
    assert ledger.LedgerEntry.committed(str(job.output), job.splits[0], job.tokenizer.digest, names)


def test_what_is_not_committed_cannot_be_finished(work):
    job = work()
    entries = job.tokenize()
    (job.output / filenames.entry_name(entries[1].split_id)).unlink()
    with pytest.raises(BooksError, match=f"split {entries[1].split_id} has not been committed"):
        job.finish()
    assert not (job.output / filenames.MANIFEST).exists()
