# SPDX-License-Identifier: Apache-2.0
"""Jinja in a sandbox that bounds time and memory, and that keeps traces: a chat template is a stranger's program.

Loops, calls and filters take steps, more for longer inputs; texts are counted as they are made; numbers are looked at
where they are widths. Jinja's immutable sandbox keeps a template from everything but its arguments.
"""

import functools
import json
import re
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NoReturn

import jinja2.exceptions
import jinja2.ext
import jinja2.nodes
import jinja2.sandbox
import jinja2.utils
from jinja2.compiler import CodeGenerator

from tokenmill.tokenizer.chat import traced
from tokenmill.tokenizer.chat.traced import Origin, Run, Traced

MAX_TEXT = 1 << 25
"""The most characters of any string that a template makes, the rendered text included."""
MAX_MADE = 1 << 28
"""The most characters of all strings that a template makes while it renders one conversation."""
MAX_STEPS, STEPS_PER_MESSAGE = 300_000, 3_000
"""How many times a template may go round a loop, call or add something, while it renders one conversation."""
_MAX_NUMBER = 10_000
"""The largest width, count or indent."""
_SHORT = 256
"""Sums of texts up to this are not counted: there are not so many, as loops take steps."""
_MAX_NODES = 1_000_000
"""The most values in what becomes JSON."""

GENERATION = Origin(-1, "generation")
"""The origin of what a `{% generation %}` block has rendered."""


class TemplateError(ValueError):
    """A template is broken, refuses a conversation, or takes more time or memory than it may."""


class RefusedError(TemplateError):
    """A template says itself, by `raise_exception`, that it does not take this conversation."""


class _Budget(threading.local):
    steps = 0
    made = 0


_budget = _Budget()


def _step(n: int = 1) -> None:
    _budget.steps -= n
    if _budget.steps < 0:
        raise jinja2.exceptions.SecurityError("the template takes too many steps for so few messages")


def _check_size(size: int) -> None:
    if size > MAX_TEXT:
        raise jinja2.exceptions.SecurityError(f"the template makes a text of more than {MAX_TEXT:,} characters")


def _count_made(value: Any) -> Any:
    """Counts what a template has made; returns it."""
    if isinstance(value, str):
        _check_size(len(value))
        _budget.made += len(value)
        if _budget.made > MAX_MADE:
            raise jinja2.exceptions.SecurityError(
                f"the template makes texts of more than {MAX_MADE:,} characters in all"
            )
    return value


def _check_widths(values: Iterable[Any]) -> None:
    """Refuses large numbers where they are widths, counts or indents."""
    for value in values:
        if isinstance(value, int | float) and not -_MAX_NUMBER <= value <= _MAX_NUMBER:
            raise jinja2.exceptions.SecurityError(f"a width or a count above {_MAX_NUMBER:,}: {value!r}"[:100])


_WIDE = frozenset({"batch", "center", "indent", "slice", "truncate", "wordwrap"})
"""Filters of which numbers decide how much they make; `format` and `tojson` look at theirs themselves."""


