# SPDX-License-Identifier: Apache-2.0
"""The list of kernels, and a library that is built of it: complete, and called by any Python without numba."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numba
import numpy as np
import pytest

from tests.tokenizer.kernels.test_registry import _all
from tokenmill.tokenizer.compiling import library, machine_code
from tools import library as building

ROWS, ALL = building.listed(), _all()[0]

needs_compiler = pytest.mark.skipif(shutil.which(os.environ.get("CC", "cc")) is None, reason="needs a C compiler")


def test_every_kernel_is_listed_or_called_by_one() -> None:
    codes = [found.__wrapped__.__code__ for found in ALL.values()]
    called = {name for code in codes for name in (*code.co_names, *code.co_freevars)}
    text = "".join(ROWS)
    unlisted = {
        found.origin
        for found in ALL.values()
        if not found._is_part and found.__name__ not in called and found.origin not in text
    }
    assert not unlisted, "run the tests of these with TOKENMILL_KERNELS=write"


def test_every_row_is_a_kernel_that_takes_these_arguments() -> None:
    wrong = {row for row in ROWS if not building._fits(row)}
    assert not wrong, "any run with TOKENMILL_KERNELS=write takes these away"


def test_a_row_tells_the_types_of_all_arguments() -> None:
    kinds = machine_code.signature((np.zeros((2, 2), np.uint8), (np.zeros(1, bool), 1, True, None, 1.0, np.uint8(1))))
    assert kinds is not None
    row = machine_code.row("a:b", kinds)
    assert row == "a:b\tuint8*2 builtins.tuple:6 bool*1 int64 bool None float64 uint8"
    array, (flags, *scalars) = building._types(iter(row.partition("\t")[2].split()))
    assert (array.dtype, array.ndim, array.layout) == (numba.uint8, 2, "C")
    assert (flags.dtype, flags.ndim) == (numba.boolean, 1)
    assert scalars == [numba.int64, numba.boolean, numba.none, numba.float64, numba.uint8]


OUTLIVED = """
import ctypes, gc
from tokenmill.tokenizer.compiling import library
made = library.function_at(id(None), "kernel")
method = ctypes.c_void_p.from_address(id(made) + 16).value  # where Python keeps what the function is
vars(library).clear()  # as when Python ends, while others still hold functions
gc.collect()
others = [(ctypes.c_char * 32)(*[b"x"] * 32) for _ in range(10_000)]
print(ctypes.c_void_p.from_address(method + 8).value == id(None))
"""


def test_functions_outlive_the_module_that_made_them() -> None:
    run = subprocess.run([sys.executable, "-c", OUTLIVED], capture_output=True, text=True, check=True)
    assert run.stdout == "True\n"


PROGRAM = """
import sys
from pathlib import Path
import numpy as np
from tokenmill.tokenizer.compiling import kernel, library
library.PATH = Path(sys.argv[1])
exec(sys.argv[2])
from tokenmill.tokenizer.models.double_array import trie_of
print(trie_of({b"ab": 0}).root_base, len(kernel.saved), "numba" in sys.modules or "llvmlite.binding" in sys.modules)
"""


def test_a_library_that_the_processor_cannot_run_is_not_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "PATH", Path(np._core._multiarray_umath.__file__))
    for can_run in (True, False):
        monkeypatch.setattr(library, "_can_run", lambda can_run=can_run: can_run)
        assert (library._library.__wrapped__() is not None) == can_run


@needs_compiler
def test_kernels_of_a_library_are_called_without_a_compiler(tmp_path: Path) -> None:
    (row,) = (row for row in ROWS if ":build_double_array\t" in row)
    (tmp_path / "kernels.txt").write_text(f"{row}\n")
    built = building.build(tmp_path / "built", tmp_path / "kernels.txt")

    def answers(before: str = "", **variables: str) -> list[str]:
        environment = os.environ | {"TOKENMILL_CACHE_DIR": str(tmp_path / "kernels")} | variables
        command = [sys.executable, "-c", PROGRAM, str(built), before]
        shutil.rmtree(tmp_path / "kernels", ignore_errors=True)
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.split()

    assert answers() == ["353", "0", "False"]
    assert answers("library.FEATURES = 'none'") == ["353", "1", "True"]
    assert answers(NUMBA_OPT="0") == ["353", "1", "True"]
    built.write_bytes(built.read_bytes()[:100])
    assert answers() == ["353", "1", "True"]
