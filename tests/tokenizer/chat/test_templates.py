# SPDX-License-Identifier: Apache-2.0
"""Templates render as `transformers` renders them, and can take neither time, memory nor anything else."""

import datetime
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.chats import NAMED, TEMPLATES, make_conversation, make_tokenizer
from tokenmill.tokenizer.chat import renderer, templates
from tokenmill.tokenizer.chat.check import check_chat
from tokenmill.tokenizer.chat.templates import (
    ChatTemplate,
    TemplateError,
    TemplateLimitError,
    load_template,
)

MESSAGES = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yes"}]

_NESTED = "{% set n = namespace(l=[1]) %}{% for i in range(60) %}{% set n.l = [n.l, n.l] %}{% endfor %}"
_LONG = "{% set s = 'a' * 9000000 %}"

BOMBS = {
    "loops": "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "macros": "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(40) }}",
    "doubling": "{% set n = namespace(s='ab') %}{% for i in range(60) %}{% set n.s = n.s ~ n.s %}{% endfor %}",
    "squares": "{% set n = namespace(s=9) %}{% for i in range(60) %}{% set n.s = n.s * n.s %}{% endfor %}",
    "range": "{{ range(999999999) | list | length }}",
    "replace": "{% set s = 'a' * 60000 %}{{ s.replace('a', s) | length }}",
    "join": _LONG + "{{ ''.join([s] * 999) | length }}",
    "format width": "{{ '%*d' % (messages | length * 1500000000, 1) }}",
    "translate": "{{ ('a' * 50000).translate({97: messages[0].role * 50000}) | length }}",
    "kept texts": "{% set n = namespace(l=[]) %}{% for i in range(99) %}{% set n.l = n.l + ['🙂' * (9000000 + i)] %}"
    "{% endfor %}",
    "output": _LONG + "{% for i in range(9) %}{{ s }}{% endfor %}",
    "a shared list printed": _NESTED + "{{ n.l }}",
    "a shared list compared": _NESTED + "{% set a = n.l %}" + _NESTED + "{{ a == n.l }}",
    "a shared list searched": _NESTED
    + "{{ 2 in [n.l] or n.l is eq(n.l[0]) or n.l[0][0] in [n.l[1], 2] }}{{ n.l | string }}",
    "a shared list as JSON": _NESTED + "{{ n.l | tojson }}",
    "steps of a long text": _LONG + "{% for i in range(99999) %}{% if 'b' in s %}{% endif %}{% endfor %}",
    "what is not compiled": "{{ 'a' | center(99999999999) }}",
}


