# SPDX-License-Identifier: Apache-2.0
"""Builds the shared library of kernels that a wheel carries: `python -m tools.library build/library`.

What is in it says `tools/kernels.txt`, a line for each kernel and the types of its arguments, as
`machine_code.row` writes it. A test that runs a kernel for other types fails, and
`TOKENMILL_KERNELS=write ./run.sh test` adds what the tests run. The library is for this kind of machine, with any
Python and any numba, or none. A C compiler links it.
"""

import argparse
import ast
import importlib
import itertools
import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tokenmill.tokenizer.compiling import library

LIST = Path(__file__).with_name("kernels.txt")
_HEADER = "# Kernels of the tests, and the types of their arguments: what a wheel has compiled. See tools/library.py.\n"
_SPELLED = {"bmi1": "bmi", "abm": "lzcnt", "sse4_2": "sse4.2"}
"""Features that LLVM spells in another way than Linux."""
_X86 = ",".join(f"+{_SPELLED.get(name, name)}" for name in library.FEATURES.split())
_PORTABLE = (
    {"NUMBA_CPU_NAME": "x86-64-v3", "NUMBA_CPU_FEATURES": _X86}
    if platform.machine() == "x86_64"
    else {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": "+neon"}
)
"""numba's settings for code that runs on every processor of this kind."""


def listed(path: Path = LIST) -> set[str]:
    """Returns the rows of the list."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return {line for line in lines if line and not line.startswith("#")}


def write(rows: set[str]) -> None:
    """Writes the list, without the kernels that are gone or take other arguments."""
    kept = sorted(row for row in rows if _fits(row))
    LIST.write_text(_HEADER + "".join(f"{row}\n" for row in kept), encoding="utf-8")


def _fits(row: str) -> bool:
    try:
        kernel, kinds = parsed(row)
        names = kernel.__wrapped__.__code__.co_argcount
    except (ImportError, AttributeError, TypeError, ValueError, KeyError):
        return False
    return len(kinds) == names


def parsed(row: str) -> tuple[Any, tuple[Any, ...]]:
    """Returns the kernel of a row, and numba's types of its arguments.

    Raises:
      ImportError, AttributeError, TypeError, KeyError: there is no such kernel, or no such maker of kernels.
      ValueError: a tuple among the arguments has another length than its class.
    """
    origin, _, kinds = row.partition("\t")
    module, _, name = origin.partition(":")
    made: Any = importlib.import_module(module)
    call = ast.parse(name, mode="eval").body
    if isinstance(call, ast.Call):
        name = ast.unparse(call.func)
        given = {option.arg: ast.literal_eval(option.value).split(":") for option in call.keywords if option.arg}
        options = {key: getattr(importlib.import_module(at), of) for key, (at, of) in given.items()}
        return getattr(made, name)(**options), tuple(_types(iter(kinds.split())))
    return getattr(made, name), tuple(_types(iter(kinds.split())))


def _types(words: Iterator[str]) -> Iterator[Any]:
    """Yields numba's types of the arguments that words describe."""
    from numba.core import types

    for word in words:
        if ":" in word:
            name, _, n = word.partition(":")
            module, _, name = name.rpartition(".")
            of = getattr(importlib.import_module(module), name)
            if n != str(len(getattr(of, "_fields", range(int(n))))):
                raise ValueError(f"{name} has {len(of._fields)} fields, not {n}")
            values = list(itertools.islice(_types(words), int(n)))
            yield types.BaseTuple.from_types(values, of)
        elif "*" in word:
            name, _, shape = word.partition("*")
            yield types.Array(
                types.boolean if name == "bool" else getattr(types, name), int(shape[0]), shape[1:] or "C"
            )
        else:
            yield {"bool": types.boolean, "None": types.none}.get(word) or getattr(types, word)


def build(folder: Path, rows: Path = LIST) -> Path:
    """Builds a library of a list's kernels for this kind of machine in a folder; returns its path."""
    folder.mkdir(parents=True, exist_ok=True)
    n = os.cpu_count() or 1
    command = [sys.executable, "-m", "tools.library", str(folder), str(rows)]
    running = [subprocess.Popen([*command, str(i), str(n)], env=os.environ | _PORTABLE) for i in range(n)]
    codes = [process.wait() for process in running]
    if any(codes):
        raise SystemExit("a kernel cannot be compiled")
    path = folder / library.PATH.name
    # Without `-lm`: functions such as `log` are those that Python has loaded, in whatever version of the C library.
    options = ["-Wl,-undefined,dynamic_lookup"] if sys.platform == "darwin" else ["-Wl,--gc-sections,--strip-all"]
    objects = [str(folder / f"{library.symbol(row)}.o") for row in sorted(listed(rows))]
    subprocess.run([os.environ.get("CC", "cc"), "-shared", "-o", str(path), *objects, *options], check=True)
    return path


def compile_share(folder: Path, rows: Path, i: int, n: int) -> None:
    """Compiles every n-th row of a list to an object file, for the processor that numba's variables name."""
    from llvmlite import binding

    from tokenmill.tokenizer.compiling import numba_compiler

    machine = None
    for row in sorted(listed(rows))[i::n]:
        kernel, kinds = parsed(row)
        name = library.symbol(row)
        compiled = numba_compiler.compiled(kernel.dispatcher, kinds, name, vectorize=kernel.vectorize)
        module = binding.parse_bitcode(compiled.serialize_using_object_code()[2][1])
        module.get_function(name).linkage = "external"
        machine = machine or binding.Target.from_default_triple().create_target_machine(
            cpu=os.environ["NUMBA_CPU_NAME"], features=os.environ["NUMBA_CPU_FEATURES"], opt=3, reloc="pic"
        )
        (folder / f"{name}.o").write_bytes(machine.emit_object(module))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tools.library", description=__doc__, allow_abbrev=False)
    parser.add_argument("folder", type=Path, help="where the library goes; it is made if it is not there")
    parser.add_argument("share", nargs="*", help="LIST I N: compile only every N-th kernel of a list, from the I-th on")
    given = parser.parse_args()
    if given.share:
        path, i, n = given.share
        compile_share(given.folder, Path(path), int(i), int(n))
    else:
        print(build(given.folder))
