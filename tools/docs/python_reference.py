# SPDX-License-Identifier: Apache-2.0
"""Writes the page of the public Python API: every public name of the packages, its signature and its docstring.

Signatures are read from the sources, with types as their authors wrote them: objects have them only in the long form of
the interpreter, which differs between versions of Python.
"""

import ast
import dataclasses
import importlib
import inspect
import re
import sys
import textwrap
import types
from collections.abc import Iterator
from typing import Any

PAGE = "docs/reference/python.md"

MODULES = {
    "tokenizer": "Tokenizers over columns of text. Knows neither Beam nor the pipeline.",
    "tokenmill.tokenizer.text": "What happens to text before a tokenizer sees it.",
    "tokenmill.tokenizer.trainers": "Word counts in, models out.",
    "tokenmill.tokenizer.vocabulary": "Other vocabularies for existing tokenizers, from word counts, with proof.",
    "tokenmill.tokenizer.languages": "The language of each document, and steps by language.",
    "tokenmill.data": "Finished outputs as training data. Imports NumPy and pyarrow only.",
    "tokenmill": "All public names under one name that no other package has, and what Beam graphs of your own need.",
}
"""Module -> a line about it, in the order of the page."""

_HEAD = """\
# Python API

```python
import pyarrow as pa

from tokenmill import Tokenizer

tok = Tokenizer.from_file("build/quickstart/out/vocab")
ids = tok.encode_arrow(pa.array(["This is a text.", "And this!"]))
assert tok.decode(ids[0].as_py()) == "this is a text."
```

`tokenmill` has every name of `tokenizer`; import from either. Names that are not on this page may change.
A text column is a `pyarrow` array of strings. Ids are int32.
"""

_OURS = ("tokenizer.", "pipeline.", "tokenizer", "tokenmill")

_MEMBERS_LEFT_OUT = {
    "InputConfig": "Its fields are the keys of the section [`input`](config.md#input) of a config.",
    **dict.fromkeys(("ComputeAndApplyTokenizer",), ""),
}
"""Classes without their members on the page: these are Beam's, or described elsewhere."""


def public_names(module: str) -> list[str]:
    """Returns the public names that a module defines or re-exports, in alphabetical order."""
    package = importlib.import_module(module)
    names = [name for name in dir(package) if not name.startswith("_")]
    return [name for name in names if _is_ours(module, getattr(package, name), name)]


def _is_ours(module: str, found: Any, name: str) -> bool:
    if isinstance(found, types.ModuleType):
        return False
    home = getattr(found, "__module__", None)
    is_callable = inspect.isclass(found) or inspect.isroutine(found) or hasattr(found, "__wrapped__")
    # A module that is no package also has the names that it imports; its own are those that it defines.
    if not hasattr(sys.modules[module], "__path__") and not hasattr(sys.modules[module], "__all__"):
        return home == module if is_callable else name in _constants(module)
    return not is_callable or str(home).startswith(_OURS)


def page() -> str:
    """Returns the page."""
    lines = [_HEAD]
    seen: dict[int, str] = {}
    for module, words in MODULES.items():
        lines += ["", f"## {module}", "", words, ""]
        package = importlib.import_module(module)
        passed_on: list[str] = []
        for name in public_names(module):
            found = getattr(package, name)
            first = seen.setdefault(id(found), module) if not isinstance(found, str) else module
            if first != module:
                passed_on.append(f"`{name}`")
                continue
            lines += _entry(module, name, found)
        if passed_on:
            lines += [f"Passed on from above: {', '.join(passed_on)}.", ""]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).rstrip() + "\n"


def _entry(module: str, name: str, found: Any) -> Iterator[str]:
    yield f"### {module}.{name}"
    yield ""
    if inspect.isclass(found):
        yield from _class(name, found)
    elif inspect.isroutine(found) or hasattr(found, "__wrapped__"):
        yield from _code(_signature(_definition(inspect.unwrap(found))))
        yield from _doc(found)
    else:
        words = _constant_words(module, name)
        yield f"{words or f'A {type(found).__name__}.'}"
        yield ""
        if isinstance(found, str | int | float):
            yield from _code(f"{name} = {found!r}")


