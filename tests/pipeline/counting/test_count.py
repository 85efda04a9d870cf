# SPDX-License-Identifier: Apache-2.0
"""Counting: every word once, in one partition, however the input is cut, however often a step is repeated."""

import dataclasses
import itertools
import json
import shutil
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenmill.pipeline import schemas
from tokenmill.pipeline.books import lists
from tokenmill.pipeline.books.job_books import PlannedSplits
from tokenmill.pipeline.books.ledger import runs_of
from tokenmill.pipeline.books.quantities import BooksError
from tokenmill.pipeline.config.input import InputConfig
from tokenmill.pipeline.config.tokenizer import CountsConfig
from tokenmill.pipeline.counting import count, counts
from tokenmill.pipeline.counting.count import Counting, check_sources, count_split
from tokenmill.pipeline.counting.counts import open_counts
from tokenmill.pipeline.counting.finishing import (
    find_bound,
    finish_counts,
    histogram_partition,
    is_finished,
    merge_partition,
)
from tokenmill.pipeline.counting.partitions import (
    N_PARTITIONS,
    partition_of,
    partitions_of,
)
from tokenmill.pipeline.input.splitting import plan_splits
from tokenmill.pipeline.output.staging import Staging
from tokenmill.tokenizer import Tokenizer, add_word_counts

TOKENIZER = Tokenizer.untrained_bert()
WORDS = ["mill", "token", "naïve", "字", "a" * 200, "x1", "é"]


def write_corpus(folder, n_documents=60):
    folder.mkdir(parents=True, exist_ok=True)
    expected: Counter[bytes] = Counter()
    with (folder / "a.jsonl").open("w", encoding="utf-8") as file:
        for i in range(n_documents):
            words = [WORDS[(i * 7 + j * j) % len(WORDS)] for j in range(i % 9)]
            file.write(json.dumps({"text": " ".join(words)}, ensure_ascii=False) + "\n")
            expected.update(w.replace("ï", "i").replace("é", "e").encode() for w in words)
        file.write('{"text": null}\n\nno json\n')
    return InputConfig(paths=[str(folder / "*.jsonl")], split_bytes=700), dict(expected)


def counting(config, output, splits, **options):
    plan = f"{PlannedSplits(splits).digest:016x}"
    return Counting(config, str(output), TOKENIZER.to_str(), CountsConfig(**options), plan=plan)


def finish(of, splits):
    finish_counts(of, PlannedSplits(splits), splits)


def count_all(config, output, **options):
    splits = plan_splits(config, "salt")
    of = counting(config, output, splits, **options)
    runs = [runs_of(count_split(split, of, TOKENIZER)) for split in splits]
    histograms = []
    if of.counts.max_words is not None:
        histograms = [histogram_partition(p, runs, of) for p in range(N_PARTITIONS)]
    bound = find_bound(histograms, of.counts)
    partitions = [merge_partition(p, runs, of, bound) for p in range(N_PARTITIONS)]
    finish(of, splits)
    return of, splits, partitions


def as_dict(table: pa.Table) -> dict[bytes, int]:
    assert table.schema.equals(schemas.WORD_COUNTS)
    return dict(zip(table["word"].to_pylist(), table["count"].to_pylist(), strict=True))


def artifact(output) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (output / "counts").iterdir()}


def test_finished_counts_are_known_again(tmp_path):
    config, _ = write_corpus(tmp_path / "in")
    output = tmp_path / "out"
    splits = plan_splits(config, "salt")
    assert not is_finished(counting(config, output, splits))
    of, splits, partitions = count_all(config, output)
    shutil.rmtree(output / "_counts/splits")  # as at the end of a job
    assert is_finished(of)
    assert is_finished(counting(config, output, splits[::-1]))
    assert not is_finished(counting(config, output, splits[1:]))
    assert not is_finished(counting(config, output, splits, min_count=2))
    (output / partitions[3].shard.file).unlink()
    assert not is_finished(of)


