# SPDX-License-Identifier: Apache-2.0
"""Verification finds every lie: damage that checksums show, and forgeries whose checksums are right."""

import dataclasses
import hashlib
import io
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.ledger_entries import changed
from tests.plain_job import StepJob
from tokenmill.pipeline import cli, filenames, schemas
from tokenmill.pipeline.books import ledger, lists, manifest
from tokenmill.pipeline.books.job_books import JobBooks
from tokenmill.pipeline.books.job_record import Job
from tokenmill.pipeline.books.ledger import FileRecord, LedgerEntry
from tokenmill.pipeline.output import folders
from tokenmill.pipeline.output.writers import formats
from tokenmill.pipeline.proving import verify
from tokenmill.pipeline.statistics.tally import Statistics
from tokenmill.pipeline.tokenizing.pages import tokenizer_info
from tokenmill.tokenizer import Tokenizer

TEXTS = ["The mill grinds text!", "", "un affable 玫瑰花 3Ⰻ7朵", "a mill, a mill"]


class Folder(StepJob):
    """A finished output folder of two splits, and the means to forge it."""

    def __init__(self, tmp_path, vocab, **sections):
        corpus = tmp_path / "corpus"
        corpus.mkdir()
        for name in ("a", "b"):
            lines = [json.dumps({"id": f"{name}{i}", "text": text}) for i, text in enumerate(TEXTS)]
            (corpus / f"{name}.jsonl").write_text("\n".join([*lines, "not json"]))
        options = {"split_bytes": (corpus / "a.jsonl").stat().st_size, "oov": "contain", "vocabulary": ["vocab.txt"]}
        super().__init__(tmp_path / "out", vocab, [corpus / "*"], **options, **sections)
        self.path = self.output
        self.prepare()
        self.entries = self.tokenize()
        self.finish()

    @property
    def entry(self) -> LedgerEntry:
        return self.entries[0]

    def problems(self):
        return verify.verify(str(self.path)).problems

    def set_manifest(self, change):
        path = self.path / "manifest.json"
        found = json.loads(path.read_text())
        change(found)
        path.write_bytes(ledger.to_json({**found, "digest": manifest.digest(found)}))

    def set_entry(self, **changes):
        """Changes the first split's ledger entry."""
        entry = changed(self.entry, **changes)
        (self.path / filenames.entry_name(entry.split_id)).write_bytes(entry.to_json())
        self.entries[0] = entry

    def forge(self, name, data):
        """Replaces a file and makes ledger and manifest record the size and checksum that it has now."""
        (self.path / name).write_bytes(data)
        sizes = {"n_bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}

        def change(found):
            for kind in ("shards", "documents", "rejects", "files"):
                for record in found[kind]:
                    if record["file"] == name:
                        record.update(sizes)
            found["totals"]["shard_bytes"] = sum(record["n_bytes"] for record in found["shards"])
            found["totals"]["reject_bytes"] = sum(record["n_bytes"] for record in found["rejects"])

        self.set_manifest(change)
        for field in ("shard", "documents", "rejects", "statistics"):
            record = getattr(self.entry, field)
            if record.file == name:
                self.set_entry(**{field: dataclasses.replace(record, **sizes)})

    def forge_shard(self, change):
        """Forges the first shard with its rows, a list of dictionaries, changed."""
        name = self.entry.shard.file
        with (self.path / name).open("rb") as handle:
            rows = [row for batch in formats.read_rows(handle, name) for row in batch.to_pylist()]
        rows = [row | {"n_oov": row.get("n_oov", 0)} for row in rows]
        change(rows)
        handle = io.BytesIO()
        schema = schemas.rows([], (pa.field(name, pa.string()) for name in self.config.input.keep_fields))
        writer = formats.open_writer(handle, self.config.output, tokenizer_info(self.tokenizer), schema=schema)
        writer.write(pa.RecordBatch.from_pylist(rows, schema=schema))
        writer.close()
        self.forge(name, handle.getvalue())


@pytest.fixture
def folder(tmp_path, tiny_vocab):
    return Folder(tmp_path, tiny_vocab)


SHAPES = [
    {},
    {"format": "tfrecord"},
    {"format": "tfrecord", "compression": "gzip"},
    {"tokenizer": {"padding": {"length": 20}}},
    {"tokenizer": {"padding": {"length": 20, "side": "left"}}, "format": "tfrecord"},
]


@pytest.fixture
def long_lists(monkeypatch):
    """Makes every list of a manifest a long one, in a file of its own, of one record a row group."""
    monkeypatch.setattr(lists, "MOST_RECORDS", 0)
    monkeypatch.setattr(lists, "ROWS", 1)


@pytest.mark.usefixtures("long_lists")
@pytest.mark.parametrize("shape", [*SHAPES[:2], {"format": ["parquet", "arrow"]}])
def test_a_job_of_many_files_is_proven_and_each_lie_of_its_lists_found(tmp_path, tiny_vocab, shape):
    folder = Folder(tmp_path, tiny_vocab, **shape)
    assert folder.problems() == []
    kinds = [kind for kind in lists.SCHEMAS if (folder.path / filenames.list_name(kind)).exists()]
    assert kinds == [kind for kind in lists.SCHEMAS if kind != "companions" or isinstance(shape.get("format"), list)]
    for kind in kinds:
        path = folder.path / filenames.list_name(kind)
        data, manifest_data = path.read_bytes(), (folder.path / "manifest.json").read_bytes()
        table = pq.read_table(path)
        path.write_bytes(data + b"x")
        assert any(problem.startswith(filenames.list_name(kind)) for problem in folder.problems())
        for forged in (lie_about(table), table.slice(1), pa.concat_tables([table, table.slice(1)])):
            handle = io.BytesIO()
            pq.write_table(forged, handle, row_group_size=1, compression="zstd", store_schema=False)
            path.write_bytes(handle.getvalue())
            described = ledger.describe(str(folder.path), filenames.list_name(kind)).to_record()
            record = {**described, "rows": forged.num_rows}
            folder.set_manifest(lambda found, record=record, kind=kind: found.update({kind: record}))
            assert folder.problems(), (kind, forged.num_rows)
        path.write_bytes(data)
        (folder.path / "manifest.json").write_bytes(manifest_data)
    assert folder.problems() == []


def lie_about(table):
    """Returns a list whose last record has another number."""
    rows = table.to_pylist()
    rows[-1]["n_bytes"] += 1
    return pa.Table.from_pylist(rows, schema=table.schema)


def test_a_list_elsewhere_is_not_read(folder):
    record = {"file": "../secret.parquet", "n_bytes": 1, "sha256": "0" * 64, "rows": 1}
    folder.set_manifest(lambda found: found.update(shards=record))
    (problem,) = folder.problems()
    assert "is not a manifest of format 4 or 5" in problem


def all_files():
    """Names of one file of each kind that the manifest or the ledger records; `{}` stands for the split."""
    return [
        "tokens-00000-of-00002.parquet", "documents/documents-00000-of-00002.parquet",
        "rejected/rejects-00001-of-00002.parquet", "_ledger/{}.arrow", "_ledger/{}.json", "vocab/tokenizer.json",
        "vocab/vocab.txt", "vocab/token_counts.parquet", "stats.json",
    ]  # fmt: skip


@pytest.mark.parametrize("damage", ["gone", "longer", "one byte"])
@pytest.mark.parametrize("name", all_files())
def test_damage_is_found_and_named(folder, name, damage):
    path = folder.path / name.format(folder.entry.split_id)
    data = path.read_bytes()
    if damage == "gone":
        path.unlink()
    elif damage == "longer":
        path.write_bytes(data + b"x")
    else:
        path.write_bytes(data[:20] + bytes([data[20] ^ 1]) + data[21:])
    problems = folder.problems()
    assert any(problem.startswith(name.format(folder.entry.split_id)) for problem in problems), problems
    assert not any("Errno" in problem for problem in problems)
    assert len({*problems}) == len(problems)
    assert not verify.verify(str(folder.path)).is_proven


def expect(folder, *wanted):
    problems = folder.problems()
    for words in wanted:
        assert any(words in problem for problem in problems), (words, problems)


@pytest.mark.parametrize("output", [{}, {"format": "tfrecord"}, {"format": "tfrecord", "compression": "gzip"}])
def test_forged_ids_are_found(tmp_path, tiny_vocab, output):
    folder = Folder(tmp_path, tiny_vocab, **output)
    name = folder.entry.shard.file
    folder.forge_shard(lambda rows: rows[0]["input_ids"].__setitem__(0, 9999))
    expect(folder, f"{name}: id 9999 is not in the vocabulary of {len(tiny_vocab)} tokens")


@pytest.mark.parametrize("output", [{}, {"format": "tfrecord"}])
def test_forged_rows_are_found(tmp_path, tiny_vocab, output):
    folder = Folder(tmp_path, tiny_vocab, **output)
    name = folder.entry.shard.file
    folder.forge_shard(lambda rows: rows.pop())
    expect(folder, f"{name}: 3 rows, recorded 4", f"{name}: {folder.entry.n_tokens - 5} tokens, recorded")


@pytest.mark.parametrize("output", [{}, {"format": "tfrecord"}])
def test_tokens_that_were_exchanged_are_found(tmp_path, tiny_vocab, output):
    folder = Folder(tmp_path, tiny_vocab, **output)
    was = tiny_vocab.index("the")
    folder.forge_shard(lambda rows: rows[0]["input_ids"].__setitem__(0, was + 1))
    expect(folder, f"{folder.entry.statistics.file}: token_counts[{was}] is 1, {folder.entry.shard.file} has 0")


def forge_documents(folder, change):
    """Forges the table of documents of the first shard with its rows, a list of dictionaries, changed."""
    name = folder.entry.documents.file
    table = pq.read_table(folder.path / name)
    rows = table.to_pylist()
    change(rows)
    handle = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), handle, store_schema=False)
    folder.forge(name, handle.getvalue())


