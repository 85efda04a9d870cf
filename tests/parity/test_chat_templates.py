# SPDX-License-Identifier: Apache-2.0
"""Real chat templates: the text of `transformers`, and the masks of TRL's training templates but for what is listed.

`TOKENMILL_CHAT_TEMPLATES` names a folder of `*.jinja`, such as `trl/chat_templates` of the unpacked wheel of TRL, whose
`*_training.jinja` mark what the model writes.
"""

import datetime
import os
import random
import re
from pathlib import Path
from typing import Any

import pytest

from tests.chats import NAMED, make_conversation
from tokenmill.tokenizer.chat.conversations import ConversationError, read_conversation
from tokenmill.tokenizer.chat.spans import Marker, TrainingRule
from tokenmill.tokenizer.chat.templates import ChatTemplate, TemplateError

FOLDER = os.environ.get("TOKENMILL_CHAT_TEMPLATES", "")
FILES = sorted(Path(FOLDER).glob("*.jinja")) if FOLDER else []
PAIRS = [path for path in FILES if path.with_name(path.stem + "_training.jinja").exists()]

pytestmark = [
    pytest.mark.parity,
    pytest.mark.skipif(not FILES, reason="TOKENMILL_CHAT_TEMPLATES names no folder of *.jinja"),
]

N = int(os.environ.get("TOKENMILL_EXAMPLES", "50")) * 4
DAY = datetime.date(2026, 1, 31)

SPECIAL = re.compile(r"<[|｜][^<>\s]+?[|｜]>|<end_of_turn>|<start_of_turn>|<turn\|>|\[gMASK\]")

TRAINED_BY_TRL_ALONE = re.compile(
    r"\s+"  # white space behind a stop token: generation has ended; and the line end of a header
    r"|(<\|im_end\|>|<\|eot_id\|>|<\|end\|>|<turn\|>|<｜end▁of▁sentence｜>)\s*"  # of a turn that is shown empty
    r"|\s*</s>"  # an end of text that the template puts behind the last stop token
    r"|<｜Assistant｜>|<\|start\|>assistant|<｜tool▁outputs▁end｜>"  # headers, which generation prompts contain
    r"|(<\|start\|>assistant)?\s*<think>\n?"  # what the generation prompt contains already
    r"|<think></think>|<think>\n\n</think>\n\n"
)
"""What training templates of TRL mark, and we do not: a model is never asked to write it."""


def conversations(tools: bool) -> list[list[dict[str, Any]]]:
    return [make_conversation(random.Random(seed), tools=tools) for seed in range(N)]


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_text_is_that_of_transformers(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    utils = pytest.importorskip("transformers.utils.chat_template_utils")

    class Day(datetime.datetime):
        @classmethod
        def now(cls, tz: Any = None) -> "Day":
            return cls(DAY.year, DAY.month, DAY.day, 12)

    monkeypatch.setattr(utils, "datetime", Day)
    source = path.read_text(encoding="utf-8")
    template = ChatTemplate(source, NAMED, DAY)
    tool = {"type": "function", "function": {"name": "look", "description": "d", "parameters": {"type": "object"}}}
    for seed, messages in enumerate(conversations(tools=True)):
        more: dict[str, Any] = {"tools": [tool]} if seed % 3 == 0 else {}
        more |= {"enable_thinking": seed % 2 == 0} if seed % 5 == 0 else {}
        more["add_generation_prompt"] = seed % 4 == 0
        try:
            (expected,), _ = utils.render_jinja_template([messages], chat_template=source, **NAMED, **more)
        except Exception:
            with pytest.raises(TemplateError):
                template.trace(messages, **more)
            continue
        assert template.trace(messages, **more).text == expected


@pytest.mark.parametrize("path", PAIRS, ids=[path.stem for path in PAIRS])
def test_masks_are_those_of_training_templates(path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    special = {
        *NAMED.values(),
        *re.findall(r"<[|｜][^<>\s]+?[|｜]>|<end_of_turn>|<start_of_turn>|<turn\|>|\[gMASK\]", source),
    }
    marker = Marker(ChatTemplate(source, NAMED, DAY), special, TrainingRule())
    theirs = ChatTemplate(path.with_name(path.stem + "_training.jinja").read_text(encoding="utf-8"), NAMED, DAY)
    n_compared = 0
    for messages in conversations(tools=False):
        conversation = read_conversation({"messages": messages})
        try:
            found = marker.mark(conversation)
            marked = theirs.trace(conversation.messages)
        except (ConversationError, TemplateError):
            continue
        if found.text != marked.text:
            continue  # training templates keep reasoning that others drop
        n_compared += 1
        ours = {i for start, stop in found.spans for i in range(start, stop)}
        all_theirs = {i for start, stop in marked.generated for i in range(start, stop)}
        assert ours <= all_theirs, found.text
        alone = "".join(c if i in all_theirs - ours else "\0" for i, c in enumerate(found.text))
        for text in filter(None, alone.split("\0")):
            assert TRAINED_BY_TRL_ALONE.fullmatch(text), (text, found.text)
    # The first three show no texts that are not in parts; the training template of the last writes another text.
    assert n_compared or path.stem.startswith(("idefics", "smolvlm", "llava", "glm4moe")), "nothing was compared"