@pytest.fixture
def _little_time(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(renderer, "MAX_SECONDS", 0.3)
    renderer._state.end()
    yield
    renderer._state.end()


@pytest.mark.usefixtures("_little_time")
@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_an_error_soon(name: str) -> None:
    start = time.monotonic()
    with pytest.raises(TemplateError):
        ChatTemplate(BOMBS[name]).trace(MESSAGES)
    assert time.monotonic() - start < 60  # as against hours


@pytest.mark.usefixtures("_little_time")
def test_one_conversation_that_takes_too_long_costs_no_other() -> None:
    template = ChatTemplate(
        "{% if 'bomb' in messages[0].content %}" + BOMBS["loops"] + "{% endif %}{{ messages[0].content }}"
    )
    texts = ["a", "bomb", "b", "c", "bomb 2"]
    found = template.render_all([([{"role": "user", "content": text}], {}) for text in texts])
    assert [each if isinstance(each, str) else type(each) for each in found] == [
        *("a", TemplateLimitError, "b", "c", TemplateLimitError)
    ]
    assert "0.3 s of processor time" in str(found[1])


@pytest.mark.usefixtures("_little_time")
def test_a_template_that_takes_too_long_for_any_conversation_is_bad_soon() -> None:
    source = BOMBS["a shared list printed"]
    assert len(source) < 111
    found = check_chat(make_tokenizer(), ChatTemplate(source))
    assert [(each.level, each.detail[:15]) for each in found.findings] == [("bad", "template_limit:")]
    assert not found.is_good


def test_a_process_that_is_gone_is_started_again() -> None:
    template = ChatTemplate("{{ messages[0].content }}")
    assert template.render(MESSAGES) == "hi"
    assert renderer._state.renderer is not None
    renderer._state.renderer._process.kill()
    assert template.render(MESSAGES) == "hi"


def test_a_forked_process_has_a_renderer_of_its_own() -> None:
    template = ChatTemplate("{{ messages[0].content }}")
    assert template.render(MESSAGES) == "hi"
    pid = os.fork()
    if pid == 0:
        os._exit(template.render(MESSAGES) != "hi")
    assert os.waitpid(pid, 0)[1] == 0
    assert template.render(MESSAGES) == "hi"


def test_what_renders_imports_little_and_ends_with_its_owner() -> None:
    code = """
import sys
from tokenmill.tokenizer.chat import renderer
from tokenmill.tokenizer.chat.templates import ChatTemplate
renderer._START += "import os, sys; os.write(2, ' '.join(sys.modules).encode())"
renderer.subprocess.DEVNULL = None
ChatTemplate("a")
assert "jinja2" not in sys.modules
renderer._state.renderer._process.stdin.close()
renderer._state.renderer._process.wait()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert {"jinja2"} == {"jinja2", "numpy", "pyarrow", "numba", "apache_beam"} & {*done.stderr.split()}


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__ }}{{ ''.__class__.__mro__[1].__subclasses__()[0] }}",
        "{{ messages.append({}) }}",
        "{{ messages[0].update({'role': 'x'}) }}",
        "{{ messages[0].clear() }}",
        "{{ cycler.__init__.__globals__.os.system('true') }}",
        "{% set n = namespace(_a=1) %}",
        "{% set n = namespace() %}{% set n.__class__ = 1 %}",
        "{{ namespace.__init__.__globals__ }}{{ (namespace.__init__.__globals__).x }}",
        "{% include '/etc/passwd' %}",
        "{% import 'os' as os %}",
        "{{ tojson.__globals__ }}{{ nothing.at.all }}",
        "{{ messages[0].content.runs.__class__ }}{{ missing.attribute }}",
    ],
)
def test_the_sandbox_holds(source: str) -> None:
    with pytest.raises(TemplateError):
        ChatTemplate(source).trace(MESSAGES)
    assert MESSAGES[0] == {"role": "user", "content": "hi"}


@pytest.mark.parametrize(
    ("source", "is_shown"),
    [
        ("{{ 'A: %s!' % messages[1].content }}", True),
        ("{{ '%s: %s' % (messages[1].role, messages[1].content) }}", True),
        ("{{ 'A: {}!'.format(messages[1].content) }}", True),
        ("{{ '{a}'.format(a=messages[1].content) }}", True),
        ("{% for m in messages[1:] %}{% set a = '{}'.format(m.content) %}{{ a }}{% endfor %}", True),
        ("{{ 'A: %s' | format(messages[1].content) }}", True),
        ("{% for c in messages[1].content %}{{ c }}{% endfor %}", True),
        ("{{ messages[1].content | e }}", True),
        ("{{ messages[1].content | list | join }}", True),
        ("{{ messages[1].content[::-1] }}", True),
        ("{{ messages[1].content | reverse }}", True),
        ("{{ 'A: <c>'.replace('<c>', messages[1].content) }}", True),
        ("{{ 'A: <c>' | replace('<c>', messages[1].content) }}", True),
        ("{{ messages[1].content | indent }}", True),
        ("{{ ('{' ~ messages[0].content ~ '\n' ~ messages[1].content) | indent }}", True),
        ("{{ messages[1].content | wordwrap(5) }}", False),
        ("{{ messages[1].content | urlencode }}", False),
        ("{{ messages[1].content.translate({97: 'b'}) }}", False),
    ],
)
def test_contents_are_followed_through_formats_and_loops(source: str, is_shown: bool) -> None:
    pytest.importorskip("transformers")
    messages = [MESSAGES[0], {"role": "assistant", "content": "it's <a> longer\nanswer & more"}]
    found = ChatTemplate(source).trace(messages)
    assert found.text == make_tokenizer().as_hf().apply_chat_template(messages, chat_template=source, tokenize=False)
    shown = {at for run in found.runs if run.origin.message == 1 for at in range(run.start, run.stop)}
    content = "".join(found.text[at] for at in sorted(shown) if found.text[at].isalpha())
    letters = "itsalongeranswermore"
    assert len(content) >= len(letters) if is_shown else not shown, found


def test_what_python_cannot_compile_is_no_template() -> None:
    for source in ("{% if 1 %}" * 150 + "{% endif %}" * 150, "{% for a in [] %}" * 25 + "{% endfor %}" * 25):
        with pytest.raises(TemplateError, match="not a chat template"):
            ChatTemplate(source)
    with pytest.raises(TemplateError, match="random"):
        ChatTemplate("{{ [1, 2] | random }}")


def test_a_large_template_is_refused_unread() -> None:
    with pytest.raises(TemplateError, match="at most 1,048,576"):
        ChatTemplate("x" * (templates.MAX_TEMPLATE + 1))


def test_the_date_is_given_or_refused() -> None:
    source = "{{ strftime_now('%d %b %Y') }}"
    with pytest.raises(TemplateError, match=r"chat\.date"):
        ChatTemplate(source).render(MESSAGES)
    assert ChatTemplate(source, date=datetime.date(2026, 1, 31)).render(MESSAGES) == "31 Jan 2026"


@pytest.mark.parametrize("family", TEMPLATES)
def test_text_is_that_of_transformers(family: str) -> None:
    utils = pytest.importorskip("transformers.utils.chat_template_utils")
    template = ChatTemplate(TEMPLATES[family], NAMED)
    n_equal = 0
    for seed in range(200):
        messages = make_conversation(random.Random(seed))
        for prompt in (False, True):
            arguments: dict[str, Any] = {"add_generation_prompt": prompt, **NAMED}
            try:
                (expected,), _ = utils.render_jinja_template([messages], chat_template=TEMPLATES[family], **arguments)
            except Exception:
                with pytest.raises(TemplateError):
                    template.trace(messages, add_generation_prompt=prompt)
                continue
            assert template.trace(messages, add_generation_prompt=prompt).text == expected
            n_equal += 1
    assert n_equal > 50


@pytest.mark.parametrize(
    "source",
    [
        # A loop that sets names has them passed to every call in it.
        "{% for m in messages %}{% set said = m.role.replace('s', 'S', 1) %}{{ said.replace('r', '') }}{% endfor %}",
        "{{ messages[0].content + ({'a': '<'} | tojson | safe) + messages[0].content }}",
        *("{{ '<' + (messages[0].content | safe) + '&' }}", "{{ (messages[0].content | safe)[1:] + '&' }}"),
        *("{{ messages[0].content + (messages[0].role | safe) }}", "{{ (messages[0].content | safe) ~ '&' }}"),
        *("{{ (messages[0].content | safe).upper() + '&' }}", "{{ messages[0].content | safe | replace('b', '<i>') }}"),
        "{{ (messages[0].content | safe).replace('b', '<') }}",
        "{{ messages[1].content }}{{ messages[1].name is defined }}",
    ],
)
def test_odd_templates_have_the_text_of_transformers(source: str) -> None:
    pytest.importorskip("transformers")
    messages = [{"role": "user", "content": "<tell>"}, {"role": "assistant", "content": None, "name": None}]
    try:
        expected = make_tokenizer().as_hf().apply_chat_template(messages, chat_template=source, tokenize=False)
    except Exception:
        with pytest.raises(TemplateError):
            ChatTemplate(source).trace(messages)
    else:
        assert ChatTemplate(source).trace(messages).text == expected


@pytest.mark.parametrize("last", ["tell me", "tell me  \n", [{"type": "text", "text": "tell"}, {"type": "image"}]])
@pytest.mark.parametrize("family", ["chatml", "headers"])
def test_a_last_message_is_continued_as_in_transformers(family: str, last: Any) -> None:
    utils = pytest.importorskip("transformers.utils.chat_template_utils")
    source = TEMPLATES[family]
    if isinstance(last, list):
        source = source.replace("message['content']", "message['content'][0].text").replace(
            "message.content | trim", "(message.content[0].text | trim)"
        )
    messages = [{"role": "assistant", "content": last}]
    (expected,), _ = utils.render_jinja_template([messages], chat_template=source, continue_final_message=True, **NAMED)
    assert ChatTemplate(source, NAMED).render(messages, continue_final_message=True) == expected


@pytest.mark.parametrize("family", TEMPLATES)
def test_every_character_of_a_run_is_that_of_its_value(family: str) -> None:
    template = ChatTemplate(TEMPLATES[family], NAMED)
    for seed in range(100):
        messages = make_conversation(random.Random(seed), tools=False, system=family != "inst")
        rendered = template.trace(messages)
        assert rendered.text == template.render(messages)
        for run in rendered.runs:
            field = "reasoning_content" if run.origin.field == "reasoning" else run.origin.field
            value = messages[run.origin.message][field]
            assert rendered.text[run.start : run.stop] == value[run.at : run.at + run.stop - run.start]


def test_a_folder_has_its_template_in_one_of_three_places(tmp_path: Any) -> None:
    with pytest.raises(TemplateError, match="it has none"):
        load_template(tmp_path)
    config = {"chat_template": "a{{ bos_token }}", "bos_token": {"content": "<s>"}, "pad_token": None}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    assert load_template(tmp_path).render(MESSAGES) == "a<s>"
    listed = [{"name": "default", "template": "b"}, {"name": "tools", "template": "c"}]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({**config, "chat_template": listed}))
    assert load_template(tmp_path).render(MESSAGES) == "b"
    assert load_template(tmp_path, "tools").render(MESSAGES) == "c"
    (tmp_path / "chat_template.jinja").write_text("d")
    (tmp_path / "additional_chat_templates").mkdir()
    (tmp_path / "additional_chat_templates" / "rag.jinja").write_text("e{{ bos_token }}")
    assert load_template(tmp_path).render(MESSAGES) == "d"
    assert load_template(tmp_path, "rag").render(MESSAGES) == "e<s>"
    with pytest.raises(TemplateError, match="'default', 'rag', 'tools'"):
        load_template(tmp_path, "other")
    assert load_template(tmp_path / "chat_template.jinja").render(MESSAGES) == "d"