def _class(name: str, found: type) -> Iterator[str]:
    bases = [base.__name__ for base in found.__bases__ if base.__name__ not in ("object", "Generic")]
    yield from _code(_laid_out(f"class {name}", _constructor(found), ""))
    yield from _doc(found)
    public_bases = [base for base in bases if base in ("Exception", "ValueError", "Trainer", "NamedTuple", "TypedDict")]
    if public_bases:
        yield f"Base: `{', '.join(public_bases)}`."
        yield ""
    if name in _MEMBERS_LEFT_OUT:
        yield _MEMBERS_LEFT_OUT[name]
        yield ""
        return
    fields = _fields(found)
    made = dataclasses.is_dataclass(found)  # then all of them are in the signature
    told = [(field, *what) for field, what in fields.items() if what[2] or not made]
    if told:
        yield "Fields:"
        yield ""
        for field, annotation, default, words in told:
            named = field if made else f"{field}: {annotation}" + (f" = {default}" if default else "")
            yield f"- `{named}`{': ' if made and words else '. ' if words else ''}{words}"
        yield ""
    for member, (kind, definition) in _methods(found).items():
        if member in fields:
            continue
        yield f"#### {name}.{member}"
        yield ""
        if kind == "property":
            returns = f": {ast.unparse(definition.returns)}" if definition.returns else ""
            yield from _code(f"{member}{returns}")
        else:
            prefix = "" if kind == "method" else f"@{kind}\n"
            yield from _code(prefix + _signature(definition))
        yield from _markdown(
            inspect.getdoc(inspect.getattr_static(found, member)) or ast.get_docstring(definition) or ""
        )


def _constructor(found: type) -> list[str]:
    """Returns the arguments of a class: its fields, or those of its constructor."""
    if dataclasses.is_dataclass(found):
        fields = _fields(found).items()
        return [f"{field}: {of_type}{f' = {default}' if default else ''}" for field, (of_type, default, _) in fields]
    init = next((c.__dict__["__init__"] for c in found.__mro__ if "__init__" in c.__dict__), None)
    if not str(getattr(init, "__module__", "")).startswith(_OURS):
        return []
    return _arguments(_definition(init).args)[1:]


def _definition(function: Any) -> ast.FunctionDef:
    (node,) = ast.parse(textwrap.dedent(inspect.getsource(function))).body
    assert isinstance(node, ast.FunctionDef)
    return node


def _class_body(found: type) -> list[ast.stmt]:
    (node,) = ast.parse(textwrap.dedent(inspect.getsource(found))).body
    assert isinstance(node, ast.ClassDef)
    return node.body


def _classes(found: type) -> list[type]:
    """Returns a class and its base classes in our packages, itself last."""
    return [c for c in reversed(found.__mro__) if str(c.__module__).startswith(_OURS)]


def _fields(found: type) -> dict[str, tuple[str, str, str]]:
    """Returns the annotated public fields of a class: annotation, default, docstring."""
    fields: dict[str, tuple[str, str, str]] = {}
    for each in _classes(found):
        body = _class_body(each)
        for i, node in enumerate(body):
            if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
                continue
            name, annotation = node.target.id, ast.unparse(node.annotation)
            if name.startswith("_") or annotation.startswith("ClassVar"):
                continue
            below = body[i + 1] if i + 1 < len(body) else None
            fields[name] = (annotation, _default(node.value), _string(below))
    return fields


def _default(value: ast.expr | None) -> str:
    """Returns the default of a field as a reader needs it: `{}`, for example, for `field(default_factory=dict)`."""
    if value is None:
        return ""
    if isinstance(value, ast.Call) and ast.unparse(value.func).endswith("field"):
        given = {word.arg: word.value for word in value.keywords}
        factory = given.get("default_factory")
        if factory is not None:
            return {"dict": "{}", "list": "[]"}.get(ast.unparse(factory), f"{ast.unparse(factory)}()")
        return ast.unparse(given["default"]) if "default" in given else ""
    return ast.unparse(value)


def _string(node: ast.stmt | None) -> str:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
        return " ".join(inspect.cleandoc(node.value.value).split())
    return ""


