# SPDX-License-Identifier: Apache-2.0
"""Real chat templates: text, ids and masks of `transformers`, and masks of TRL's training templates but for a list.

`TOKENMILL_CHAT_TEMPLATES` names a folder of `*.jinja`. `trl/chat_templates` of the wheel of TRL has 72, of which
`*_training.jinja` mark what the model writes; `models/templates` of llama.cpp, in the source of llama-cpp-python, 70;
`axolotl/utils/chat_templates/templates` of the wheel of axolotl 36. With `TOKENMILL_EXAMPLES=500` 2,000 conversations
are tried on each.
"""

import datetime
import os
import random
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.chats import NAMED, make_conversation, make_hostile, make_tokenizer
from tests.chats import SPECIAL as TOKENS
from tokenmill.tokenizer import Tokenizer
from tokenmill.tokenizer.chat.conversations import ConversationError, read_conversation
from tokenmill.tokenizer.chat.masks import mask_tokens
from tokenmill.tokenizer.chat.spans import Marker, TrainingRule
from tokenmill.tokenizer.chat.templates import ChatTemplate, TemplateError

FOLDER = os.environ.get("TOKENMILL_CHAT_TEMPLATES", "")
FILES = sorted(Path(FOLDER).glob("*.jinja")) if FOLDER else []
MARKED = [path for path in FILES if re.search(r"\{%-?\s*generation\s*-?%\}", path.read_text(encoding="utf-8"))]
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


@pytest.fixture
def _fixed_day(monkeypatch: pytest.MonkeyPatch) -> None:
    class Day(datetime.datetime):
        @classmethod
        def now(cls, tz: Any = None) -> "Day":
            return cls(DAY.year, DAY.month, DAY.day, 12)

    monkeypatch.setattr(pytest.importorskip("transformers.utils.chat_template_utils"), "datetime", Day)


def make_pair(source: str, tmp_path: Path) -> tuple[Tokenizer, Any, list[str]]:
    """Returns a tokenizer that knows the special tokens of a template, the same of transformers, and these tokens."""
    special = sorted({*TOKENS, *SPECIAL.findall(source)})
    ours = make_tokenizer(special)
    ours.save(str(tmp_path / "tokenizer.json"))
    kind = pytest.importorskip("transformers").PreTrainedTokenizerFast
    theirs = kind(tokenizer_file=str(tmp_path / "tokenizer.json"), chat_template=source, **NAMED)
    return ours.replace(special="split"), theirs, special


@pytest.mark.usefixtures("_fixed_day")
@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_text_and_ids_are_those_of_transformers(path: Path, tmp_path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    template = ChatTemplate(source, NAMED, DAY)
    ours, theirs, _ = make_pair(source, tmp_path)
    texts, ids = [], []
    for seed in range(N):
        rng = random.Random(seed)
        messages, arguments = make_hostile(rng)
        arguments |= rng.choice([{}, {}, {"add_generation_prompt": True}])
        arguments |= {"continue_final_message": True} if seed % 19 == 0 and len(arguments) == 0 else {}
        try:
            expected = theirs.apply_chat_template(messages, tokenize=False, **arguments)
        except Exception:
            with pytest.raises(TemplateError):
                template.trace(messages, **arguments)
            continue
        assert template.trace(messages, **arguments).text == expected
        texts.append(expected)
        ids.append(theirs.apply_chat_template(messages, tokenize=True, **arguments)["input_ids"])
    assert ours.encode_bare(pa.array(texts, pa.string())).to_pylist() == ids
    assert len(texts) > N // 20, "hardly anything was rendered"


@pytest.mark.usefixtures("_fixed_day")
@pytest.mark.parametrize("path", MARKED, ids=[path.stem for path in MARKED])
def test_masks_are_those_of_transformers(path: Path, tmp_path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    ours, theirs, special = make_pair(source, tmp_path)
    marker = Marker(ChatTemplate(source, NAMED, DAY), special, TrainingRule())
    n_compared = 0
    for seed in range(N):
        messages, arguments = make_hostile(random.Random(seed), plain=True)
        beside = {name: arguments.pop(name, None) for name in ("tools", "documents")}
        try:
            conversation = read_conversation({"messages": messages, "chat_template_kwargs": arguments, **beside})
            found = marker.mark(conversation)
        except ConversationError:
            continue
        made = theirs.apply_chat_template(
            conversation.messages, return_dict=True, return_assistant_tokens_mask=True, **conversation.arguments
        )
        texts = pa.array([found.text], pa.string())
        ids = ours.encode_bare(texts)
        trained = mask_tokens(ours, texts, ids, [found.spans], [[]], 0).trained.tolist()
        starts, _ = ours.token_offsets(texts, ids)
        expected = [each == 1 for each in made["assistant_masks"]]
        for i, start in enumerate(starts.tolist()):
            # Of a character of several tokens at the end of a block, transformers has the first alone.
            expected[i] |= found.text.encode()[start] & 0xC0 == 0x80 and expected[i - 1]
        assert ids[0].as_py() == made["input_ids"]
        assert trained == expected, found.text
        n_compared += 1
    assert n_compared > N // 20


@pytest.mark.parametrize("path", PAIRS, ids=[path.stem for path in PAIRS])
def test_masks_are_those_of_training_templates(path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    special = {
        *NAMED.values(),
        *SPECIAL.findall(source),
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
    assert n_compared or any(name in path.stem for name in ("idefics", "smolvlm", "llava", "glm4moe")), (
        "nothing was compared"
    )
