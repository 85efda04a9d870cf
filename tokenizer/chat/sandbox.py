# SPDX-License-Identifier: Apache-2.0
"""Jinja in its immutable sandbox, which keeps a template from everything but its arguments, and keeps traces.

How much time and memory a template takes is not looked at here: `rendering` runs it in a process with limits.
"""

import functools
import json
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

import jinja2.exceptions
import jinja2.ext
import jinja2.filters
import jinja2.nodes
import jinja2.sandbox
import jinja2.utils
from jinja2.compiler import CodeGenerator

from tokenmill.tokenizer.chat import traced
from tokenmill.tokenizer.chat.errors import RefusedError
from tokenmill.tokenizer.chat.traced import GENERATION, Run, Traced

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
