# SPDX-License-Identifier: Apache-2.0
"""The steps between reader and writer, one by one, and a step of one's own among them."""

import dataclasses

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tests.plain_job import PlainJob
from tokenmill.pipeline.books.quantities import SAMPLE
from tokenmill.pipeline.input.rejects import REASONS
from tokenmill.pipeline.jobs import planning
from tokenmill.pipeline.jobs.same_job import check_same_job
from tokenmill.pipeline.proving.from_input import verify_deep
from tokenmill.pipeline.statistics import words
from tokenmill.pipeline.tokenizing import pages, steps
from tokenmill.pipeline.tokenizing.encoders import Rejected
from tokenmill.pipeline.tokenizing.steps import Count, Encode, Normalize

TEXTS = ["the mill", "", "tokens of the mill", "a", "the text 7", "mill mill mill"]


def pages_of(job):
    """The works and the pages of a job's splits."""
    for split in job.plan.splits:
        work = pages.Work(split, job.config, job.tokenizer, len(job.plan.splits))
        yield work, [*pages.read_pages([work])]


def test_each_step_adds_its_part(tmp_path, tiny_vocab_file):
    job = PlainJob(tmp_path, TEXTS, tiny_vocab_file)
    for work, (page, last) in pages_of(job):
        normalize, encode, count = Normalize(work), Encode(work), Count(work)
        texts = normalize(page)
        assert texts.texts.column.to_pylist() == page.batch.documents.column("text").to_pylist()
        encoded = encode(texts)
        assert encoded.texts is None
        expected = [job.tokenizer.encode(text, add_special_tokens=False).ids for text in texts.texts.column.to_pylist()]
        assert encoded.encoded.ids.to_pylist() == expected
        counted = count(encoded)
        assert counted.encoded is None
        assert counted.rows.column("input_ids").to_pylist() == expected
        assert counted.n_documents == len(expected)
        assert counted.n_bytes > texts.n_bytes > 0
        assert page.texts is None  # no step has changed the page that it was given
        assert count(encode(normalize(last))).books.statistics["n_tokens"] == sum(map(len, expected))
        gone = page.batch.documents
        (rejects,) = steps.reject(page, work, [Rejected(gone, "too_large")]).rejects
        assert {*rejects.column("detail").to_pylist()} == {REASONS["too_large"]}
        with pytest.raises(AssertionError, match="has_word"):
            steps.reject(page, work, [Rejected(gone, "has_word", pa.array(["it has"] * gone.num_rows))])
        with pytest.raises(AssertionError, match=SAMPLE):  # which is not a step's: parts would not agree
            steps.leave_out(page, work, gone, SAMPLE)


class Shout:
    """A step of somebody else: texts in upper case, and none of one letter."""

    def __init__(self, work):
        self._work = work

    def __call__(self, page):
        if page.texts is None:
            return page
        texts = page.texts._replace(text=pc.utf8_upper(page.texts.column))
        is_one = pc.equal(pc.utf8_length(texts.column), 1).to_numpy(zero_copy_only=False)
        gone = Rejected(
            texts.filter(is_one).documents, "not_string", pa.array(["one letter"] * is_one.sum(), pa.string())
        )
        return steps.reject(dataclasses.replace(page, texts=texts.filter(~is_one)), self._work, [gone])


FIM = {"level": "token", "rate": 1, "prefix": "[CLS]", "suffix": "[SEP]", "middle": "[MASK]"}


@pytest.mark.parametrize("output", [{}, {"fim": FIM}], ids=["plain", "fim"])
def test_a_step_of_ones_own(output, tmp_path, tiny_vocab_file, monkeypatch):
    monkeypatch.setattr(steps, "STEPS", (Normalize, Shout, Encode, Count))
    tokenizer = {"lowercase": False}
    job = PlainJob(tmp_path, TEXTS, tiny_vocab_file, tokenizer=tokenizer, output=dict(output)).run()
    spans = [{"token": "[URL]", "find": "url"}]
    with pytest.raises(ValueError, match="a step has replaced texts"):
        PlainJob(tmp_path, TEXTS, tiny_vocab_file, "spans", tokenizer=tokenizer, spans=spans).run()
    counting = planning.plan_job("count", job.config).job.digest
    monkeypatch.undo()
    (tmp_path / "other").mkdir()
    loud = [text.upper() for text in TEXTS]
    other = PlainJob(tmp_path / "other", loud, tiny_vocab_file, tokenizer=tokenizer, output=dict(output)).run()
    expected = [row["input_ids"] for row, text in zip(other.rows(), loud, strict=True) if len(text) != 1]
    assert [row["input_ids"] for row in job.rows()] == expected
    assert job.json("manifest.json")["totals"]["rejected"] == {"not_string": 1}
    with pytest.raises(ValueError, match="differs in steps: 'Normalize > Shout > Encode > Count' there, "):
        planning.prepare(planning.plan_job("tokenize", job.config), "resume")
    with pytest.raises(ValueError, match="differs from the config in steps"):
        check_same_job(str(job.output), job.config)
    (problem,) = verify_deep(str(job.output)).problems
    assert problem.startswith("cannot tokenize again: steps: 'Normalize > Shout > Encode > Count' there, ")
    assert planning.plan_job("count", job.config).job.digest == counting


class LeaveOutShort:
    """A step that leaves out texts of fewer than three words."""

    def __init__(self, work):
        self._work = work

    def __call__(self, page):
        if page.texts is None:
            return page
        is_short = words.count(page.texts.column)[1] < 3
        steps.leave_out(page, self._work, page.texts.filter(is_short).documents)
        return dataclasses.replace(page, texts=page.texts.filter(~is_short))


def test_what_a_step_leaves_out_is_in_no_statistics(tmp_path, tiny_vocab_file, monkeypatch):
    texts = ["the\u2014mill", "the mill \u2014 mill mill", "mill", "the \u2014 the"]
    options = {"normalize": ["punctuation"], "languages": {"rules": "builtin"}}
    monkeypatch.setattr(steps, "STEPS", (Normalize, LeaveOutShort, Encode, Count))
    job = PlainJob(tmp_path, texts, tiny_vocab_file, **options).run()
    monkeypatch.undo()
    (tmp_path / "other").mkdir()
    other = PlainJob(tmp_path / "other", [texts[1], texts[3]], tiny_vocab_file, **options).run()
    assert [row["input_ids"] for row in job.rows()] == [row["input_ids"] for row in other.rows()]
    assert job.json("manifest.json")["totals"]["filtered"] == {"step": 2}
    stats, expected = job.json("stats.json"), other.json("stats.json")
    assert stats["text"] == expected["text"]
    assert sum(each["filtered"] for each in stats["languages"]["by_code"].values()) == 2