def test_many_input_files_are_listed_in_a_file(tmp_path, monkeypatch):
    """A list that is in counts.json, as of few files, is read, too."""
    config = write_corpus(tmp_path / "in")[0].model_copy(update={"on_damage": "warn"})
    for i in range(9):
        (tmp_path / f"in/b{i}.jsonl").write_text('{"text": "mill"}\n' + "no json\n" * (i % 2))
    short, long = str(tmp_path / "short"), str(tmp_path / "long")
    count_all(config, short)
    monkeypatch.setattr(lists, "MOST_RECORDS", 0)
    monkeypatch.setattr(lists, "ROWS", 4)
    of, splits, _ = count_all(config, long)
    found = [artifact(tmp_path / name) for name in ("short", "long")]
    reports = [json.loads(each.pop("counts.json")) for each in found]
    assert found[1].pop("inputs.parquet")
    assert found[0] == found[1]
    assert reports[1].pop("inputs")["file"] == "counts/inputs.parquet"
    expected = reports[0].pop("inputs")
    for output in (short, long):
        assert list(counts.inputs_of(output, counts.read_report(output))) == expected
    assert [each["name"] for each in expected] == ["a.jsonl", *(f"b{i}.jsonl" for i in range(9))]
    assert [each["read"]["rejected"] for each in expected if "read" in each] == [
        {"not_json": 1, "null_text": 1}, *[{"not_json": 1}] * 4
    ]  # fmt: skip
    assert reports[0] == reports[1]
    before = artifact(tmp_path / "long")
    finish(of, splits)
    assert artifact(tmp_path / "long") == before
    for output in (short, long):
        open_counts(output).check_files()
    (tmp_path / "long/counts/inputs.parquet").write_bytes(b"damaged")
    with pytest.raises(ValueError, match=r"inputs\.parquet"):
        open_counts(long).check_files()


def test_a_lost_word_fails_the_job(tmp_path):
    config, _ = write_corpus(tmp_path / "in")
    output = tmp_path / "out"
    of, splits, _ = count_all(config, str(output))
    # One split missing where partitions were merged.
    runs = [runs_of(count_split(split, of, TOKENIZER)) for split in splits]
    short = dataclasses.replace(of, plan="merged anew")
    for p in range(N_PARTITIONS):
        merge_partition(p, runs[1:], short)
    with pytest.raises(BooksError, match=r"counts: the words of all splits are \d+, the sum of all counts is \d+"):
        finish(short, splits)
    with pytest.raises(BooksError, match="partition 0 of the word counts has not been merged"):
        finish(dataclasses.replace(of, plan="not merged"), splits)
    path = output / "_counts/splits/_ledger" / f"{splits[0].id}.json"
    entry = json.loads(path.read_text())
    entry["counts"][""]["n_records"] = 1
    path.write_text(json.dumps(entry))
    with pytest.raises(BooksError, match="counts: records read"):
        finish(of, splits)
    entry["pieces"][0]["version"] = "new"
    path.write_text(json.dumps(entry))
    with pytest.raises(BooksError, match="are not those of the plan"):
        finish(of, splits)
    path.unlink()
    with pytest.raises(BooksError, match=f"the words of split {splits[0].id} have not been counted"):
        finish(of, splits)


def test_key_follows_what_decides_a_count():
    config = InputConfig(paths=["a"])

    def key(config=config, tokenizer=TOKENIZER, **options):
        return Counting(config, "out", tokenizer.to_str(), CountsConfig(**options)).key

    assert key() == key(InputConfig(paths=["b"], split_bytes=1))
    assert key() != key(InputConfig(paths=["a"], text_field="body"))
    assert key() != key(InputConfig(paths=["a"], sample=0.6))
    assert key() != key(tokenizer=Tokenizer.untrained_bert(lowercase=False))
    sources = {"a": "a*", "other": "*"}
    turned = dict(reversed(sources.items()))
    assert key(by=["source"], sources=sources) != key(by=["source"], sources=turned)