DOCUMENT_FORGERIES = {
    "3 documents, but the ledger says 4": lambda rows: rows.pop(2),
    "document 2 does not come after the one before it": lambda rows: rows.insert(1, rows.pop(2)),
    "bytes of documents, but the ledger says": lambda rows: rows[1].update(input_bytes=1),
    "tokens, but the ledger says": lambda rows: rows[1].update(n_tokens=9999),
    "documents are of file 1, which split": lambda rows: rows[3].update(input_file=1),
    "a document comes from none of the 2 files": lambda rows: rows[3].update(input_file=2),
    "doc_id of row 1 is 'a1', documents/documents-00000-of-00002.parquet gives 'b1'": lambda rows: rows[1].update(
        doc_id="b1"
    ),
}


@pytest.mark.parametrize("problem", DOCUMENT_FORGERIES)
def test_forged_tables_of_documents_are_found(folder, problem):
    forge_documents(folder, DOCUMENT_FORGERIES[problem])
    expect(folder, problem)


@pytest.mark.parametrize("formats", [["parquet", "arrow"], ["parquet", "mds"], ["parquet", "megatron"]])
def test_fields_that_are_not_those_of_the_other_files_are_found(tmp_path, tiny_vocab, formats):
    folder = Folder(tmp_path, tiny_vocab, keep_fields=["text"], format=formats)
    assert folder.problems() == []
    folder.forge_shard(lambda rows: rows[1].update(text="other"))
    expect(folder, "field 'text' of row 1 is")


