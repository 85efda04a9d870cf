# SPDX-License-Identifier: Apache-2.0
"""What a compiled kernel's place in the cache depends on, and what calling one starts."""

import ast
import ctypes
import functools
import json
import os
import pickle
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numba
import numpy as np
import pytest

from tokenmill.tokenizer.compiling import kernel as compiling
from tokenmill.tokenizer.compiling import kernel_files, machine_code
from tokenmill.tokenizer.kernels import word_table

ROOT = Path(compiling.__file__).parents[3]


@functools.cache
def imported_kernels(path):
    """Returns the kernel files that Python itself would say a file imports."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        modules = []
        if isinstance(node, ast.Import):
            assert not any("kernels" in alias.name for alias in node.names), path
        elif isinstance(node, ast.ImportFrom):
            modules = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        for module in modules:
            if module.startswith("tokenmill.") and re.search(r"kernels(\.|$)", module):
                found.add(ROOT / f"{module.replace('.', '/')}.py")
    return {file for file in found if file.is_file()}


def closure(path):
    found, waiting = set(), [path]
    while waiting:
        path = waiting.pop()
        found.add(path)
        waiting += imported_kernels(path) - found
    return found


KERNEL_FILES = sorted(
    path for name in ("tokenmill/tokenizer", "tokenmill/pipeline", "tests") for path in (ROOT / name).rglob("*.py")
)


def test_a_cache_depends_on_every_file_that_is_compiled_into_it():
    for path in KERNEL_FILES:
        assert set(kernel_files.kernel_sources(path)) == closure(path), path


def run(program, cache=None):
    environment = os.environ | ({"TOKENMILL_CACHE_DIR": str(cache)} if cache else {})
    return subprocess.run(
        [sys.executable, "-c", program], env=environment, check=True, capture_output=True, text=True
    ).stdout.split()


TRIE = (
    "import sys; from tokenmill.tokenizer.models.double_array import trie_of; "
    "print(trie_of({b'ab': 0}).root_base, 'numba' in sys.modules, 'numba.np.arraymath' in sys.modules)"
)


def test_loading_a_compiled_kernel_does_not_import_numba(tmp_path):
    assert run(TRIE, tmp_path) == ["353", "True", "True"]
    assert run(TRIE, tmp_path) == ["353", "False", "False"]


def test_numbas_variables_cost_nothing_unless_they_change_code_and_then_one_compilation(tmp_path, monkeypatch):
    program = "from tests.tokenizer.compiling.test_kernel import double; print(double(5))"

    def compiles(**settings):
        environment = os.environ | {"TOKENMILL_CACHE_DIR": str(tmp_path)} | settings
        found = subprocess.run(
            [sys.executable, "-c", program], env=environment, check=True, capture_output=True, text=True
        )
        assert found.stdout == "10\n"
        return "".join(line for line in found.stderr.splitlines(keepends=True) if "waited" not in line)

    said = "tokenmill: compiling kernels {} (once; cached afterwards) ...\n"
    assert compiles() == said.format("for this machine")
    for name, value in {
        "CACHE_DIR": str(tmp_path), "THREADING_LAYER": "omp", "NUM_THREADS": "1", "CUDA_LOG_LEVEL": "DEBUG",
        "DISABLE_JIT": "1", "CACHE_LOCATOR_CLASSES": "InTreeCacheLocator", "SHOW_HELP": "1",
    }.items():  # fmt: skip
        assert compiles(**{f"NUMBA_{name}": value}) == "", name
    assert compiles(NUMBA_OPT="1") == said.format("with NUMBA_OPT")
    assert compiles(NUMBA_OPT="1", NUMBA_CACHE_DIR=str(tmp_path)) == ""
    assert compiles(NUMBA_OPT="2") == said.format("with NUMBA_OPT")
    assert compiles() == compiles(NUMBA_OPT="2") == ""
    assert len([*tmp_path.rglob("double-*.kernel")]) == 3


def test_a_file_of_numbas_settings_counts_as_they_do(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = kernel_files.numba_settings.__wrapped__()
    (tmp_path / ".numba_config.yaml").write_text("opt: 1\n")
    assert (before, kernel_files.numba_settings.__wrapped__()) == ({}, {".numba_config.yaml": "opt: 1\n"})


def test_processes_that_need_a_kernel_at_once_compile_it_once(tmp_path):
    program = (
        "import sys, threading; from tokenmill.tokenizer.compiling import kernel as compiling\n"
        "from tests.tokenizer.compiling.test_kernel import double\n"
        "print('ready', flush=True); sys.stdin.readline()\n"
        "threads = [threading.Thread(target=double, args=(5,)) for _ in range(3)]\n"
        "[thread.start() for thread in threads]; [thread.join() for thread in threads]\n"
        "print(len(compiling.saved), double(5))"
    )
    environment = os.environ | {"TOKENMILL_CACHE_DIR": str(tmp_path)}
    processes = [
        subprocess.Popen([sys.executable, "-c", program], env=environment, stdin=-1, stdout=-1, text=True)
        for _ in range(3)
    ]
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    for process in processes:  # only now, so that none is done before another has begun
        process.stdin.write("\n")
        process.stdin.flush()
    answers = [process.communicate()[0].split() for process in processes]
    assert sorted(answers) == [["0", "10"], ["0", "10"], ["1", "10"]]
    assert not list(tmp_path.rglob("*.lock"))


def test_a_process_that_dies_while_it_compiles_holds_up_nobody(tmp_path):
    pytest.importorskip("fcntl", reason="files are locked with flock")
    run("from tests.tokenizer.compiling.test_kernel import double; double(5)", tmp_path)
    (saved,) = tmp_path.rglob("double-*.kernel")
    saved.unlink()
    holder = subprocess.Popen(
        [sys.executable, "-c", "import fcntl, sys, time; f = open(sys.argv[1], 'wb'); fcntl.flock(f, fcntl.LOCK_EX); "
         "print(1, flush=True); time.sleep(600)", str(saved.with_suffix(".lock"))], stdout=-1,
    )  # fmt: skip
    assert holder.stdout.readline()
    waiter = subprocess.Popen(
        [sys.executable, "-c", "from tests.tokenizer.compiling.test_kernel import double; print(double(5))"],
        env=os.environ | {"TOKENMILL_CACHE_DIR": str(tmp_path)}, stdout=-1, text=True,
    )  # fmt: skip
    with pytest.raises(subprocess.TimeoutExpired):
        waiter.wait(2)
    holder.kill()
    holder.communicate()
    assert waiter.communicate()[0] == "10\n"


DAMAGES = {
    "cut off": lambda data: data[:-1],
    "empty": lambda data: b"",
    "another JSON": lambda data: b"[1]\n",
    "no names": lambda data: b"{}" + data[data.index(b"\n") :],
    "needs a symbol": lambda data: data.replace(b'"externals": [', b'"externals": ["no_such_symbol", ', 1),
    "has no entry": lambda data: data.replace(b'"entry": "', b'"entry": "no_such_', 1),
}


def test_machine_code_that_is_not_as_expected_is_compiled_again(tmp_path):
    run(TRIE, tmp_path)
    (saved,) = tmp_path.rglob("build_double_array-*.kernel")
    for name, damage in DAMAGES.items():
        before = saved.read_bytes()
        saved.write_bytes(damage(before))
        assert saved.read_bytes() != before
        assert run(TRIE, tmp_path) == ["353", "True", "True"], name
    assert run(TRIE, tmp_path) == ["353", "False", "False"]


def test_a_numba_that_the_shortcuts_do_not_fit_compiles_without_them(tmp_path):
    hidden = "import sys; sys.modules['tokenmill.tokenizer.compiling.numba_shortcuts'] = None; "
    environment = os.environ | {"TOKENMILL_CACHE_DIR": str(tmp_path)}
    found = subprocess.run(
        [sys.executable, "-c", hidden + TRIE], env=environment, check=True, capture_output=True, text=True
    )
    assert found.stdout.split() == ["353", "True", "True"]
    assert found.stderr.count("is new to this version, and compiles kernels in more time") == 1
    assert run(TRIE, tmp_path) == ["353", "False", "False"]  # what it has compiled is kept all the same


class One(NamedTuple):
    a: Any


class Another(NamedTuple):
    a: Any


def arguments():
    values = np.zeros((2, 2), np.int32)
    fixed = values.copy()
    fixed.flags.writeable = False
    arrays = [
        values, fixed, np.asfortranarray(values), np.zeros((4, 4), np.int32)[::2, ::2], values[0], np.array(0),
        np.zeros(9, np.uint8)[1:].view(np.int64),
    ]  # fmt: skip
    kinds = np.uint8, np.int32, np.uint32, np.int64, np.uint64, np.float32, np.float64, np.bool_
    scalars = 1, True, 1.0, None, np.int64(1), np.uint64(1), np.uint8(1), np.bool_(True)
    tuples = (), (1,), (1, 1), (1, (1,)), One(1), Another(1), One(1.0), (One(1), 1), One((1, 1)), One((1,))
    return [*arrays, *(np.zeros(2, kind) for kind in kinds), *scalars, *tuples]


def test_kinds_of_arguments_are_told_apart_where_numba_tells_them_apart():
    found = []
    for value in arguments():
        kind = numba.typeof(value)
        # Who may only read an array runs the same code as who may write it.
        kind = kind.copy(readonly=False) if isinstance(kind, numba.types.Array) else kind
        found.append((machine_code.signature((value,)), kind, value))
    for kinds, kind, value in found:
        assert kinds is not None, value
        for other_kinds, other_kind, other in found:
            assert (kinds == other_kinds) == (kind == other_kind), (value, other)
    assert machine_code.signature((1, (1,))) != machine_code.signature((1, 1))


def test_a_kernel_that_writes_is_not_compiled_for_what_must_not_be_written(monkeypatch, tmp_path):
    monkeypatch.setattr(kernel_files, "cache_directory", lambda *_, **__: tmp_path)
    values = np.zeros(1, np.int64)
    values.flags.writeable = False
    with pytest.raises(numba.errors.NumbaError, match=r"readonly"):
        compiling.kernel(write)(values)


def write(values):
    values[0] = 1


OTHERS = [
    1 << 63, -(1 << 63) - 1, "a", b"a", [1], 1j, np.float32(1), (1, "a"), One([]), np.ma.zeros(2),
    *(np.zeros(2, kind) for kind in (">i4", "i4,i4", "M8[s]", "U1", object, np.float16, np.complex64)),
]  # fmt: skip


@pytest.mark.parametrize("value", OTHERS, ids=repr)
def test_other_arguments_are_refused(value):
    assert machine_code.signature((value,)) is None
    with pytest.raises(
        TypeError, match=r"^kernel tests.*test_kernel:double is given what is no array, number or tuple"
    ):
        double(value)


def test_a_kernel_that_calls_one_from_the_cache_is_compiled(tmp_path):
    # Its code in the cache is for calling; for inlining it is read again.
    call = "from tests.tokenizer.compiling.test_kernel import {0}; print({0}(5))"
    assert run(call.format("double"), tmp_path) == ["10"]
    assert run(call.format("double"), tmp_path) == ["10"]
    assert run(call.format("quadruple"), tmp_path) == ["20"]
    assert run(call.format("quadruple"), tmp_path) == ["20"]


def test_encoding_does_not_import_what_it_does_not_need():
    program = (
        "import sys, pyarrow as pa; from tokenmill.tokenizer import Tokenizer; "
        "Tokenizer.for_bert(['[UNK]', 'mill']).encode_arrow(['mills']); "
        "print(*(name in sys.modules for name in ('regex', 'pyarrow.compute', 'tokenmill.tokenizer.trainers'))); "
        "from tokenmill import tokenizer; print(tokenizer.BPETrainer.__name__, 'BPETrainer' in dir(tokenizer))"
    )
    run(program)  # where a kernel is to be compiled, numba imports more
    assert run(program) == ["False", "False", "False", "BPETrainer", "True"]
    with pytest.raises(ImportError, match=r"cannot import name 'Trainers' from 'tokenmill\.tokenizer'"):
        from tokenmill.tokenizer import Trainers  # noqa: F401


@compiling.kernel
def double(n):
    """Returns 2n."""
    return n + n


@compiling.kernel
def quadruple(n):
    """Returns 4n."""
    return double(double(n))


@compiling.kernel
def divided(n, by):
    """Returns n // by."""
    return n // by