def _bounded(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a filter that takes as many steps as its input is long, and no large widths."""

    @functools.wraps(function)  # copies the mark by which Jinja knows whether it wants the environment
    def filtered(*args: Any, **kwargs: Any) -> Any:
        sized = max((len(each) for each in args if isinstance(each, str | list | tuple | dict | range)), default=0)
        _step(1 + sized // 64)
        if name == "sum" and not isinstance(kwargs.get("start", [*args, 0, 0, 0][3]), int | float):
            args = (args[0], list(args[1]), *args[2:])
            _step(len(args[1]) ** 2 // 8)  # each sum copies what was summed before
        if name in _WIDE:
            _check_widths((*args, *kwargs.values()))
            numbers = [each for each in (*args, *kwargs.values()) if isinstance(each, int)]
            _check_size(max(map(abs, numbers), default=0) * max(1, sized // 64))
        return _count_made(function(*args, **kwargs))

    return filtered


def _counted(iterable: Any) -> Any:
    """Returns what a loop goes over, so that each round counts."""
    items = iterable if isinstance(iterable, str) or not hasattr(iterable, "__len__") else list(iterable)
    return _count(items) if not isinstance(items, list) else _CountedList(items)


def _count(items: Iterable[Any]) -> Iterable[Any]:
    for item in items:
        _step()
        yield item


class _CountedList(list[Any]):
    def __iter__(self) -> Any:
        return iter(_count(super().__iter__()))


def _join(separator: Any, parts: Iterable[Any]) -> str:
    parts = list(parts)
    _step(len(parts) // 64)
    texts = [part if isinstance(part, str) else str(part) for part in parts]
    _check_size(sum(map(len, texts)) + len(separator) * len(texts))
    return traced.join(separator, texts)


def _replace(text: Any, old: Any, new: Any, count: int | None = None) -> str:
    text, old, new = (each if isinstance(each, str) else str(each) for each in (text, old, new))
    _check_size(len(text) + (text.count(old) if old else len(text)) * len(new))
    return str(text.replace(old, new, -1 if count is None else count))


def _replace_filter(text: Any, old: Any, new: Any, count: int | None = None) -> str:
    return _replace(traced.plain(text), traced.plain(old), traced.plain(new), count)


def _format(text: Any, *args: Any, **kwargs: Any) -> str:
    _check_format(str(text))
    return str(text) % (kwargs or args)


def _join_filter(value: Any, d: str = "", attribute: str | int | None = None) -> str:
    if attribute is not None:
        value = [_attribute(item, attribute) for item in value]
    return _join(d, value)


def _attribute(item: Any, name: str | int) -> Any:
    for each in str(name).split("."):
        if isinstance(item, list) and each.isdecimal():
            item = item[int(each)] if int(each) < len(item) else ""
        else:
            item = item.get(each, "") if isinstance(item, Mapping) else ""
    return item


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    n, depths = _nodes(value)
    _step(n // 64)
    if indent is not None:
        _check_widths([indent])
        _check_size(depths * (indent if isinstance(indent, int) else len(indent)))

    def dumps(each: Any) -> str:
        return json.dumps(each, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    return traced.to_json(value, dumps)


def _nodes(value: Any) -> tuple[int, int]:
    """Returns how many values there are in a value, each as often as it is shown, and the sum of their depths."""
    left, n, depths = [(value, 1)], 0, 0
    while left:
        each, depth = left.pop()
        n += 1
        depths += depth
        if n > _MAX_NODES:
            raise jinja2.exceptions.SecurityError(f"JSON of more than {_MAX_NODES:,} values")
        if isinstance(each, dict | list | tuple):
            left.extend((inner, depth + 1) for inner in (each.values() if isinstance(each, dict) else each))
    return n, depths


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
    """Compiles templates, and runs them within the bounds that `begin` sets."""

    code_generator_class = _Generator
    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self) -> None:
        """Has the filters and functions that `transformers` gives to templates, but for `strftime_now`."""
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, jinja2.ext.loopcontrols])
        own = {"join": _join_filter, "replace": _replace_filter, "format": _format, "tojson": _tojson}
        own |= {"length": traced.length, "count": traced.length, "safe": traced.safe}
        self.filters = {name: _bounded(name, each) for name, each in {**self.filters, **own}.items()}
        self.filters["tokenmill_counted"] = _counted
        del self.filters["random"]  # the same conversation must give the same bytes
        self.globals |= {"raise_exception": _raise_exception, "dict": _Dict(), "namespace": _Namespace}
        del self.globals["lipsum"]

    @staticmethod
    def concat(parts: Iterable[str]) -> str:
        """Joins what a template writes; keeps traces."""
        made: list[str] = []
        size = 0
        for part in parts:
            size += len(part)
            if size > MAX_TEXT:
                _check_size(size)
            made.append(part)
        text: str = _count_made(traced.concat(made))
        return text

    def _parse(self, source: str, name: str | None, filename: str | None) -> jinja2.nodes.Template:
        tree = super()._parse(source, name, filename)
        for loop in tree.find_all(jinja2.nodes.For):
            counted = jinja2.nodes.Filter(loop.iter, "tokenmill_counted", [], [], None, None)
            loop.iter = counted.set_lineno(loop.lineno).set_environment(self)
        return tree

    def getattr(self, obj: Any, attribute: str) -> Any:
        """Returns what `obj.attribute` is; fields of messages at once, without asking for a method of that name."""
        if type(obj) is not dict or hasattr(dict, attribute):
            return super().getattr(obj, attribute)
        return obj[attribute] if attribute in obj else self.undefined(obj=obj, name=attribute)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Returns whether a template may use an attribute."""
        # Bytes would be outside of all bounds, and a table of characters makes a long text of each.
        is_open = attr in ("encode", "translate", "maketrans", "format_map") and isinstance(obj, str)
        return not is_open and super().is_safe_attribute(obj, attr, value)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """Computes `left operator right`."""
        if operator == "+" and isinstance(left, str):  # by far the most frequent; steps are those of the loop around
            result = left + right
            return _count_made(result) if len(result) > _SHORT else result
        _step()
        if operator == "*":
            for text, times in ((left, right), (right, left)):
                if hasattr(text, "__len__") and isinstance(times, int):
                    _check_size(len(text) * max(0, times))
        if operator == "%" and isinstance(left, str):
            _check_format(left)
        if operator == "**" and (not isinstance(right, int | float) or abs(right) > 100 or abs(left) > _MAX_NUMBER):
            raise jinja2.exceptions.SecurityError(f"{left!r} ** {right!r}"[:100])
        result = super().call_binop(context, operator, left, right)
        if isinstance(result, list | tuple):
            _check_size(len(result))
            _step(len(result) // 64)
        elif isinstance(result, int) and result.bit_length() > 4096:
            raise jinja2.exceptions.SecurityError("the template computes with a number of more than 4,096 bits")
        return _count_made(result)

    def call(self, context: Any, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Calls what a template calls."""
        # The sandbox wraps `format` to make it safe.
        owner, name = getattr(getattr(obj, "__wrapped__", obj), "__self__", None), getattr(obj, "__name__", "")
        _step(1 + (len(owner) // 64 if isinstance(owner, str | list | dict) else 0))
        if isinstance(owner, str):
            if name == "join" and len(args) == 1:
                return _count_made(_join(owner, args[0]))
            if name in ("ljust", "rjust", "center", "zfill", "expandtabs"):
                _check_widths((*args, *kwargs.values()))
                _check_size(
                    len(owner) * (max((a for a in args if isinstance(a, int)), default=8) if name[0] == "e" else 1)
                )
            if name == "replace" and len(args) > 1:
                kwargs = {key: value for key, value in kwargs.items() if key not in ("_loop_vars", "_block_vars")}
                return _count_made(_replace(owner, *args, **kwargs))
            if name == "format":
                _check_format(owner)
        return _count_made(super().call(context, obj, *args, **kwargs))


_FORMAT = re.compile(r"%[^a-zA-Z%]*(?:[0-9]{5}|\*)|\{[^{}]*:[^{}]*(?:[0-9]{5}|\{)")


def _check_format(text: str) -> None:
    """Refuses formats such as `%9999999d` and `%*d`, which make a long text of a short one."""
    if _FORMAT.search(text):
        raise jinja2.exceptions.SecurityError(
            f"a format with a width of five digits, or from elsewhere: {text[:100]!r}"
        )


def begin(n_messages: int) -> None:
    """Gives a template what it may use to render a conversation of so many messages."""
    _budget.steps, _budget.made = MAX_STEPS + STEPS_PER_MESSAGE * n_messages, 0