PLACE_FORGERIES = {
    "do not follow one another": lambda row: row["starts"].__setitem__(0, row["starts"][0] + 1),
    "does not have as many starts as rows": lambda row: row["starts"].append(0),
    "documents of row 0 is [0, 1, 2], documents/documents-00000-of-00002.parquet gives [1, 0, 2]": None,
}


@pytest.mark.parametrize("problem", PLACE_FORGERIES)
def test_forged_places_in_sequences_are_found(tmp_path, tiny_vocab, problem):
    folder = Folder(tmp_path, tiny_vocab, packing={"length": 8, "separator": "[SEP]"})

    def change(rows):
        if PLACE_FORGERIES[problem]:
            PLACE_FORGERIES[problem](rows[1])
            return
        for name in ("n_tokens", "rows", "starts"):  # two documents in one another's places
            rows[0][name], rows[1][name] = rows[1][name], rows[0][name]

    assert folder.problems() == []
    forge_documents(folder, change)
    expect(folder, problem)


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("output", [{}, {"format": "tfrecord"}])
def test_forged_padding_is_found(tmp_path, tiny_vocab, side, output):
    folder = Folder(tmp_path, tiny_vocab, tokenizer={"padding": {"length": 20, "side": side}}, **output)
    name = folder.entry.shard.file
    at = 19 if side == "right" else 0
    folder.forge_shard(lambda rows: rows[1]["input_ids"].__setitem__(at, 7))
    expect(folder, f"{name}, row 0 and on: what stands beside the n_tokens tokens of a row must be the padding token 0")
    folder.forge_shard(lambda rows: rows[1].update(input_ids=[0] * 19))
    expect(folder, f"{name}, row 0 and on: rows must have 20 ids, padding included")


def test_a_record_whose_checksum_is_wrong_is_found(tmp_path, tiny_vocab):
    folder = Folder(tmp_path, tiny_vocab, format="tfrecord")
    name = folder.entry.shard.file
    data = bytearray((folder.path / name).read_bytes())
    data[-1] ^= 1
    folder.forge(name, bytes(data))
    expect(folder, f"{name}, byte ", "the checksum of the record is wrong")


