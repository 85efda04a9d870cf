# SPDX-License-Identifier: Apache-2.0
"""Documents that a tokenizer gives up: found among others, rejected alone, with the books of an honest job."""

import json
from pathlib import Path

import apache_beam as beam
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenmill.pipeline.books import manifest
from tokenmill.pipeline.config.job import Config
from tokenmill.pipeline.counting.counts import open_counts
from tokenmill.pipeline.input import given_up
from tokenmill.pipeline.isolating import isolate
from tokenmill.pipeline.jobs.planning import plan_job, prepare
from tokenmill.pipeline.proving.verify import verify
from tokenmill.pipeline.running.runners import choose_runner, open_runner
from tokenmill.pipeline.transforms import jobs
from tokenmill.tokenizer import Tokenizer
from tokenmill.tokenizer.models import BPE, Unigram, WordPiece
from tokenmill.tokenizer.pre_tokenizers import WhitespaceSplit, patterns

STUCK = "x" * 60
TEXTS = ["the mill", STUCK, "[SEP] grinds", "text", STUCK + " text", "", "mill mill"]


@given(reasons=st.lists(st.sampled_from(["", "", "", *given_up.OF_TOKENIZER]), min_size=1, max_size=40))
def test_each_document_is_found_with_its_reason(reasons):
    documents = pa.record_batch([pa.array(range(len(reasons)))], names=["n"])
    errors = dict(zip(given_up.OF_TOKENIZER, given_up.GAVE_UP, strict=True))
    looked_at = []

    def work(part):
        looked_at.append(part.num_rows)
        for n in part.column("n").to_pylist():
            if reasons[n]:
                raise errors[reasons[n]]

    assert given_up.find_given_up(work, documents).tolist() == reasons
    n_bad = sum(map(bool, reasons))
    assert len(looked_at) <= 2 * max(1, n_bad) * len(reasons).bit_length() + 1


@pytest.fixture
def tokenizer_file(tiny_vocab_file: Path, tmp_path: Path) -> Path:
    """A tokenizer with a pattern that backtracks for ever on a long run of x."""
    tokenizer = json.loads(Tokenizer.from_file(str(tiny_vocab_file)).to_str())
    slow = {"type": "Split", "pattern": {"Regex": "(?:(?:x|xx)+)+(?=yz)"}, "behavior": "Isolated", "invert": False}
    tokenizer["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [slow, {"type": "BertPreTokenizer"}]}
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(tokenizer), encoding="utf-8")
    return path


@pytest.fixture
def make(tokenizer_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(patterns, "MATCH_SECONDS", 0.05)
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    lines = [json.dumps({"text": text}) + "\n" for text in TEXTS]
    (corpus / "a.jsonl").write_text("".join(lines), encoding="utf-8")

    def build(output: str, **sections: object) -> Config:
        return Config.model_validate(
            {
                "input": {"paths": [str(corpus / "*.jsonl")], "on_damage": "warn"},
                "tokenizer": {"file": str(tokenizer_file)},
                "output": {"path": str(tmp_path / output)},
                **sections,
            }
        )

    return build


def execute(name: str, config: Config) -> dict:
    plan = plan_job(name, config)
    prepare(plan, "new")
    with open_runner(choose_runner([], mode="inline")) as (runner, options):
        pipeline = beam.Pipeline(runner=runner, options=options)
        jobs.build(pipeline, plan)
        pipeline.run()
    assert verify(config.output.path).problems == []
    return manifest.read(config.output.path)


@pytest.mark.parametrize(
    "sections", [{}, {"normalize": ["nfc"]}, {"spans": [{"token": "[Z]", "literal": "zz"}]}], ids=str
)
def test_a_job_rejects_them_and_keeps_the_others(make, sections):
    config = make("out", **sections)
    found = execute("tokenize", config)["totals"]
    assert (found["n_records"], found["n_documents"]) == (7, 5)
    assert found["rejected"] == {given_up.TIMEOUT: 2}
    (path,) = (Path(config.output.path) / "rejected").iterdir()
    rejects = pq.read_table(path).to_pylist()
    assert [row["sample"].decode() for row in rejects] == [TEXTS[1], TEXTS[4]]
    assert rejects[0]["detail"] == "a regular expression of the tokenizer did not finish in its time"
    # Nothing of the failed attempts is left in the statistics.
    stats = json.loads((Path(config.output.path) / "stats.json").read_text(encoding="utf-8"))
    honest = make("honest", **sections)
    lines = [json.dumps({"text": text}) + "\n" for text in TEXTS if STUCK not in text]
    Path(honest.input.paths[0]).parent.joinpath("a.jsonl").write_text("".join(lines), encoding="utf-8")
    execute("tokenize", honest)
    expected = json.loads((Path(honest.output.path) / "stats.json").read_text(encoding="utf-8"))
    assert stats == expected


def test_counting_rejects_them_too(make):
    config = make("counts")
    execute("count", config)
    counts = json.loads((Path(config.output.path) / "counts/counts.json").read_text(encoding="utf-8"))
    assert counts["totals"]["rejected"] == {given_up.TIMEOUT: 2}
    words = open_counts(config.output.path).load().to_pylist()
    assert {row["word"].decode(): row["count"] for row in words}["mill"] == 3
    assert sum(row["count"] for row in words) == counts["totals"]["n_words"]


@pytest.mark.parametrize("kind", ["Unigram", "BPE", "WordPiece"])
def test_characters_that_are_no_token_and_cannot_be_unknown(make, tokenizer_file, kind):
    pieces = sorted({character for text in TEXTS for character in text} - {"x"})
    vocab = {token: i for i, token in enumerate([*pieces, *(f"##{piece}" for piece in pieces)])}
    model = {
        "Unigram": Unigram([(piece, -1.0) for piece in pieces]),
        "BPE": BPE(vocab, [], unk_token="no entry"),
        "WordPiece": WordPiece(vocab, unk_token="no entry", max_input_chars_per_word=10**6),
    }[kind]
    tokenizer_file.write_text(Tokenizer(model=model, pre_tokenizer=WhitespaceSplit()).to_str(), encoding="utf-8")
    config = make("out")
    found = execute("tokenize", config)["totals"]
    assert found["rejected"] == {given_up.UNKNOWN: 3}
    (path,) = (Path(config.output.path) / "rejected").iterdir()
    rejects = pq.read_table(path).to_pylist()
    assert [row["sample"].decode() for row in rejects] == [text for text in TEXTS if "x" in text]
    assert rejects[0]["detail"] == "a character is not in the vocabulary, which has no unknown token"


@given(bad=st.sets(st.integers(0, 40)), n=st.integers(0, 40), few=st.integers(1, 5), has_failed=st.booleans())
def test_each_row_is_yielded_once_in_order_and_only_few_with_one_at_fault(bad, n, few, has_failed):
    def work(start, stop):
        asked.append((start, stop))
        if bad & {*range(start, stop)}:
            raise ValueError(start, stop)
        return list(range(start, stop))

    asked = []
    found = list(isolate(work, n, ValueError, few, has_failed))
    assert [row for start, stop, _ in found for row in range(start, stop)] == list(range(n))
    for start, stop, result in found:
        if isinstance(result, ValueError):
            assert stop - start <= few
            assert bad & {*range(start, stop)}
        else:
            assert result == list(range(start, stop))
    assert ((0, n) in asked) == (not has_failed or n <= few)
