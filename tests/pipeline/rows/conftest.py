# SPDX-License-Identifier: Apache-2.0
"""Pipelines of a user's own, on the local runner and on Prism."""

import contextlib

import apache_beam as beam
import pytest

from tokenmill.pipeline.running.runners import choose_runner, open_runner
from tokenmill.tokenizer import Tokenizer

PRISM = pytest.param("prism", marks=pytest.mark.prism)


def _opener(request):
    args, local = (), {}
    if request.param == "prism":
        args = (*request.getfixturevalue("prism"), "--environment_type=LOOPBACK")
    elif request.param == "stream":
        args = ("--runner=BundleBasedDirectRunner",)
    else:
        local = {"mode": request.param, "workers": 1 if request.param == "inline" else 2}
    settings = choose_runner(args, **local)

    @contextlib.contextmanager
    def opened(*more):
        with open_runner(settings) as (runner, options):
            if more:
                options = beam.options.pipeline_options.PipelineOptions([*args, *more])
            pipeline = beam.Pipeline(runner=runner, options=options)
            yield pipeline
            pipeline.run().wait_until_finish()

    return opened


@pytest.fixture(params=["inline", "threads", PRISM])
def run(request):
    """`with run() as pipeline`: on a runner; it runs when the block ends."""
    return _opener(request)


@pytest.fixture(params=["stream", PRISM])
def run_stream(request):
    """The same for streams, which Beam's local runner of today does not take as they come."""
    opened = _opener(request)
    return lambda: opened("--streaming")


@pytest.fixture(params=["inline", PRISM])
def run_once(request):
    """The same as `run`, for what does not depend on threads."""
    return _opener(request)


@pytest.fixture
def tokenizer(tiny_vocab):
    return Tokenizer.for_bert(tiny_vocab, oov="contain")


@pytest.fixture
def inline():
    """A pipeline of this thread; it runs when the block ends."""
    with open_runner(choose_runner((), mode="inline")) as (runner, options):
        pipeline = beam.Pipeline(runner=runner, options=options)
        yield pipeline
        pipeline.result = pipeline.run()
