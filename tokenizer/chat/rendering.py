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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO, NoReturn

import jinja2
import jinja2.exceptions
import jinja2.ext
import jinja2.filters
import jinja2.nodes
import jinja2.sandbox
import jinja2.utils
from jinja2.compiler import CodeGenerator

from tokenmill.tokenizer.chat import traced
from tokenmill.tokenizer.chat.errors import RefusedError, TemplateError, TemplateLimitError
from tokenmill.tokenizer.chat.traced import GENERATION, Origin, Run, Traced, questions

_FOLLOWED = ("center", "e", "escape", "forceescape", "indent", "title", "truncate", "wordwrap")
"""Filters whose texts are followed as far as they come out in one piece."""


def _followed(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)  # copies the mark by which Jinja knows whether it wants the environment
    def filtered(*args: Any, **kwargs: Any) -> Any:
        return traced.follow((args, kwargs), lambda given: function(*given[0], **given[1]))

    return filtered


def _replace(text: str, old: str, new: str, count: int = -1) -> str:
    is_traced = not isinstance(text, Traced) and isinstance(new, Traced)
    return (Traced(text) if is_traced else text).replace(old, new, count)


def _replace_filter(text: Any, old: Any, new: Any, count: int | None = None) -> str:
    return _replace(traced.plain(text), traced.plain(old), traced.plain(new), -1 if count is None else count)


def _format(text: Any, *args: Any, **kwargs: Any) -> Any:
    return traced.follow(kwargs or args, lambda given: str(text) % given)


@jinja2.utils.pass_environment
def _join(environment: jinja2.Environment, value: Any, d: str = "", attribute: str | int | None = None) -> str:
    if attribute is not None:
        value = map(jinja2.filters.make_attrgetter(environment, attribute), value)
    return traced.join(str(d), [part if isinstance(part, str) else str(part) for part in value])


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> Any:
    def dumps(each: Any) -> str:
        return json.dumps(each, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    return traced.follow(value, dumps)


def _raise_exception(message: Any) -> NoReturn:
    raise RefusedError(str(message))


class _Dict:
    """`dict` for templates, without the attributes of a class."""

    def __call__(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        return dict(*args, **kwargs)

    def fromkeys(self, *args: Any) -> dict[Any, Any]:
        return dict.fromkeys(*args)


class _Namespace(jinja2.utils.Namespace):
    """`namespace` for templates, without underscores in front of names."""

    def __init__(*args: Any, **kwargs: Any) -> None:
        self, rest = args[0], args[1:]
        given = dict(*rest, **kwargs)
        for name in given:
            _check_name(name)
        jinja2.utils.Namespace.__init__(self, given)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_name(name)
        jinja2.utils.Namespace.__setitem__(self, name, value)


def _check_name(name: Any) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise jinja2.exceptions.SecurityError(f"a name on a namespace that begins with an underscore: {name!r}")


class _Generation(jinja2.ext.Extension):
    """`{% generation %}`: what the model writes, as the author of the template says."""

    tags = {"generation"}

    def parse(self, parser: Any) -> jinja2.nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        call = self.call_method("_rendered")
        return jinja2.nodes.CallBlock(call, [], [], body).set_lineno(line)

    def _rendered(self, caller: Callable[[], str]) -> str:
        text = caller()
        runs = text.runs if isinstance(text, Traced) else ()
        return Traced(text, (*runs, Run(0, len(text), GENERATION)))


class _Generator(CodeGenerator):
    """Joins with `~` by the environment's function, which keeps traces; Jinja's own does not."""

    def visit_Concat(self, node: jinja2.nodes.Concat, frame: Any) -> None:  # noqa: N802 - Jinja's name
        self.write("environment.concat(map(str, (")
        for each in node.nodes:
            self.visit(each, frame)
            self.write(", ")
        self.write(")))")


class Environment(jinja2.sandbox.ImmutableSandboxedEnvironment):
    """Compiles templates."""

    code_generator_class = _Generator
    intercepted_binops = frozenset({"%"})

    def __init__(self) -> None:
        """Has the filters and functions that `transformers` gives to templates, but for `strftime_now`."""
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, jinja2.ext.loopcontrols])
        self.filters |= {name: _followed(self.filters[name]) for name in _FOLLOWED}
        self.filters |= {"join": _join, "replace": _replace_filter, "format": _format, "tojson": _tojson}
        self.filters |= {"length": traced.length, "count": traced.length, "safe": traced.safe}
        del self.filters["random"]  # the same conversation must give the same bytes
        self.globals |= {"raise_exception": _raise_exception, "dict": _Dict(), "namespace": _Namespace}
        del self.globals["lipsum"]

    @staticmethod
    def concat(parts: Iterable[str]) -> str:
        """Joins what a template writes; keeps traces."""
        return traced.concat(parts)

    def getattr(self, obj: Any, attribute: str) -> Any:
        """Returns what `obj.attribute` is; fields of messages at once, without asking for a method of that name."""
        if type(obj) is not dict or hasattr(dict, attribute):
            return super().getattr(obj, attribute)
        return obj[attribute] if attribute in obj else self.undefined(obj=obj, name=attribute)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """Computes `left % right`."""
        compute = functools.partial(super().call_binop, context, operator, left)
        return traced.follow(right, compute) if isinstance(left, str) else compute(right)

    def call(self, context: Any, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Calls what a template calls."""
        # The sandbox wraps `format` to make it safe.
        owner, name = getattr(getattr(obj, "__wrapped__", obj), "__self__", None), getattr(obj, "__name__", "")
        if isinstance(owner, str):
            given = {key: value for key, value in kwargs.items() if key not in ("_loop_vars", "_block_vars")}
            if name == "join" and len(args) == 1:
                return traced.join(owner, args[0])
            if name == "replace" and len(args) > 1:
                return _replace(owner, *args, **given)
            if name == "format":
                call = super().call
                return traced.follow((args, given), lambda all_: call(context, obj, *all_[0], **all_[1]))
        return super().call(context, obj, *args, **kwargs)


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
