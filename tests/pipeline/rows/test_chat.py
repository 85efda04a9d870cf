# SPDX-License-Identifier: Apache-2.0
"""Conversations in pipelines of a user's own: `RenderChat` and `Tokenize(messages=...)`."""

import json
import random

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.transforms.window import FixedWindows, TimestampedValue

from tests.chats import NAMED, TEMPLATES, make_conversation, make_tokenizer
from tokenmill import RenderChat, Tokenize
from tokenmill.pipeline.config.text import ChatConfig
from tokenmill.pipeline.tokenizing.chat import TOOL, ChatTexts
from tokenmill.tokenizer.chat.templates import ChatTemplate

CHAT = {"template": TEMPLATES["thinking"], "special_tokens": NAMED}
CONVERSATIONS = [make_conversation(random.Random(seed), tools=False, system=False) for seed in range(30)]
BAD = {
    "nothing_trained": [{"role": "user", "content": "why?"}],
    "unknown_role": [{"role": "wizard", "content": "a"}],
    "not_a_conversation": [],
}


def as_row(i, messages):
    return beam.Row(id=i, messages=messages)


def as_dict(i, messages):
    return {"id": i, "messages": messages}


def as_json(i, messages):
    return {"id": i, "messages": json.dumps({"messages": messages, "tools": []})}


def fields(element):
    return element if isinstance(element, dict) else element._asdict()


@pytest.fixture(scope="module")
def expected():
    """Ids and masks of jobs."""
    tokenizer = make_tokenizer()
    texts = ChatTexts.of_section(ChatConfig.model_validate(CHAT), "messages", tokenizer)
    made = texts.encode([{"messages": each} for each in CONVERSATIONS], tokenizer.layout(False))
    assert not made.rejects
    return dict(enumerate(zip(made.ids.to_pylist(), made.masks.to_pylist(), strict=True)))


def rows_are(expected):
    def check(found):
        rows = {
            fields(each)["id"]: (list(fields(each)["input_ids"]), list(fields(each)["loss_mask"])) for each in found
        }
        assert len(rows) == len(found)
        assert rows == expected

    return check


def test_a_template_of_which_the_wrong_text_would_be_trained_is_refused():
    with pytest.raises(ValueError, match="on_bad_mask"):
        Tokenize(make_tokenizer(), messages="messages", chat={"template": TEMPLATES["bare"]})


@pytest.mark.parametrize("kind", [as_row, as_dict, as_json])
def test_ids_and_masks_are_those_of_jobs(kind, run, expected):
    with run() as pipeline:
        rows = pipeline | beam.Create([kind(i, each) for i, each in enumerate(CONVERSATIONS)])
        tokens = rows | Tokenize(make_tokenizer(), messages="messages", chat=CHAT)
        assert_that(tokens, rows_are(expected))


def test_the_tokenizer_may_be_a_side_input_and_ids_arrays(run_once, expected):
    with run_once() as pipeline:
        source = pipeline | "Tokenizer" >> beam.Create([make_tokenizer().to_str()])
        rows = pipeline | beam.Create([as_dict(i, each) for i, each in enumerate(CONVERSATIONS)])
        tokens = rows | Tokenize(source, messages="messages", chat=CHAT, as_numpy=True)

        def check(found):
            assert all(isinstance(each[name], np.ndarray) for each in found for name in ("input_ids", "loss_mask"))
            assert {each["loss_mask"].dtype for each in found} == {np.dtype(bool)}
            rows_are(expected)(found)

        assert_that(tokens, check)


def test_what_cannot_be_trained_on_is_a_dead_letter_in_its_window(run_once, expected):
    elements = [as_dict(i, each) for i, each in enumerate(CONVERSATIONS[:5])]
    elements += [as_row(reason, messages) for reason, messages in BAD.items()]
    elements += [as_dict("null", None), as_dict("text", "no JSON"), {"id": "missing"}]
    with run_once() as pipeline:
        timed = [TimestampedValue(each, 10 * i) for i, each in enumerate(elements)]
        rows = pipeline | beam.Create(timed) | beam.WindowInto(FixedWindows(20))
        step = Tokenize(make_tokenizer(), messages="messages", chat=CHAT).with_exception_handling()
        good, bad = rows | step
        assert_that(good, rows_are({i: expected[i] for i in range(5)}))
        failed = bad | beam.Map(lambda letter: fields(letter.element)["id"])
        assert_that(failed, equal_to([*BAD, "null", "text", "missing"]), label="Failed")
        windows = good | beam.Map(lambda row, window=beam.DoFn.WindowParam: (row["id"], float(window.start)))
        assert_that(windows, equal_to([(i, 10.0 * i // 20 * 20) for i in range(5)]), label="Windows")


def test_texts_are_those_of_the_template(run_once):
    template = ChatTemplate(CHAT["template"], NAMED)
    expected = [template.render(each, add_generation_prompt=True) for each in CONVERSATIONS]
    bad = [as_json(-1, [{"role": "wizard", "content": "a"}]), as_json(-2, [{"role": "user", "content": "\ud800"}])]
    with run_once() as pipeline:
        rows = pipeline | beam.Create([as_dict(0, each) for each in CONVERSATIONS] + bad)
        step = RenderChat(CHAT["template"], chat={"special_tokens": NAMED}, add_generation_prompt=True)
        good, failed = rows | step.with_exception_handling()
        assert_that(good | beam.Map(lambda row: row["text"]), equal_to(expected))
        assert_that(failed | beam.Map(lambda letter: letter.element["id"]), equal_to([-1, -2]), label="Failed")


def test_records_with_tools_are_rendered_by_their_own_template(run_once):
    messages = [{"role": "user", "content": "why?"}]
    records = [{"messages": json.dumps({"messages": messages, "tools": tools})} for tools in (None, [TOOL])]
    step = RenderChat("{{ messages[0].content }}", chat={"tool_template": "{{ tools[0].function.name }}"})
    with run_once() as pipeline:
        texts = pipeline | beam.Create(records) | step | beam.Map(lambda row: row["text"])
        assert_that(texts, equal_to(["why?", TOOL["function"]["name"]]))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"messages": "messages"}, "name a template"),
        ({"messages": "messages", "chat": {**CHAT, "train": "nobody"}}, r"chat\.train"),
        ({"messages": "messages", "chat": {**CHAT, "nonsense": 1}}, r"chat\.nonsense"),
        ({"messages": "messages", "chat": CHAT, "add_special_tokens": True}, "a template is whole"),
        ({"chat": CHAT}, "give messages"),
    ],
)
def test_a_mistake_is_an_error_where_the_pipeline_is_built(options, message):
    with pytest.raises(ValueError, match=message):
        Tokenize(make_tokenizer(), **options)
    with pytest.raises(ValueError, match=r"chat\.template: "):
        RenderChat("no/such/folder")
