# SPDX-License-Identifier: Apache-2.0
"""What decides whether an output folder is of the same job, and the record of it."""

import tomllib

import pytest

from tests.finished_splits import JOB, config_of
from tokenmill.pipeline import VERSION
from tokenmill.pipeline.books.job_record import Job
from tokenmill.pipeline.config.tokenizer import CountsConfig


def test_version_is_that_of_the_project(repository):
    project = tomllib.loads((repository / "pyproject.toml").read_text())["project"]
    assert project["version"] == VERSION


@pytest.mark.parametrize(
    "sections",
    [
        {"input": {"paths": ["/elsewhere/b/*.jsonl", "c"]}},
        {"output": {"path": "s3://b/o"}},
        {"tokenizer": {"file": "x"}},
    ],
)
def test_a_job_does_not_depend_on_places(sections):
    assert Job.of("tokenize", config_of(**sections), "digest").digest == JOB.digest


@pytest.mark.parametrize(
    "sections",
    [
        {"input": {"text_field": "body"}},
        {"input": {"split_bytes": 7}},
        {"output": {"format": "tfrecord"}},
        {"output": {"row_group_tokens": 7}},
        {"tokenizer": {"add_special_tokens": True}},
        {"tokenizer": {"truncation": {"max_length": 7}}},
    ],
)
def test_a_job_depends_on_all_else(sections):
    assert Job.of("tokenize", config_of(**sections), "digest").digest != JOB.digest
    assert Job.of("run", config_of(), "digest").digest != JOB.digest
    assert Job.of("tokenize", config_of(), "other").digest != JOB.digest


def test_a_job_depends_on_the_order_of_sources():
    sources = {"a": "a*", "other": "*"}
    counts = (CountsConfig(by=["source"], sources=each) for each in (sources, dict(reversed(sources.items()))))
    config, turned = (config_of().model_copy(update={"counts": each}) for each in counts)
    assert Job.of("count", config, None).digest != Job.of("count", turned, None).digest


def test_the_library_that_compresses_counts_only_where_it_is_used():
    def versions(**output):
        return Job.of("tokenize", config_of(output=output), None).parts["versions"]

    assert set(versions()) == {"pyarrow", "tokenmill"}
    assert set(versions(format="tfrecord", compression="gzip")) == {"pyarrow", "tokenmill", "zlib"}