def test_errors_come_out_of_machine_code(tmp_path):
    program = (
        "import sys; from tests.tokenizer.compiling.test_kernel import divided\n"
        "try: divided(1, 0)\n"
        "except ZeroDivisionError as error: print(str(error).replace(' ', '_'))\n"
        "print(divided(7, 2))"
    )
    for _ in range(2):
        assert run(program, tmp_path) == ["integer_division_by_zero", "3"]


def test_kernels_are_pickled_by_name():
    kernel = word_table.rehash
    assert pickle.loads(pickle.dumps(kernel)) is kernel
    assert kernel.__doc__


def test_where_no_kernel_can_be_kept_every_place_is_told_with_its_reason(monkeypatch, tmp_path):
    source = tmp_path / "kernels.py"
    source.write_text("")
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TOKENMILL_CACHE_DIR", str(tmp_path / "file"))
    with pytest.raises(
        OSError, match=r"no directory .* can be used: .*file: (Not a directory|File exists)\. Set TOKENM"
    ):
        kernel_files.cache_directory(source)


def test_where_nothing_can_be_written_kernels_are_loaded_or_compiled_and_not_kept(tmp_path):
    # Root can write to any folder, so this is what a full disk says.
    refuse = (
        "import pathlib, tempfile\n"
        "def refuse(*_, **__): raise OSError(28, 'No space left on device')\n"
        "tempfile.TemporaryFile = tempfile.NamedTemporaryFile = pathlib.Path.mkdir = refuse\n"
    )
    (tmp_path / "kernels-others").mkdir()
    assert run(refuse + TRIE, tmp_path) == ["353", "True", "True"]
    assert [path.name for path in tmp_path.iterdir()] == ["kernels-others"]
    run(TRIE, tmp_path)
    assert run(refuse + TRIE, tmp_path) == ["353", "False", "False"]


