# SPDX-License-Identifier: Apache-2.0
"""Steps that one worker does."""

import apache_beam as beam
from apache_beam.runners.runner import PipelineRunner

from tokenmill.pipeline.transforms.once import with_memory


class DataflowRunner(PipelineRunner):
    pass


class OtherRunner(PipelineRunner):
    pass


def hints(runner):
    pipeline = beam.Pipeline(runner=OtherRunner())  # which checks no options of Google Cloud
    pipeline.runner = runner
    _ = pipeline | beam.Impulse() | "Big" >> with_memory(beam.Map(len), pipeline, "16GB")
    environments = pipeline.to_runner_api().components.environments.values()
    return [value for each in environments for value in each.resource_hints.values()]


def test_only_dataflow_is_asked_for_memory():
    assert hints(DataflowRunner()) == [b"16000000000"]
    assert hints(OtherRunner()) == []
