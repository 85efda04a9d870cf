# SPDX-License-Identifier: Apache-2.0
"""`ReadCorpus` as a splittable DoFn: whatever part of it a runner takes away, each record is read once."""

import gzip
import json
import random
import threading
from collections import Counter

import apache_beam as beam
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from apache_beam.runners.portability.fn_api_runner import fn_runner
from apache_beam.testing.util import assert_that
from apache_beam.transforms.environments import EmbeddedPythonGrpcEnvironment

from tests.rows import run_inline
from tokenmill import ReadCorpus
from tokenmill.pipeline.config.input import InputConfig
from tokenmill.pipeline.rows import corpus
from tokenmill.pipeline.rows.corpus import _plan, _ReadFn, _units
from tokenmill.pipeline.splits import Split


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A large file of each kind, and many small ones; units are small."""
    monkeypatch.setattr(corpus, "_UNIT_BYTES", 700)
    monkeypatch.setattr(corpus, "BATCH_BYTES", 1)
    rng = random.Random(5)
    docs = [{"text": f"{i} {'word ' * rng.randrange(60)}"} for i in range(200)]
    lines = [json.dumps(doc) for doc in docs]
    (tmp_path / "large.jsonl").write_text("\n".join(lines))
    (tmp_path / "zipped.jsonl.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    pq.write_table(pa.Table.from_pylist(docs), tmp_path / "groups.parquet", row_group_size=17)
    pq.write_table(pa.table({"text": pa.array([], pa.string())}), tmp_path / "nothing.parquet")
    (tmp_path / "empty.jsonl").write_text("")
    for i in range(30):
        (tmp_path / f"small-{i:02d}.jsonl").write_text(lines[i])
    return tmp_path


def options_of(folder):
    return InputConfig(paths=[str(folder / "*")], split_bytes=8000)


def documents_of(folder):
    """Returns how often each document is in the files, by a loop over all units."""
    found = Counter()
    for line in _plan(b"", options_of(folder)):
        split = Split.from_json(line)
        for batch in corpus.read_split(split, options_of(folder)):
            found.update(batch.documents.column("doc_id").to_pylist())
    return found


@pytest.mark.parametrize("seed", range(2))
def test_a_runner_that_rebalances_loses_and_doubles_nothing(seed, folder, monkeypatch):
    """Splits are forced while a unit is being read, at random places of what is left; what is left is read later."""
    rng, reading, go_on = random.Random(seed), threading.Event(), threading.Event()
    expected = documents_of(folder)
    taken = []
    read_split = corpus.read_split

    def read_and_wait(split, options):
        for batch in read_split(split, options):
            reading.set()
            assert go_on.wait(30)
            yield batch

    def force_splits(n_elements):
        reading.clear()
        go_on.clear()
        if not n_elements:
            go_on.set()
        yield
        reading.wait(1)
        for _ in range(rng.randrange(1, 4)):
            split = yield rng.random() ** 4  # of all that the bundle has left, so mostly within this element
            taken.extend(split.residual_roots if split is not None else ())
        go_on.set()

    def check(found):
        assert Counter(found) == expected

    monkeypatch.setattr(corpus, "read_split", read_and_wait)
    runner = fn_runner.FnApiRunner(default_environment=EmbeddedPythonGrpcEnvironment.default())
    with fn_runner.split_manager("Corpus/Read", force_splits), beam.Pipeline(runner=runner) as pipeline:
        documents = pipeline | "Corpus" >> ReadCorpus(str(folder / "*"), split_bytes=8000)
        assert_that(documents | beam.Map(lambda row: row.doc_id), check)
    assert taken


def test_paths_without_a_file_are_told_before_anything_runs(tmp_path):
    """As `ReadFromText` tells, which has `validate`, too."""
    (tmp_path / "here.jsonl").write_text("{}")
    here, nowhere = str(tmp_path / "*.jsonl"), str(tmp_path / "*.txt")
    for path in (here, str(tmp_path)):
        ReadCorpus(path)
    with pytest.raises(OSError, match=r"\*.txt' matches no file; give validate=False"):
        ReadCorpus([here, nowhere])
    with pytest.raises(OSError, match="matches no file, or only files that exclude leaves out"):
        ReadCorpus(here, exclude=["*"])
    with pytest.raises(ValueError, match="filesystem"):
        ReadCorpus("nostore://bucket/*")
    assert beam.Pipeline() | ReadCorpus(nowhere, validate=False)


def test_a_record_that_cannot_be_read_is_an_error_unless_it_has_an_output(tiny_corpus):
    (tiny_corpus / "b.jsonl").write_text("not json\n")
    paths = str(tiny_corpus / "*.jsonl")
    with pytest.raises(Exception, match=r"ReadCorpus: .*b\.jsonl, offset 0: not_json"):
        run_inline(lambda pipeline: pipeline | ReadCorpus(paths))
    with pytest.raises(Exception, match=r"1 of 5 elements fail, more than the threshold of 0\.1 allows"):
        run_inline(lambda pipeline: pipeline | ReadCorpus(paths).with_exception_handling(threshold=0.1))


TEXTS = {
    "jsonl": b'{"text": "a mill"}\n\n  {"text": "caf\xc3\xa9"}\r\nnot json\n{"text": ""}\n   \n' * 9,
    "line": b"\xef\xbb\xbfa mill\n\n \t\ngrinds text\r\nlatin caf\xe9\n  words\n" * 9,
    "blank_line": b"\n\na mill\ngrinds\n\n \t\n\n\r\n\r\ntext\n\ncaf\xe9\n\n\n" * 9,
}


@pytest.mark.parametrize("kind", TEXTS)
def test_what_is_taken_away_within_a_file_is_read_once(kind, tmp_path, monkeypatch):
    """At any byte, after any batch: with blank lines, marks and records that are rejected."""
    path = tmp_path / ("text.jsonl" if kind == "jsonl" else "text.txt")
    path.write_bytes(TEXTS[kind])
    document = {} if kind == "jsonl" else {"document": kind}
    options = InputConfig(paths=[str(path)], on_damage="warn", **document)
    read_split, rng = corpus.read_split, random.Random(kind)
    expected = _records(read_split(Split.from_json(next(_plan(b"", options))), options))
    assert len(expected) > 20
    assert len(set(expected)) == len(expected)
    monkeypatch.setattr(corpus, "read_split", lambda split, options: read_split(split, options, rng.randrange(1, 90)))
    for _ in range(60):
        monkeypatch.setattr(corpus, "_UNIT_BYTES", rng.randrange(1, 40))
        _units.cache_clear()
        fn, line = _ReadFn(options), next(_plan(b"", options))
        left, found = [fn.initial_restriction(line)], []
        while left:
            tracker = fn.create_tracker(left.pop())
            for batch in fn.process(line, tracker):
                found += _records([batch])
                if rng.random() < 0.1 and (taken := tracker.try_split(rng.random())) is not None:
                    left.append(taken[1])
            tracker.check_done()
        assert sorted(found) == sorted(expected)


def _records(batches):
    """Returns offset and bytes of each document and reject."""
    found = []
    for batch in batches:
        for each in (batch.documents, batch.rejects):
            found += zip(each["offset"].to_pylist(), each["n_bytes"].to_pylist(), strict=True) if each else ()
    return found