def without_privileges():
    """In a process to be started as root: takes away the right to read and write what permissions forbid."""
    if os.geteuid() == 0:
        libc = ctypes.CDLL(None, use_errno=True)
        for capability in (1, 2):  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
            if libc.prctl(24, capability, 0, 0, 0):  # PR_CAPBSET_DROP
                raise OSError(ctypes.get_errno(), "prctl")


@pytest.mark.skipif(sys.platform != "linux", reason="root loses its privileges with prctl")
@pytest.mark.parametrize("home", ["forbidden", "read_only", "missing", "unknown", "file"])
def test_a_home_that_cannot_be_used_is_passed_over(tmp_path, home):
    folder, place = tmp_path / "home", tmp_path / "temporary"
    folder.mkdir()
    place.mkdir()
    environment = {name: value for name, value in os.environ.items() if name not in ("HOME", "XDG_CACHE_HOME")}
    environment |= {"HOME": str(folder), "TMPDIR": str(place)}
    environment.pop("TOKENMILL_CACHE_DIR", None)
    if home == "unknown":  # the user is not in the list of users
        environment["HOME"] = "~"
    elif home == "missing":
        folder.rmdir()
        environment["HOME"] = str(folder / "deeper")
        folder.touch()
    elif home == "file":
        folder.rmdir()
        folder.touch()
    else:
        folder.chmod(0 if home == "forbidden" else 0o500)
    program = (
        "from pathlib import Path; from tokenmill.tokenizer.compiling import kernel_files\n"
        "kernel_files.__file__ = '/proc/installed/kernel_files.py'  # where nobody may write\n"
        f"print(kernel_files.cache_directory(Path({__file__!r})))"
    )
    try:
        found = subprocess.run(
            [sys.executable, "-c", program], env=environment, cwd=tmp_path, preexec_fn=without_privileges,
            capture_output=True, text=True, check=False,
        )  # fmt: skip
    finally:
        if home == "forbidden":
            folder.chmod(0o700)
    assert (found.returncode, found.stderr) == (0, "")
    assert Path(found.stdout.strip()).parent == place / f"tokenmill-{os.getuid()}"
    assert not (tmp_path / "~").exists()


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A cache that holds the kernels of a source file, in a folder of its own."""
    monkeypatch.setenv("TOKENMILL_CACHE_DIR", str(tmp_path / "above" / "cache"))
    (tmp_path / "kernels.py").write_text("")
    kernel_files.cache_directory.cache_clear()
    return kernel_files.cache_directory(tmp_path / "kernels.py")


def another_place(place):
    """Returns the cache of the same file as a new process finds it."""
    kernel_files.cache_directory.cache_clear()
    return kernel_files.cache_directory(place.parents[2] / "kernels.py")


needs_root = pytest.mark.skipif(getattr(os, "getuid", lambda: 1)() != 0, reason="only root can give files away")


@needs_root
@pytest.mark.parametrize("level", [0, 1, 2])
def test_no_folder_on_the_way_to_compiled_code_is_another_users(place, level):
    owned = [place, *place.parents][level]
    os.chown(owned, 12345, -1)
    with pytest.raises(OSError, match=f"{owned} belongs to another user, whose compiled code is not run"):
        another_place(place)


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="no owners of files here")
def test_no_other_user_may_write_on_the_way_to_compiled_code(place):
    assert another_place(place) == place
    for path, mode, is_used in [
        (place, 0o770, False),
        (place, 0o1777, False),
        (place.parent, 0o777, False),
        (place.parents[1], 0o775, False),
        (place.parent, 0o1777, True),
        (place, 0o755, True),
    ]:
        before = path.stat().st_mode
        path.chmod(mode)
        if is_used:
            assert another_place(place) == place
        else:
            with pytest.raises(OSError, match=f"other users may write to {path}, and their compiled code is not run"):
                another_place(place)
        path.chmod(before)


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="no owners of files here")
def test_what_is_in_the_folder_of_compiled_code_must_be_own_files(place, tmp_path):
    kernel = place / "kernel-0.kernel"
    head = {"n_bytes": 0, "entry": "a", "environment": "b", "externals": []}
    kernel.write_text(json.dumps(head) + "\n")
    assert another_place(place) == place
    (tmp_path / "elsewhere").write_bytes(kernel.read_bytes())
    kernel.unlink()
    kernel.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="is not a file that only this user can write, and is not run"):
        another_place(place)
    assert machine_code.load(kernel) is None
    kernel.unlink()
    os.mkfifo(kernel)
    assert machine_code.load(kernel) is None
    with pytest.raises(OSError, match="is not run"):
        another_place(place)
    kernel.unlink()
    if os.getuid() == 0:
        kernel.write_text(json.dumps(head) + "\n")
        os.chown(kernel, 12345, -1)
        assert machine_code.load(kernel) is None
        with pytest.raises(OSError, match="is not run"):
            another_place(place)


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="no owners of files here")
def test_compiled_code_of_another_user_is_not_run(monkeypatch, tmp_path):
    source = tmp_path / "kernels.py"
    source.write_text("")
    monkeypatch.setenv("TOKENMILL_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(os, "getuid", lambda: tmp_path.stat().st_uid + 1)
    with pytest.raises(OSError, match="belongs to another user, whose compiled code is not run"):
        kernel_files.cache_directory(source)


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="no owners of files here")
def test_a_link_on_the_way_is_followed_once(place, tmp_path, monkeypatch):
    (tmp_path / "link").symlink_to(place.parent)
    monkeypatch.setenv("TOKENMILL_CACHE_DIR", str(tmp_path / "link"))
    assert another_place(place) == place


def test_an_edit_of_an_imported_file_renames_a_cache_and_no_other(tmp_path, monkeypatch):
    folder = tmp_path / "tokenmill/tokenizer/kernels"
    folder.mkdir(parents=True)
    (folder / "scanner.py").write_text("from tokenmill.tokenizer.kernels.utf8 import X\n")
    (folder / "other.py").write_text("")
    monkeypatch.setattr(kernel_files, "_ROOT", tmp_path)

    def forget():
        for remembered in (kernel_files._imports, kernel_files._kernel_files, kernel_files.sources_digest):
            remembered.cache_clear()

    def digests(source):
        (folder / "utf8.py").write_text(source)
        forget()
        return {name: kernel_files.sources_digest(folder / f"{name}.py") for name in ("utf8", "scanner", "other")}

    before, after = digests("X = 1\n"), digests("X = 2\n")
    forget()
    assert {name for name in before if before[name] != after[name]} == {"utf8", "scanner"}