def test_forged_rejects_are_found(folder):
    name = folder.entry.rejects.file
    table = pq.read_table(folder.path / name)
    for change, words in [
        ({"reason": ["too_large"]}, "holds {'too_large': 1}, the ledger records {'not_json': 1}"),
        ({"n_bytes": [99]}, f"records of 99 bytes, but the ledger says {folder.entry['n_rejected_bytes']}"),
    ]:
        sink = io.BytesIO()
        rows = [row | {key: values[0] for key, values in change.items()} for row in table.to_pylist()]
        pq.write_table(pa.Table.from_pylist(rows, schema=schemas.REJECTS), sink, store_schema=False)
        folder.forge(name, sink.getvalue())
        expect(folder, f"{name}: {words}")


def test_forged_statistics_are_found(folder):
    name = folder.entry.statistics.file
    statistics = Statistics.from_bytes((folder.path / name).read_bytes())
    statistics.token_counts[7] += 1
    folder.forge(name, statistics.to_bytes())
    expect(folder, "sum of the tokens' counts", "vocab/token_counts.parquet: ")
    folder.set_entry(n_words=99)
    expect(folder, "manifest.json: totals.n_words: 34 there, 116 now")
    folder.forge(name, b"nothing")
    expect(folder, f"{name}: not an Arrow file of statistics")


def test_forged_counts_and_summaries_are_found(folder):
    table = pq.read_table(folder.path / "vocab/token_counts.parquet")
    counts = table.column("count").to_pylist()
    counts[7] += 1
    sink = io.BytesIO()
    pq.write_table(table.set_column(2, table.schema.field(2), pa.array(counts)), sink)
    folder.forge("vocab/token_counts.parquet", sink.getvalue())
    expect(folder, "vocab/token_counts.parquet: ")
    kinds = ["ordinary" if kind == "unreachable" else kind for kind in table.column("kind").to_pylist()]
    assert kinds != table.column("kind").to_pylist()
    sink = io.BytesIO()
    pq.write_table(table.set_column(3, table.schema.field(3), pa.array(kinds)), sink)
    folder.forge("vocab/token_counts.parquet", sink.getvalue())
    expect(folder, "vocab/token_counts.parquet: has {'id': ", "'kind': 'ordinary'}, the vocabulary says {'id': ")
    stats = json.loads((folder.path / "stats.json").read_text())
    sink = io.BytesIO()
    pq.write_table(table, sink)
    folder.forge("vocab/token_counts.parquet", sink.getvalue())
    folder.forge("stats.json", ledger.to_json(stats | {"tokens_per_word": 1.0}))
    expect(folder, "stats.json: not the summary of the splits' statistics")


def exchange_lengths(rows):
    rows[0]["n_tokens"], rows[1]["n_tokens"] = rows[1]["n_tokens"], rows[0]["n_tokens"]


def change_columns(rows):
    rows[0]["n_tokens"] += 1
    for row in rows[2:]:
        row["n_oov"] += 1


OTHER = Tokenizer.for_bert(["[UNK]", "x"])


def as_another_tokenizer(folder):
    folder.tokenizer = OTHER
    folder.forge_shard(lambda rows: None)


def change_job(folder, old, new):
    path = folder.path / "_ledger/job.json"
    data = path.read_bytes()
    assert old in data
    path.write_bytes(data.replace(old, new))


SHARD = "tokens-00000-of-00002.parquet"
LIES = [
    (lambda f: f.set_entry(n_records=99), "records read 99 != documents + rejected + filtered 5"),
    (lambda f: f.set_entry(tokenizer="x"), "made by tokenizer x, but the manifest's is"),
    (lambda f: f.set_entry(shard=FileRecord(SHARD, 1, "x", 4, 16)), "manifest.json: shards[0] is {"),
    (lambda f: f.set_entry(rejects=None, rejected={}, n_records=4), "manifest.json: rejects[1] is {"),
    (lambda f: f.set_entry(pieces=(dataclasses.replace(f.entry.pieces[0], n_bytes=10_000),)), "bytes read of 10000"),
    (
        lambda f: f.set_manifest(lambda found: found["totals"].update(n_documents=7)),
        "manifest.json: totals.n_documents: 7 there, 8 now",
    ),
    (lambda f: f.set_manifest(lambda found: found["inputs"].append(found["inputs"][0])), "the ledger has None"),
    (lambda f: f.set_manifest(lambda found: found["balance"].pop()), "manifest.json: balance: "),
    (lambda f: change_job(f, b'"line"', b'"file"'), "_ledger/job.json: the record of another job: "),
    (lambda f: change_job(f, b'"line"', b"line"), "cannot be read as TokenMill's record of a job"),
    (lambda f: f.forge(f.entry.statistics.file, Statistics(7, 1).to_bytes()), ".arrow: 7 counts for "),
    (lambda f: f.forge("vocab/tokenizer.json", OTHER.to_str().encode()), "vocab/tokenizer.json: its digest is"),
    (lambda f: f.forge("vocab/tokenizer.json", b"{}"), "vocab/tokenizer.json: "),
    (lambda f: forge_documents(f, exchange_lengths), f"{SHARD}: row 0 has"),
    (lambda f: f.forge_shard(change_columns), f"{SHARD}: n_tokens of row 0 is 6, counted 5"),
    (lambda f: f.forge_shard(change_columns), f"{SHARD}: n_oov of row 2 is 3, counted 2, and in 1 more"),
    (as_another_tokenizer, f"{SHARD}: made by tokenizer {OTHER.digest}"),
]


