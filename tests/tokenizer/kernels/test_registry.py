# SPDX-License-Identifier: Apache-2.0
"""The registry of kernels is their docstrings: arrays with dtype, shape and direction, reference implementation and
test of each file.

How an array is described says `tokenizer/kernels/__init__.py`. What a kernel reads and writes is found in its source
and in that of the parts it calls, as far as arrays go under their own names. `pytest -s` prints the table.
"""

import ast
import functools
import importlib
import inspect
import pkgutil
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest

from tokenmill import pipeline, tokenizer
from tokenmill.tokenizer.compiling.kernel import Kernel, kernel, kernel_part
from tokenmill.tokenizer.normalizers.kernels import matches

ROOT = Path(__file__).parents[3]
LACKING = {
    # Other libraries read what it writes.
    "tokenmill.pipeline.output.writers.parquet_kernels names no reference implementation",
    "tokenmill.tokenizer.sampling_kernels names no reference implementation",
}
"""What is not described yet. It may only shrink."""
_ARRAY = re.compile(r"\b(u?int(8|16|32|64)|float(32|64)|bool)(\[| with room| of the same size)")
_WRITTEN = re.compile(r"\b(filled|changed|added to|for work)\b")
_NAMES = r"(?:\w+(?:, | and ))*\w+"
_ENTRY = re.compile(rf"({_NAMES}): (.*?)(?=[.;]? {_NAMES}: | (?:Returns|Raises|Source): |$)")
_TWIN = re.compile(r"Its reference implementations? (?:is|are) (?:(.+?); |in )`(tests/[\w/]+\.py)`")


class Uses(NamedTuple):
    """Which arguments of a function are arrays, which of them it writes, and which are tuples of arrays."""

    arrays: set[str]
    written: set[str]
    tuples: set[str]


def _modules() -> Iterator[ModuleType]:
    for package in (tokenizer, pipeline):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.endswith("__main__"):
                yield importlib.import_module(module.name)


@functools.cache
def _all() -> tuple[dict[str, Kernel], dict[str, type]]:
    """Returns all kernels and their parts, and all named tuples, by their names."""
    kernels, tuples = {}, {}
    for module in _modules():
        for value in vars(module).values():
            if isinstance(value, Kernel) and value.__module__ == module.__name__:
                kernels[f"{module.__name__}.{value.__name__}"] = value
            if isinstance(value, type) and issubclass(value, tuple) and value.__module__ == module.__name__:
                tuples[value.__name__] = value
    kernels[f"{matches.__name__}.{matches.find_runs.__name__}"] = matches.find_runs
    return kernels, tuples


KERNELS = {name: found for name, found in _all()[0].items() if not found._is_part}


@functools.cache
def _uses(function: Any) -> Uses:
    tree = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    assert isinstance(tree, ast.FunctionDef)
    names = inspect.getclosurevars(function)
    known = {**names.globals, **names.nonlocals}
    found = Uses(set(), set(), set())
    for node in ast.walk(tree):
        match node:
            case ast.Subscript(value=ast.Name(id=name), ctx=context):
                found.arrays.add(name)
                if isinstance(context, ast.Store):
                    found.written.add(name)
            case ast.Attribute(value=ast.Name(id=name), attr="size" | "shape") | ast.For(iter=ast.Name(id=name)):
                found.arrays.add(name)
            case ast.Attribute(value=ast.Name(id=name)) | ast.Assign(targets=[ast.Tuple()], value=ast.Name(id=name)):
                found.tuples.add(name)
            case ast.Call(func=ast.Name(id="store_u64"), args=[ast.Name(id=name), *_]):
                found.arrays.add(name)
                found.written.add(name)
            case ast.Call(func=ast.Name(id="load_u64"), args=[ast.Name(id=name), *_]):
                found.arrays.add(name)
            case ast.Call(func=ast.Name(id=name), args=arguments) if isinstance(known.get(name), Kernel):
                called = known[name].__wrapped__
                theirs = _uses(called)
                for given, taken in zip(arguments, inspect.signature(called).parameters, strict=False):
                    if isinstance(given, ast.Name):
                        for mine, other in zip(found, theirs, strict=True):
                            if taken in other:
                                mine.add(given.id)
    arguments = set(inspect.signature(function).parameters)
    return Uses(*(each & arguments for each in found))


def _described(function: Any) -> dict[str, tuple[str, str]]:
    """Returns what a docstring says of each argument that it names, and of all that it says this together with."""
    found: dict[str, tuple[str, str]] = {}
    for item in re.split(r"\n(?= *(?:\w+, )*\w+:)|\n *\n", inspect.getdoc(function) or ""):
        together = " ".join(item.split())
        for names, said in _ENTRY.findall(together):
            for name in set(re.findall(r"\w+", names)) - {"and"}:
                found[name] = said, together
    return found


