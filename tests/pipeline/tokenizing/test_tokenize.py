# SPDX-License-Identifier: Apache-2.0
"""From a split to a committed shard to a finished folder, without Beam."""

import dataclasses
import gzip
import json
import threading
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tokenmill.pipeline import filenames
from tokenmill.pipeline.books import job_books, ledger, manifest
from tokenmill.pipeline.books.job_books import PlannedSplits
from tokenmill.pipeline.books.job_record import Job
from tokenmill.pipeline.books.quantities import BooksError
from tokenmill.pipeline.config.job import Config
from tokenmill.pipeline.input import reading
from tokenmill.pipeline.input.rejects import REASONS
from tokenmill.pipeline.input.splitting import plan_splits
from tokenmill.pipeline.jobs.finish import Folder, finish_output
from tokenmill.pipeline.output import folders, rejects_file
from tokenmill.pipeline.output.writers import formats
from tokenmill.pipeline.statistics.tally import Statistics, check_agreement
from tokenmill.pipeline.tokenizing import pages
from tokenmill.pipeline.tokenizing.tokenize import tokenize_split
from tokenmill.tokenizer import Tokenizer

TEXTS = [
    "The mill grinds text into tokens!",
    "",
    "un affable unaffable 玫瑰花 3Ⰻ7朵",
    "[PAD] [PAD]",
    "x " * 40,
    *("a mill, the mill. " * n for n in range(1, 12)),
]
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


class Work:
    """A job over the corpus in one output folder."""

    def __init__(self, corpus, output, vocab, *, split_bytes=400, oov="contain", tokenizer=None, **output_section):
        self.config = Config.model_validate(
            {
                "input": {"paths": [str(corpus / "*")], "split_bytes": split_bytes, "on_damage": "warn"},
                "tokenizer": {"file": "vocab.txt", **(tokenizer or {})},
                "output": {"path": str(output), **output_section},
            }
        )
        self.output = Path(output)
        self.tokenizer = Tokenizer.for_bert(vocab, oov=oov)
        if truncation := self.config.tokenizer.truncation:
            self.tokenizer.enable_truncation(truncation.max_length, direction=truncation.side)
        if padding := self.config.tokenizer.padding:
            self.tokenizer.enable_padding(length=padding.length, direction=padding.side)
        self.job = Job.of("tokenize", self.config, self.tokenizer.digest)
        self.splits = plan_splits(self.config.input, self.job.digest)

    def tokenize(self):
        return [tokenize_split(split, self.config, self.tokenizer, len(self.splits)) for split in self.splits]

    def finish(self):
        return finish_output(Folder(self.config, self.job, PlannedSplits(self.splits), self.tokenizer))

    def run(self):
        suffix = formats.suffix(self.config.output)
        folders.prepare_output(str(self.output), self.job, "new", n_splits=len(self.splits), suffix=suffix)
        self.tokenize()
        return self.finish()

    def rows(self):
        """Returns the rows of all shards in order."""
        found = []
        for path in sorted(self.output.glob("tokens-*")):
            with path.open("rb") as handle:
                found += [row for batch in formats.read_rows(handle, str(path)) for row in batch.to_pylist()]
        return found

    def files(self, *without):
        """Returns {name: bytes} of everything but `without`."""
        return {
            str(path.relative_to(self.output)): path.read_bytes()
            for path in sorted(self.output.rglob("*"))
            if path.is_file() and path.suffix not in without
        }


@pytest.fixture
def work(corpus, tmp_path, tiny_vocab):
    """Makes a `Work`; its output folder is `out` unless named."""

    def make(name="out", **changes):
        return Work(corpus, tmp_path / name, tiny_vocab, **changes)

    return make


EXPECTED_TEXTS = [*TEXTS, "the text", "un"]


@pytest.mark.parametrize("output", [{}, {"format": "tfrecord"}, {"format": "tfrecord", "compression": "gzip"}])
@pytest.mark.parametrize("special", [False, True])
def test_rows_are_the_documents_encoded_one_by_one(work, output, special):
    job = work(tokenizer={"add_special_tokens": special}, **output)
    job.run()
    rows = job.rows()
    assert [row["doc_id"] for row in rows] == [*(f"doc{i}" for i in range(len(TEXTS))), "c.jsonl.gz:0", "c.jsonl.gz:21"]
    expected = [job.tokenizer.encode(text, add_special_tokens=special).ids for text in EXPECTED_TEXTS]
    assert [row["input_ids"] for row in rows] == expected
    assert [row["n_tokens"] for row in rows] == [len(ids) for ids in expected]
    if output.get("format") != "tfrecord":
        unknown = job.tokenizer.unk_token_id
        assert [row["n_oov"] for row in rows] == [ids.count(unknown) for ids in expected]
        assert sum(row["n_oov"] for row in rows) > 40


