# SPDX-License-Identifier: Apache-2.0
"""Elements of every kind, for pipelines of a user's own."""

import collections
import dataclasses
import typing

import apache_beam as beam

from tokenmill.pipeline.running.runners import choose_runner, open_runner

TEXTS = ["The mill grinds text.", "Tokens, tokens!", "", "unaffable", "玫瑰花3Ⰻ7朵", "a mill", "Text into tokens."] * 3


class Doc(typing.NamedTuple):
    id: int
    text: str


@dataclasses.dataclass
class Page:
    id: int
    text: str


def as_row(i, text):
    return beam.Row(id=i, text=text)


def as_dict(i, text):
    return {"id": i, "text": text}


Bare = collections.namedtuple("Bare", "id text")

KINDS = {"Row": as_row, "NamedTuple": Doc, "namedtuple": Bare, "dataclass": Page, "dict": as_dict}


def run_inline(build):
    """Runs the pipeline that `build` makes."""
    with open_runner(choose_runner((), mode="inline")) as (runner, options):
        pipeline = beam.Pipeline(runner=runner, options=options)
        build(pipeline)
        pipeline.run()


def fields(element):
    return element if isinstance(element, dict) else element._asdict()


def ids_are(expected):
    """Checks elements by their ids, whatever their order."""

    def check(found):
        rows = {fields(each)["id"]: list(fields(each)["input_ids"]) for each in found}
        assert len(rows) == len(found)
        assert rows == expected

    return check