def _said(name: str, function: Any, depth: int = 3) -> Iterator[tuple[str, str]]:
    """Yields what is said of an argument: there, in what the docstring names, and in that of the file."""
    if name in _described(function):
        yield _described(function)[name]
    for other in re.findall(r"`(?:\w+\.)*(\w+)`", inspect.getdoc(function) or "") if depth else ():
        for full, found in _all()[0].items():
            if full.endswith(f".{other}") and found.__wrapped__ is not function:
                yield from _said(name, found.__wrapped__, depth - 1)
    yield from _said_in(name, sys.modules[function.__module__])


def _said_in(name: str, module: ModuleType, depth: int = 2) -> Iterator[tuple[str, str]]:
    if name in _described(module):
        yield _described(module)[name]
    for other in re.findall(r"`(\w+)`", module.__doc__ or "") if depth else ():
        beside = sys.modules.get(f"{module.__package__}.{other}")
        if beside is not None:
            yield from _said_in(name, beside, depth - 1)


def lacks() -> set[str]:
    """Returns what is not described."""
    found = set()
    for name, made in KERNELS.items():
        uses = _uses(made.__wrapped__)
        for array in uses.arrays - uses.tuples:
            said = list(_said(array, made.__wrapped__))
            if not any(_ARRAY.search(itself) for itself, _ in said):
                found.add(f"{name}: {array} has no dtype and shape")
            elif array in uses.written and not any(_WRITTEN.search(together) for _, together in said):
                found.add(f"{name}: {array} is written")
        for given in uses.tuples:
            said = " ".join(itself for itself, _ in _said(given, made.__wrapped__))
            if not {*re.findall(r"\w+", said)} & {*_all()[1], "reference"} and not _ARRAY.search(said):
                found.add(f"{name}: {given} has no type")
            for word in {*re.findall(r"\w+", said)} & _all()[1].keys():
                found |= {f"{word}: {field} has no dtype and shape" for field in _undescribed(_all()[1][word])}
    for module in {made.__module__ for made in KERNELS.values()}:
        if _twin(module) is None:
            found.add(f"{module} names no reference implementation")
    return found


def _undescribed(named_tuple: type) -> set[str]:
    """Returns the fields with arrays of which neither the text below nor the docstring says dtype and shape."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(named_tuple))).body[0]
    assert isinstance(tree, ast.ClassDef)
    waiting, found = set(), set()
    for node in tree.body:
        match node:
            case ast.AnnAssign(target=ast.Name(id=name)) if "NDArray" in ast.unparse(node.annotation):
                waiting.add(name)
            case ast.Expr(value=ast.Constant(value=str(said))) if waiting:
                found |= set() if _ARRAY.search(said) else waiting
                waiting = set()
    return {field for field in found | waiting if not _ARRAY.search(_described(named_tuple).get(field, ("", ""))[0])}


def _twin(module: str) -> tuple[list[str], str] | None:
    said = _TWIN.search(" ".join((importlib.import_module(module).__doc__ or "").split()))
    return said and (re.findall(r"`([\w.]+)`", said[1] or ""), said[2])


def test_every_kernel_says_what_it_reads_and_writes() -> None:
    for name, made in sorted(KERNELS.items()):
        arrays, written, tuples = map(sorted, _uses(made.__wrapped__))
        print(f"{name}: arrays {arrays}, of which it writes {written}; tuples of arrays {tuples}")
    found = lacks()
    assert not found - LACKING, "describe these in their docstrings, see tokenizer/kernels/__init__.py"
    assert not LACKING - found, "these are described: take them out of LACKING"


@pytest.mark.parametrize("module", sorted({made.__module__ for made in KERNELS.values() if _twin(made.__module__)}))
def test_twins_and_tests_are_there(module: str) -> None:
    found = _twin(module)
    assert found is not None
    twins, test = found
    assert (ROOT / test).is_file()
    for twin in twins:
        pkgutil.resolve_name(twin)


@kernel_part
def _fill(tables, out):
    out[0] = tables.size


@kernel
def _example(data, tables, out):
    """Does this and that.

    data: uint8[n]; out: int32 with room for all, filled.
    """
    _fill(tables, out)
    return data[0]


def test_what_parts_write_and_what_nothing_is_said_of_is_found() -> None:
    assert _uses(_example.__wrapped__) == Uses({"data", "tables", "out"}, {"out"}, set())
    assert _described(_example.__wrapped__).keys() == {"data", "out"}