def test_the_ledger_says_what_was_read_and_written(work, corpus):
    job = work()
    assert len(job.splits) > 3
    entries = job.tokenize()
    assert sum(entry["n_records"] for entry in entries) == len(EXPECTED_TEXTS) + len(BAD_LINES)
    assert sum(entry.n_documents for entry in entries) == len(EXPECTED_TEXTS)
    assert sum(entry["n_chars"] for entry in entries) == sum(map(len, EXPECTED_TEXTS))
    assert sum(entry["n_bytes"] for entry in entries) == (corpus / "a.jsonl").stat().st_size + 36
    assert sum(entry.n_tokens for entry in entries) == sum(row["n_tokens"] for row in job.rows())
    reasons = [reason for entry in entries for reason, n in (entry.of("rejected") or {}).items() for _ in range(n)]
    assert sorted(reasons) == ["missing_field", "not_json", "not_string"]
    for entry in entries:
        assert ledger.LedgerEntry.read(str(job.output), entry.split_id) == entry
        check_agreement(entry, Statistics.from_bytes((job.output / entry.statistics.file).read_bytes()))
        job_books.check_balance(entry)


def test_rejects_are_a_file_where_there_are_any_and_name_no_folder(work, corpus):
    job = work(split_bytes=10**6)
    (entry,) = job.tokenize()
    table = pq.read_table(job.output / entry.rejects.file)
    assert table.column("source").to_pylist() == ["a.jsonl"] * 3
    data = (corpus / "a.jsonl").read_bytes()
    for row, line in zip(table.to_pylist(), BAD_LINES, strict=True):
        assert row["sample"].decode() == line
        assert data[row["offset"] :].startswith(line.encode())
        assert row["reason"] in REASONS
    assert entry["n_rejected_bytes"] == sum(table.column("n_bytes").to_pylist())

    clean = work("clean", split_bytes=60)
    without = [entry for entry in clean.tokenize() if entry.rejects is None]
    assert without
    assert len(list((clean.output / "rejected").iterdir())) == len(clean.splits) - len(without)


def test_an_input_of_nothing_gives_an_empty_shard(tmp_path, work, tiny_vocab):
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "a.jsonl").write_text("")
    for output in ({}, {"format": "tfrecord"}):
        job = Work(tmp_path / "empty", tmp_path / f"out{len(output)}", tiny_vocab, **output)
        job.run()
        assert job.rows() == []
        assert len(list(job.output.glob("tokens-*"))) == 1


@pytest.mark.parametrize("output", [{}, {"format": "tfrecord", "compression": "gzip"}])
def test_bytes_do_not_depend_on_where_or_how_often(work, corpus, tmp_path, tiny_vocab, output):
    first = work(**output)
    first.run()
    moved = tmp_path / "elsewhere" / "corpus"
    moved.parent.mkdir()
    corpus.rename(moved)
    second = Work(moved, tmp_path / "elsewhere" / "out", tiny_vocab, **output)
    second.run()
    assert second.tokenize() == second.tokenize()
    ours, theirs = first.files(".json"), second.files(".json")
    assert ours == theirs
    for name in (filenames.MANIFEST, filenames.STATS, filenames.TOKENIZER):
        assert (first.output / name).read_bytes() == (second.output / name).read_bytes()
    text = (first.output / filenames.MANIFEST).read_text()
    assert str(tmp_path) not in text


@pytest.mark.parametrize("output", [{}, {"format": "tfrecord"}])
def test_bytes_do_not_depend_on_batches(work, monkeypatch, output):
    whole = work(split_bytes=10**6, **output)
    whole.tokenize()
    monkeypatch.setattr(pages, "read_split", lambda split, config, **_: reading.read_split(split, config, 50))
    pieces = work("pieces", split_bytes=10**6, **output)
    pieces.tokenize()
    assert pieces.files() == whole.files()


def test_rows_do_not_depend_on_splits(work):
    jobs = [work(f"out{n}", split_bytes=n) for n in (90, 200, 10**6)]
    for job in jobs:
        job.run()
    assert len({len(job.splits) for job in jobs}) == 3
    assert jobs[0].rows() == jobs[1].rows() == jobs[2].rows()
    assert len({(job.output / filenames.STATS).read_bytes() for job in jobs}) == 1


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("output", [{}, {"format": "tfrecord"}])
def test_padding_is_no_token(work, monkeypatch, side, output):
    shape = {"truncation": {"max_length": 12}, "padding": {"length": 16, "side": side}, "add_special_tokens": True}
    plain = work("plain", tokenizer={"truncation": {"max_length": 12}, "add_special_tokens": True}, **output)
    plain.run()
    padded = work("padded", tokenizer=shape, **output)
    padded.run()
    pad = padded.tokenizer.pad_token_id
    for row, short in zip(padded.rows(), plain.rows(), strict=True):
        ids, fill = short["input_ids"], [pad] * (16 - short["n_tokens"])
        assert row == short | {"input_ids": ids + fill if side == "right" else fill + ids}
    # Statistics do not see it either.
    assert (padded.output / filenames.STATS).read_bytes() == (plain.output / filenames.STATS).read_bytes()

    monkeypatch.setattr(pages, "_PADDED_IDS", 40)  # two rows at a time
    few = work("few", tokenizer=shape, **output)
    few.run()
    assert few.files(".json") == padded.files(".json")


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