def test_partitions_stay_as_they_are_across_versions():
    words = pa.array([b"", b"a", b"the", "字".encode(), b"x" * 31, b"x" * 32, b"x" * 33], pa.large_binary())
    assert partition_of(words, 16).tolist() == [0, 6, 12, 8, 11, 0, 15]


@given(st.lists(st.dictionaries(st.binary(max_size=6), st.integers(1, 9)), max_size=4), st.integers(1, 4))
def test_partitioning_and_adding_up_lose_nothing(parts, n_partitions):
    expected: Counter[bytes] = Counter()
    tables = [schemas.WORD_COUNTS.empty_table()]
    for part in parts:
        expected.update(part)
        arrays = [pa.array(sorted(part), pa.large_binary()), pa.array([part[w] for w in sorted(part)], pa.int64())]
        whole = pa.table(arrays, schema=schemas.WORD_COUNTS)
        batches = list(partitions_of(whole, n_partitions))
        assert len(batches) == n_partitions
        tables += [pa.Table.from_batches([batch]) for batch in batches]
    merged = add_word_counts(tables)
    assert as_dict(merged) == dict(expected)
    assert merged["word"].to_pylist() == sorted(expected)


# Groups, pruning, characters: what else the artifact holds.


def write_sources(folder) -> tuple[InputConfig, dict[str, Counter[str]]]:
    texts = {"en/a.txt": "the mill\nthe mill grinds\n", "en/b.txt": "the end\n", "zh/c.txt": "字 字 the\n"}
    counts: dict[str, Counter[str]] = {}
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
        counts[name] = Counter(text.split())
    return InputConfig(paths=[str(folder / "**/*.txt")]), counts


def test_every_file_needs_a_source(tmp_path):
    config, _ = write_sources(tmp_path / "in")
    splits = plan_splits(config, "salt")
    check_sources(splits, CountsConfig(by=["source"]))
    with pytest.raises(ValueError, match=r"counts\.sources: the file 'zh/c\.txt' matches no pattern; add one for it"):
        check_sources(splits, CountsConfig(by=["source"], sources={"a": "en/*"}))


def test_too_many_sources_are_refused(tmp_path, monkeypatch):
    config, _ = write_sources(tmp_path / "in")
    monkeypatch.setattr(count, "MAX_GROUPS", 2)
    with pytest.raises(ValueError, match=r"counts\.by: the input has 3 sources, at most 2 are allowed"):
        check_sources(plan_splits(config, "salt"), CountsConfig(by=["source"]))


def test_words_left_out_are_reported(tmp_path):
    config, expected = write_corpus(tmp_path / "in")
    n_words = sum(expected.values())
    ordered = sorted(expected.values(), reverse=True)
    count_all(config, str(tmp_path / "all"))
    for options, bound in (
        ({"min_count": ordered[2]}, ordered[2] - 1),
        ({"max_words": 3}, ordered[3]),
        ({"max_words": 3, "min_count": ordered[1]}, ordered[1] - 1),
        ({"max_words": 100}, 0),
    ):
        output = tmp_path / f"{options}"
        count_all(config, str(output), **options)
        kept = {word: n for word, n in expected.items() if n > bound}
        assert as_dict(open_counts(str(output)).load()) == kept
        report = json.loads((output / "counts/counts.json").read_text())
        n_left_out = n_words - sum(kept.values())
        assert report["pruned"] == {
            "bound": bound, "n_words": len(expected) - len(kept), "n_occurrences": n_left_out
        }  # fmt: skip
        assert report["totals"]["n_words"] == n_words
        # Characters are counted before anything is left out.
        assert np.array_equal(open_counts(str(output)).alphabet(), open_counts(str(tmp_path / "all")).alphabet())


@given(st.lists(st.integers(1, 6), max_size=20), st.integers(1, 20), st.integers(1, 4), st.integers(1, 5))
def test_bound_is_the_smallest_that_keeps_no_more_words(counts_, max_words, min_count, n_parts):
    parts = [Counter(counts_[i::n_parts]) for i in range(n_parts)]
    histograms = [sorted((c, n) for c, n in part.items() if c >= min_count) for part in parts]
    bound = find_bound(histograms, CountsConfig(max_words=max_words, min_count=min_count))
    fitting = [b for b in range(min_count - 1, 8) if sum(c > b for c in counts_) <= max_words]
    assert bound == fitting[0]