@pytest.mark.parametrize(("lie", "words"), LIES)
def test_a_lie_is_found(folder, lie, words):
    lie(folder)
    expect(folder, words)


@pytest.mark.parametrize(
    ("keys", "value"),
    [
        (("versions", "tokenmill"), "9.9"),
        (("unicode", "categories"), "9.9"),
        (("config", "input", "text_field"), "body"),
        (("config", "output", "row_group_tokens"), 1),
        (("job_digest",), "0" * 64),
        (("tokenizer", "special_ids"), {}),
        (("tokenizer", "token_dtype"), "int64"),
        (("fields",), {"lang": "string"}),
        (("a key that nobody knows",), 1),
    ],
)
def test_whatever_is_changed_in_the_manifest_is_found(folder, keys, value, capsys):
    path = folder.path / "manifest.json"
    found = json.loads(path.read_text())
    *outer, last = keys
    section = found
    for key in outer:
        section = section[key]
    assert section.get(last) != value
    section[last] = value
    path.write_bytes(ledger.to_json(found))
    expect(folder, "manifest.json: changed since the job wrote it: its digest is")
    del found["digest"]  # now it is one of an earlier version, and `verify` says what that does not prove
    path.write_bytes(ledger.to_json(found))
    if outer[:1] in (["versions"], ["config"]):
        assert cli.main(["verify", str(folder.path)]) == 0
        assert ": proven, but for config and versions: manifests of earlier versions of Toke" in capsys.readouterr().out


def test_forged_inputs_are_found(folder):
    def change(found):
        found["inputs"][0]["sha256"] = "0" * 64
        found["inputs"][1]["read"]["n_documents"] += 1

    folder.set_manifest(change)
    first, second = folder.problems()
    assert first.startswith("manifest.json: inputs[0] is {")
    assert "0" * 64 in first
    assert second.startswith("manifest.json: inputs[1] is {")


@pytest.mark.parametrize(
    "name",
    [
        "tokens-00000-of-00003.parquet",
        "tokens-00000-of-00002.tfrecord",
        "rejected/rejects-00000-of-00003.parquet",
        f"_ledger/{'f' * 16}.json",
    ],
)
def test_files_that_lie_among_the_results_are_found(folder, name):
    (folder.path / name).write_text("")
    (folder.path / "notes.txt").write_text("")
    assert folder.problems() == [f"{name}: is among the results, but the manifest does not list it"]


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"format_version": 2}', b'{"format_version": 2, "files": [3]}'])
def test_a_manifest_of_something_else_is_a_problem(folder, data):
    (folder.path / "manifest.json").write_bytes(data)
    (problem,) = folder.problems()
    assert "manifest.json" in problem


def test_a_job_without_shards_is_proven_by_its_files(tmp_path):
    output, job = str(tmp_path), Job({"job": "count", "config": {}, "tokenizer": None, "unicode": {}, "versions": {}})
    folders.prepare_output(output, job, "new")
    (tmp_path / "counts").mkdir()
    (tmp_path / "counts" / "counts.json").write_text("{}")
    files = [ledger.describe(output, "counts/counts.json")]
    listed = lists.Lists(output)
    folders.publish(
        output, job, manifest.build(job, manifest.sums(JobBooks(listed.take)), listed.finish(), files=files)
    )
    report = verify.verify(output)
    assert (report.is_proven, report.n_files, report.n_bytes) == (True, 1, 2)
    (tmp_path / "counts" / "counts.json").write_text("[]")
    (problem,) = verify.verify(output).problems
    assert problem.startswith("counts/counts.json: sha256")


def test_verifying_writes_nothing(folder):
    before = {path: path.stat().st_mtime_ns for path in Path(folder.path).rglob("*")}
    verify.verify(str(folder.path))
    assert {path: path.stat().st_mtime_ns for path in Path(folder.path).rglob("*")} == before