def test_a_committed_split_costs_no_work(work, corpus, monkeypatch):
    job = work()
    entries = job.tokenize()
    monkeypatch.setattr(pages, "read_split", None)
    assert job.tokenize() == entries


def test_a_changed_split_is_made_again(work):
    job = work()
    entries = job.tokenize()
    before = job.files()
    (job.output / entries[0].shard.file).write_bytes(b"")
    (job.output / entries[1].statistics.file).unlink()
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


def test_a_finished_folder_holds_vocabulary_statistics_and_manifest(work, tiny_vocab):
    job = work(split_bytes=10**6)
    built = job.run()
    assert sorted(job.files()) == sorted(
        [
            ".huggingface.yaml",
            "_ledger/job.json",
            f"_ledger/{job.splits[0].id}.arrow",
            f"_ledger/{job.splits[0].id}.json",
            "documents/documents-00000-of-00001.parquet",
            "manifest.json",
            "rejected/rejects-00000-of-00001.parquet",
            "stats.json",
            "tokens-00000-of-00001.parquet",
            "vocab/token_counts.parquet",
            "vocab/tokenizer.json",
        ]
    )
    assert manifest.read(str(job.output)) == json.loads(json.dumps(built))
    assert Tokenizer.from_file(job.output / "vocab/tokenizer.json").digest == job.tokenizer.digest
    counts = pq.read_table(job.output / "vocab/token_counts.parquet")
    assert counts.column("token").to_pylist() == tiny_vocab
    ids = [i for row in job.rows() for i in row["input_ids"]]
    assert counts.column("count").to_pylist() == [ids.count(i) for i in range(len(tiny_vocab))]
    stats = json.loads((job.output / "stats.json").read_text())
    assert stats["tokens"] == len(ids)
    assert {row["character"]: row["count"] for row in stats["oov"]["top_characters"]}["ⰻ"] == 1


def test_swallowed_characters_and_words_are_counted(work):
    job = work("out", split_bytes=10**6)
    job.run()
    oov = json.loads((job.output / "stats.json").read_text())["oov"]
    words = {row["word"]: row["count"] for row in oov["top_words"]}
    assert words["3ⰻ7"] == 1
    assert words["x"] == 40
    assert oov["words"] == sum(words.values())


def test_the_manifest_lists_files_that_exist(work):
    job = work()
    built = job.run()
    for kind in ("shards", "rejects", "files"):
        for record in built[kind]:
            found = ledger.describe(str(job.output), record["file"])
            assert (found.n_bytes, found.sha256) == (record["n_bytes"], record["sha256"])


def test_what_is_not_committed_cannot_be_finished(work):
    job = work()
    entries = job.tokenize()
    (job.output / filenames.entry_name(entries[1].split_id)).unlink()
    with pytest.raises(BooksError, match=f"split {entries[1].split_id} has not been committed"):
        job.finish()
    assert not (job.output / filenames.MANIFEST).exists()


def test_shards_say_which_tokenizer_made_them(work):
    job = work(split_bytes=10**6)
    (entry,) = job.tokenize()
    metadata = json.loads(pq.read_schema(job.output / entry.shard.file).metadata[b"tokenmill"])
    assert metadata["tokenizer"] == job.tokenizer.digest == entry.tokenizer
    assert metadata["special_ids"] == {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4}
    assert metadata["vocab_size"] == job.tokenizer.get_vocab_size()


def test_a_file_that_shrinks_while_it_is_read_is_an_error(work, corpus):
    job = work()
    (corpus / "a.jsonl").write_text("")
    with pytest.raises(OSError, match=r"a\.jsonl"):
        job.tokenize()


def test_rejects_are_cut_into_row_groups_by_rows_alone(work, monkeypatch):
    monkeypatch.setattr(rejects_file, "_REJECT_LIMITS", (2, 1 << 20))
    job = work(split_bytes=10**6)
    (entry,) = job.tokenize()
    metadata = pq.ParquetFile(job.output / entry.rejects.file).metadata
    assert [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)] == [2, 1]


def test_special_tokens_in_documents_stay_text_and_are_counted(work):
    job = work()
    job.run()
    stats = json.loads((job.output / "stats.json").read_text(encoding="utf-8"))
    assert stats["added_tokens_in_text"] == [{"token": "[PAD]", "count": 2}]
    assert stats["vocabulary"]["top_tokens"][0]["token"] != "[PAD]"