def _methods(found: type) -> dict[str, tuple[str, ast.FunctionDef]]:
    """Returns the public methods and properties of a class, its own first, in the order of the source."""
    methods: dict[str, tuple[str, ast.FunctionDef]] = {}
    for each in reversed(_classes(found)):
        for node in _class_body(each):
            if not isinstance(node, ast.FunctionDef) or node.name in methods or node.name.startswith("_"):
                continue
            decorators = {ast.unparse(decorator).rpartition(".")[2] for decorator in node.decorator_list}
            if "setter" in decorators:
                continue
            kind = next((d for d in ("classmethod", "staticmethod") if d in decorators), "method")
            methods[node.name] = ("property" if decorators & {"property", "cached_property"} else kind, node)
    return methods


def _signature(definition: ast.FunctionDef) -> str:
    """Returns `name(arguments) -> type`."""
    returns = f" -> {_spelled(definition.returns)}" if definition.returns else ""
    return _laid_out(definition.name, _arguments(definition.args), returns)


def _spelled(annotation: ast.expr) -> str:
    """Returns a type as it is written, without the quotes that put off its import."""
    return str(annotation.value) if isinstance(annotation, ast.Constant) else ast.unparse(annotation)


def _laid_out(name: str, arguments: list[str], returns: str) -> str:
    """Returns a call on one line, or on several if it is too long for one."""
    if name.startswith("class ") and not arguments:
        return name
    one_line = f"{name}({', '.join(arguments)}){returns}"
    if len(one_line) <= 100:
        return one_line
    return f"{name}(\n" + "".join(f"    {argument},\n" for argument in arguments) + f"){returns}"


def _arguments(arguments: ast.arguments) -> list[str]:
    plain = [*arguments.posonlyargs, *arguments.args]
    defaults = [None] * (len(plain) - len(arguments.defaults)) + list(arguments.defaults)
    found = [_argument(argument, default) for argument, default in zip(plain, defaults, strict=True)]
    if arguments.vararg:
        found.append("*" + _argument(arguments.vararg, None))
    elif arguments.kwonlyargs:
        found.append("*")
    found += [_argument(a, d) for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)]
    if arguments.kwarg:
        found.append("**" + _argument(arguments.kwarg, None))
    return found


def _argument(argument: ast.arg, default: ast.expr | None) -> str:
    named = argument.arg + (f": {_spelled(argument.annotation)}" if argument.annotation else "")
    return named + (f" = {ast.unparse(default)}" if default is not None else "")


def _constants(module: str) -> set[str]:
    """Returns the public names that the source of a module assigns to."""
    tree = ast.parse(inspect.getsource(importlib.import_module(module)))
    return {
        target.id
        for node in tree.body
        for target in (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        if isinstance(target, ast.Name) and not target.id.startswith("_")
    }


def _constant_words(module: str, name: str) -> str:
    """Returns the docstring below a constant, in the module that defines it."""
    tree = ast.parse(inspect.getsource(importlib.import_module(module)))
    body = tree.body
    for i, node in enumerate(body):
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            return _string(body[i + 1] if i + 1 < len(body) else None)
    for each in ast.walk(tree):
        if isinstance(each, ast.ImportFrom) and any((a.asname or a.name) == name for a in each.names):
            return _constant_words(str(each.module), name)
    return ""


def _code(text: str) -> list[str]:
    # `text`, not `python`: it is a signature and does not run.
    return ["```text", text, "```", ""]


def _doc(found: Any) -> Iterator[str]:
    yield from _markdown(inspect.getdoc(found) or "")


_SECTION = re.compile(r"^(Args|Returns|Raises|Yields|Source|Known difference|Example):$")


def _markdown(doc: str) -> Iterator[str]:
    """Returns a docstring in Google style as Markdown: its sections as lists, everything else unchanged."""
    inside = ""
    for line in doc.splitlines():
        if section := _SECTION.match(line):
            inside = section[1]
            yield from ("", f"**{inside}**", "")
        elif inside and line.startswith("  ") and not line.startswith("   "):
            named = re.match(r"  ([\w*, ]+|`[^`]+`): (.*)", line)
            yield (
                f"- `{named[1].strip('`')}`: {named[2]}"
                if named and inside in ("Args", "Raises")
                else f"- {line.strip()}"
            )
        elif inside and line.strip():
            if not line.startswith(" "):
                inside = ""
            yield f"  {line.strip()}" if inside else line
        else:
            if line.strip():
                inside = ""
            yield line
    yield ""