@given(st.lists(st.integers(0, 40), max_size=30), st.integers(1, 9), st.data())
def test_files_are_the_same_whatever_blocks_words_come_in(lengths, group_rows, data):
    words = sorted({b"%03d" % i + b"x" * length for i, length in enumerate(lengths)})
    columns = [pa.array(words, pa.large_binary()), pa.array(range(1, len(words) + 1), pa.int64())]
    table = pa.table(columns, schema=schemas.WORD_COUNTS)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(words)), max_size=5)))
    written = []
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        patch.setattr(counts, "ROW_GROUP_ROWS", group_rows)
        patch.setattr(counts, "ROW_GROUP_BYTES", 100)
        for bounds in ([0, len(words)], [0, *cuts, len(words)]):
            with Staging(folder, "a") as staging:
                file = staging.create("a.parquet")
                writer = counts.PartitionWriter(file, ["source"], bound=2)
                writer.add_group(("s",), (table.slice(a, b - a) for a, b in itertools.pairwise(bounds)))
                writer.finish()
                written.append(Path(file.path).read_bytes())
    assert written[0] == written[1]
    read = pq.read_table(pa.BufferReader(written[0]))
    assert read["word"].to_pylist() == [word.decode() for word in words[2:]]
    assert read["source"].to_pylist() == ["s"] * len(words[2:])


def test_what_is_no_artifact_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"holds no finished word counts: there is no counts/counts\.json in it"):
        open_counts(str(tmp_path))
    config, _ = write_corpus(tmp_path / "in")
    count_all(config, str(tmp_path / "out"))
    assert open_counts(str(tmp_path / "out/counts/")).output == str(tmp_path / "out")
    report = tmp_path / "out/counts/counts.json"
    text = report.read_text()
    report.write_text(text.replace('"format_version": 2', '"format_version": 1'))
    with pytest.raises(ValueError, match="has format 1, but this TokenMill reads 2: use the"):
        open_counts(str(tmp_path / "out"))
    report.write_text("{")
    with pytest.raises(ValueError, match="is not as TokenMill writes it"):
        open_counts(str(tmp_path / "out"))
    report.write_text(text)
    path = tmp_path / "out/counts/counts-00003-of-00016.parquet"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match=r"holds counts that are damaged: counts/counts-00003-of-00016\.parquet"):
        open_counts(str(tmp_path / "out")).check_files()
    path.unlink()
    with pytest.raises(ValueError, match=r"incomplete counts: counts/counts-00003-of-00016\.parquet is missing"):
        open_counts(str(tmp_path / "out"))


def test_a_committed_split_is_not_read_again(tmp_path, monkeypatch):
    config, _ = write_corpus(tmp_path / "in")
    of, splits, _ = count_all(config, str(tmp_path / "out"))

    def refuse(*_):
        raise AssertionError("read again")

    monkeypatch.setattr(count, "read_split", refuse)
    entries = [count_split(split, of, TOKENIZER) for split in splits]
    lowercase = dataclasses.replace(of, tokenizer=Tokenizer.untrained_bert(lowercase=False).to_str())
    changed = dataclasses.replace(
        splits[0], pieces=tuple(dataclasses.replace(p, version="new") for p in splits[0].pieces)
    )
    for split, other in ((splits[0], lowercase), (changed, of)):
        with pytest.raises(AssertionError, match="read again"):
            count_split(split, other, TOKENIZER)
    folder = tmp_path / "out/_counts/splits"
    (folder / entries[1].shard.file).write_bytes(b"damaged")
    (folder / "_ledger" / f"{splits[2].id}.json").write_bytes(b"{}")
    for split in splits[1:3]:
        with pytest.raises(AssertionError, match="read again"):
            count_split(split, of, TOKENIZER)
