# SPDX-License-Identifier: Apache-2.0
"""The process that renders chat templates, with limits of time and memory: a template is a stranger's program.

`renderer` starts it. Nothing here may import more than Jinja, since every worker starts one. It reads requests from
stdin and writes answers to stdout, each behind its length in 8 bytes. A request is a pickle of (template, date, whether
to trace, conversations). Answers are JSON: null when it is ready; then for each request null, or why it is no template,
and what became of each conversation. What takes more than it may ends the process, which `renderer` sees.
"""

import datetime
import functools
import json
import os
import pickle
import re
import resource
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, BinaryIO

import jinja2
import jinja2.exceptions

from tokenmill.tokenizer.chat.errors import RefusedError, TemplateError, TemplateLimitError
from tokenmill.tokenizer.chat.sandbox import Environment
from tokenmill.tokenizer.chat.traced import GENERATION, Origin, Traced, questions

MAX_TEXT = 1 << 25
"""The most characters of a rendered conversation."""
_LENGTH = 8
_KINDS = {RefusedError: "refused", TemplateLimitError: "limit", TemplateError: "failed"}
_REASONING = "reasoning_content", "thinking", "reasoning"
"""Names of a message's reasoning; `transformers` gives it to templates under the first two."""


def serve(seconds: float, memory: int) -> None:
    """Answers requests until there are no more.

    Args:
      seconds: of processor time for each conversation, and for compiling; fractions count.
      memory: bytes of address space, of which an idle process has some 50 MB.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    if most == resource.RLIM_INFINITY or memory <= most:  # else there is a lower limit already
        resource.setrlimit(resource.RLIMIT_AS, (memory, most))
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    _write(answers, None)
    answers.flush()
    while head := requests.read(_LENGTH):
        signal.setitimer(signal.ITIMER_PROF, seconds)  # the signal ends the process, whatever it is doing
        try:
            for answer in _answers(requests.read(int.from_bytes(head, "little")), seconds):
                _write(answers, answer)
            answers.flush()
        except MemoryError:
            os._exit(3)
        signal.setitimer(signal.ITIMER_PROF, 0)


def _write(stream: BinaryIO, answer: Any) -> None:
    content = json.dumps(answer, ensure_ascii=False).encode("utf-8", "surrogatepass")
    stream.write(len(content).to_bytes(_LENGTH, "little") + content)


def _answers(request: bytes, seconds: float) -> Iterator[Any]:
    source, date, is_traced, conversations = pickle.loads(request)
    try:
        template = _compiled(source, date)
    except (jinja2.exceptions.TemplateError, RecursionError, SyntaxError) as error:
        yield _describe(error)
        return
    yield None
    for messages, arguments in conversations:
        signal.setitimer(signal.ITIMER_PROF, seconds)
        try:
            yield (_trace if is_traced else _render_plain)(template, messages, arguments)
        except TemplateError as error:
            yield [_KINDS[type(error)], str(error)]


@functools.lru_cache(maxsize=16)
def _compiled(source: str, date: datetime.date | None) -> jinja2.Template:
    environment = Environment()
    environment.globals["strftime_now"] = functools.partial(_strftime_now, date)
    return environment.from_string(source)


def _strftime_now(date: datetime.date | None, form: str) -> str:
    if date is None:
        raise TemplateError("it asks for today's date, which makes other bytes each day; set chat.date to a date")
    return datetime.datetime.combine(date, datetime.time(12)).strftime(form)


def _render_plain(template: jinja2.Template, messages: Sequence[Any], arguments: Mapping[str, Any]) -> Any:
    return ["text", _plain(_render(template, messages, arguments, is_traced=False))]


def _trace(template: jinja2.Template, messages: Sequence[Any], arguments: Mapping[str, Any]) -> Any:
    before = questions.n_equal
    text = _render(template, messages, arguments, is_traced=True)
    compares = questions.n_equal > before
    plain = _plain(text)
    if plain != _plain(_render(template, messages, arguments, is_traced=False)):
        raise TemplateError("the template renders texts differently when they are traced")
    runs = sorted(text.runs) if isinstance(text, Traced) else []
    generated = [(run.start, run.stop) for run in runs if run.origin == GENERATION]
    return ["traced", plain, [run for run in runs if run.origin != GENERATION], generated, compares]


def _render(
    template: jinja2.Template, messages: Sequence[Any], arguments: Mapping[str, Any], *, is_traced: bool
) -> str:
    arguments = dict(arguments)
    continues = arguments.pop("continue_final_message", False)
    if continues and arguments.get("add_generation_prompt"):
        raise TemplateError("add_generation_prompt and continue_final_message exclude each other")
    chat = [_as_in_transformers(message) for message in messages]
    last = ""
    if continues:
        chat, last = _with_tag(chat)
    if is_traced:
        chat = [_traced_message(i, message) for i, message in enumerate(chat)]
    given = {"tools": None, "documents": None, "add_generation_prompt": False, **arguments}
    try:
        text = template.render(messages=chat, **given)
    except (TemplateError, MemoryError):
        raise
    except RecursionError:
        raise TemplateError("the template calls itself too deep") from None
    except Exception as error:  # a template can make any operation fail
        raise TemplateError(_describe(error)) from None
    if len(text) > MAX_TEXT:
        raise TemplateLimitError(f"the template makes a text of more than {MAX_TEXT:,} characters")
    return _until_tag(text, last) if continues else text


def _plain(text: str) -> str:
    return "".join([text, ""])  # also of a string of another class


_TAG = "CONTINUE_FINAL_MESSAGE_TAG "


def _with_tag(chat: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], str]:
    """Returns messages with a tag behind the last text, and this text."""
    content = chat[-1].get("content") if chat else None
    if isinstance(content, str):
        return [*chat[:-1], {**chat[-1], "content": content + _TAG}], content
    texts = [i for i, part in enumerate(content or ()) if isinstance(part, dict) and "text" in part]
    if not texts:
        raise TemplateError("continue_final_message: the last message has no text to continue")
    parts = list(content or ())
    last = parts[texts[-1]]["text"]
    parts[texts[-1]] = {**parts[texts[-1]], "text": last + _TAG}
    return [*chat[:-1], {**chat[-1], "content": parts}], last


def _until_tag(text: str, last: str) -> str:
    at = text.rfind(_TAG.strip())
    if at < 0 or last.strip() not in text:
        raise TemplateError("continue_final_message: the template does not render the last message as it is")
    is_spaced = text[at : at + len(_TAG)] == _TAG
    return text[:at] if is_spaced else text[:at].rstrip()


def _as_in_transformers(message: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a message as `transformers` gives it to a template: without nulls, reasoning under the usual names."""
    message = {name: value for name, value in message.items() if value is not None}
    found = next((message[name] for name in _REASONING if name in message), None)
    return message if found is None else {"thinking": found, **message, "reasoning_content": found}


def _traced_message(i: int, message: dict[str, Any]) -> dict[str, Any]:
    fields = {name: "reasoning" if name in _REASONING else name for name in message}
    return {name: _traced_value(value, i, fields[name]) for name, value in message.items()}


def _traced_value(value: Any, message: int, path: str) -> Any:
    if isinstance(value, str):
        return Traced.whole(value, Origin(message, path))
    if isinstance(value, dict):
        return {key: _traced_value(each, message, f"{path}.{key}") for key, each in value.items()}
    if isinstance(value, list):
        return [_traced_value(each, message, f"{path}.{i}") for i, each in enumerate(value)]
    return value


def _describe(error: BaseException) -> str:
    line = getattr(error, "lineno", None)
    # What a template makes of texts, by the name that authors know.
    said = re.sub(r"tokenmill[.\w]*[.](Traced|Safe)|\b(Traced|Safe)(?=')", "str", str(error))
    return f"{said or type(error).__name__}"[:500] + (f" (line {line})" if line else "")
