# SPDX-License-Identifier: Apache-2.0
"""Steps in Beam YAML, by Beam's own harness, and in MLTransform."""

import json
from pathlib import Path

import apache_beam as beam
import pyarrow.parquet as pq
import pytest
from apache_beam.ml.transforms.base import MLTransform
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.transforms.fully_qualified_named_transform import FullyQualifiedNamedTransform
from apache_beam.yaml import yaml_transform

from tokenmill import ComputeAndApplyTokenizer, Tokenize
from tokenmill.pipeline import rows
from tokenmill.pipeline.rows import yaml_transforms
from tokenmill.pipeline.running.runners import choose_runner, open_runner
from tokenmill.tokenizer import Tokenizer

PROVIDERS = Path(rows.__file__).parent / "tokenmill.yaml"

pytestmark = pytest.mark.filterwarnings("ignore")  # Beam's YAML and pandas warn of one another


def test_json_lines_to_parquet_by_yaml_alone(run_once, tiny_corpus, tiny_vocab, tiny_vocab_file, tmp_path):
    with (tiny_corpus / "b.jsonl").open("a") as file:
        file.write('{"id": "bad", "text": null}\n')
    text = f"""
providers:
  - include: {PROVIDERS}
pipeline:
  transforms:
    - {{type: ReadCorpus, config: {{paths: "{tiny_corpus}/*.jsonl", error_handling: {{output: bad}}}}}}
    - {{type: Tokenize, input: ReadCorpus, config: {{tokenizer: {tiny_vocab_file}, error_handling: {{output: bad}}}}}}
    - {{type: WriteToParquet, input: Tokenize, config: {{path: {tmp_path}/good}}}}
    - {{type: WriteToJson, input: ReadCorpus.bad, config: {{path: {tmp_path}/bad}}}}
    - {{type: WriteToJson, input: Tokenize.bad, config: {{path: {tmp_path}/worse}}}}
    - type: VocabularyStatistics
      input: Tokenize
      config: {{tokenizer: {tiny_vocab_file}, error_handling: {{output: bad, threshold: 0.5}}}}
    - {{type: WriteToJson, name: Told, input: VocabularyStatistics, config: {{path: {tmp_path}/told}}}}
    - {{type: WriteToJson, name: None, input: VocabularyStatistics.bad, config: {{path: {tmp_path}/none}}}}
"""
    with run_once() as pipeline:
        yaml_transform.expand_pipeline(pipeline, text)
    rows = [row for path in tmp_path.glob("good*") for row in pq.ParquetFile(path).read().to_pylist()]
    tokenizer = Tokenizer.for_bert(tiny_vocab)
    assert len(rows) == 7
    assert all(row["input_ids"] == tokenizer.encode(row["text"], add_special_tokens=False).ids for row in rows)
    bad = [json.loads(line) for path in tmp_path.glob("bad*") for line in path.read_text().splitlines()]
    assert [row["msg"].partition(":")[0] for row in bad] == ["null_text"]
    (told,) = (json.loads(line) for path in tmp_path.glob("told*") for line in path.read_text().splitlines())
    assert json.loads(told["statistics_json"])["documents"] == 7


def test_error_handling_names_one_output(tiny_vocab_file):
    with pytest.raises(ValueError, match=r"Tokenize: error_handling .* needs output, the name of the second output"):
        yaml_transforms._step(Tokenize)(tokenizer=str(tiny_vocab_file), error_handling={"threshold": 0.5})


def test_a_vocabulary_computed_in_one_run_and_applied_in_another(run_once, tmp_path):
    folder = str(tmp_path / "artifacts")
    texts = ["the mill grinds", "the mill", "the"]
    operation = ComputeAndApplyTokenizer(["text"], vocab_size=60, min_frequency=1)

    def ids(transform, texts, out):
        with run_once() as pipeline:
            rows = pipeline | beam.Create([beam.Row(id=i, text=text) for i, text in enumerate(texts)]) | transform
            found = rows | beam.Map(lambda row: (row.id, list(row.text)))
            assert_that(found, lambda got: out.write_text(json.dumps(sorted(got))))
        return [ids for _, ids in json.loads(out.read_text())]

    made = ids(MLTransform(write_artifact_location=folder, transforms=[operation]), texts, tmp_path / "made")
    (artifact,) = Path(folder).glob("*/tokenizer.json")
    tokenizer = Tokenizer.from_file(str(artifact))
    assert made == [tokenizer.encode(text, add_special_tokens=False).ids for text in texts]
    applied = ids(MLTransform(read_artifact_location=folder), ["grinds the mills"], tmp_path / "applied")
    assert applied == [tokenizer.encode("grinds the mills", add_special_tokens=False).ids]


def test_other_languages_name_a_step_by_its_full_name(tiny_vocab_file):
    """What Beam's expansion service does for a pipeline in Java or Go."""
    with FullyQualifiedNamedTransform.with_filter("tokenmill.*"):
        step = FullyQualifiedNamedTransform("tokenmill.Tokenize", (str(tiny_vocab_file),), {"max_length": 1})
        with open_runner(choose_runner((), mode="inline")) as (runner, options):
            pipeline = beam.Pipeline(runner=runner, options=options)
            rows = pipeline | beam.Create([beam.Row(text="a mill")]) | step
            assert_that(rows | beam.Map(lambda row: row.input_ids), equal_to([[6]]))
            pipeline.run()


def test_errors_of_ml_transform_have_its_form(tmp_path):
    operation = ComputeAndApplyTokenizer(["text"], vocab_size=60, min_frequency=1)
    elements = [{"text": "the mill"}, {"text": None}]
    with open_runner(choose_runner((), mode="inline")) as (runner, options):
        pipeline = beam.Pipeline(runner=runner, options=options)
        transform = MLTransform(write_artifact_location=str(tmp_path), transforms=[operation])
        good, bad = pipeline | beam.Create(elements) | transform.with_exception_handling()
        assert_that(good | beam.Map(lambda row: len(row["text"])), equal_to([2]), label="Good")
        told = bad | "Told" >> beam.Map(lambda row: (row.element["text"], row.msg))
        assert_that(told, equal_to([(None, "ValueError: the field 'text' is null")]), label="Bad")
        pipeline.run()


def test_ml_transform_heeds_the_threshold(tmp_path):
    """More of the elements fail than may; what a step for many elements cannot do is told where it is made."""
    operation = ComputeAndApplyTokenizer(["text"], vocab_size=60, min_frequency=1)
    transform = MLTransform(write_artifact_location=str(tmp_path), transforms=[operation])
    with open_runner(choose_runner((), mode="inline")) as (runner, options):
        pipeline = beam.Pipeline(runner=runner, options=options)
        rows = pipeline | beam.Create([{"text": "a mill"}, {"text": None}])
        rows | transform.with_exception_handling(threshold=0.1)
        with pytest.raises(Exception, match=r"1 of 2 elements fail, more than the threshold of 0\.1 allows"):
            pipeline.run()
    transform = MLTransform(write_artifact_location=str(tmp_path / "other"), transforms=[operation])
    with pytest.raises(ValueError, match="use_subprocess and timeout are for steps that take one element"):
        beam.Pipeline() | beam.Create([{"text": "a"}]) | transform.with_exception_handling(use_subprocess=True)
