# SPDX-License-Identifier: Apache-2.0
"""What is predicted by the shape of a conversation is what tracing finds, whatever was marked before."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.chats import NAMED, SPECIAL, TEMPLATES
from tokenmill.tokenizer.chat.conversations import ConversationError, read_conversation
from tokenmill.tokenizer.chat.spans import Marked, Marker, TrainingRule
from tokenmill.tokenizer.chat.templates import ChatTemplate

TEMPLATE_OF = {
    **TEMPLATES,
    "lines stripped": "{% for m in messages %}[{{ m.role }}]{{ m.content.strip('\\n') }}</s>{% endfor %}",
    "longer shown otherwise": "{% for m in messages %}[{{ m.role }}]{% if m.content|length > 9 %}({{ m.content }})"
    "{% else %}{{ m.content }}{% endif %}</s>{% endfor %}",
    "one text written out": "{% for m in messages %}[{{ m.role }}]{% if m.content == 'yes' %}yes{% else %}"
    "{{ m.content }}{% endif %}</s>{% endfor %}",
    "one of a list written out": "{% for m in messages %}[{{ m.role }}]{% if m.content in ['yes', 'no'] %}yes"
    "{% else %}{{ m.content }}{% endif %}</s>{% endfor %}",
    "one told by its length": "{% for m in messages %}[{{ m.role }}]{% if m.content|length == 2 "
    "and 'no' in m.content %}no{% else %}{{ m.content }}{% endif %}</s>{% endfor %}",
    "twice": "{% for m in messages %}[{{ m.role }}]{{ m.content }}</s>{% endfor %}{{ messages[0].content }}",
    "replaced": "{% for m in messages %}[{{ m.role }}]{{ m.content.replace('e', 'E') | trim }}</s>{% endfor %}",
}
TEXTS = st.sampled_from(
    ["yes", "no", " yes", "yes\n", "\n\n", "", "hello there", "hm", "<think>\na\n</think>\n\nyes", "</s>"]
)


def outcome(mark: Any, conversation: Any) -> Any:
    try:
        return mark(conversation)
    except ConversationError as error:
        return error.reason, error.detail


def traced(marker: Marker, conversation: Any) -> Marked:
    (rendered,) = marker.template.trace_all([(conversation.messages, conversation.arguments)])
    return marker._marked(conversation, rendered)


@pytest.mark.parametrize("name", TEMPLATE_OF)
@given(
    st.lists(st.lists(st.tuples(TEXTS, TEXTS | st.none()), min_size=2, max_size=3), min_size=2, max_size=12),
    st.sampled_from([TrainingRule(), TrainingRule("all"), TrainingRule("last_assistant", stop=False)]),
)
def test_predictions_are_what_tracing_finds(name: str, chats: list[Any], rule: TrainingRule) -> None:
    template = ChatTemplate(TEMPLATE_OF[name], NAMED)
    marker = Marker(template, SPECIAL, rule)
    for chat in chats:
        messages = []
        for i, (content, reasoning) in enumerate(chat):
            message = {"role": "assistant" if i % 2 else "user", "content": content}
            messages.append(message if reasoning is None or i % 2 == 0 else {**message, "reasoning": reasoning})
        try:
            conversation = read_conversation({"messages": messages})
        except ConversationError:
            continue
        assert outcome(marker.mark, conversation) == outcome(lambda each: traced(marker, each), conversation)


@pytest.mark.parametrize("name", ["chatml", "headers", "inst", "thinking", "twice"])
def test_the_second_conversation_of_a_shape_is_not_traced(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    marker = Marker(ChatTemplate(TEMPLATE_OF[name], NAMED), SPECIAL, TrainingRule())
    first, second = (
        read_conversation({"messages": [{"role": "user", "content": ask}, {"role": "assistant", "content": answer}]})
        for ask, answer in (("why?", "so"), ("who?", "that is a longer one"))
    )
    marker.mark(first)
    expected = traced(marker, second)
    monkeypatch.setattr(ChatTemplate, "trace_all", lambda self, conversations: [None][: len(conversations)])
    assert marker.mark(second) == expected
