# SPDX-License-Identifier: Apache-2.0
"""A Python for commands of tests that starts at once: each is forked from a process that has imported everything.

`python()` is the path of a program that takes `-m MODULE`, `-c CODE` or a script and their arguments, as Python does;
with other options it is Python. A command is a process of its own, with the folder, environment, streams and exit code
that it would have; signals reach it, and it ends with who asked for it. Most of what a command of a second takes are
imports, which this saves.

Not for commands whose start is what a test shows: without streams, in other environments, of an installation. Nor for
those that a test kills and then takes to be gone: what it kills is the process that asks.
"""

import array
import atexit
import contextlib
import functools
import json
import os
import signal
import socket
import sys

_LENGTH = 8
"""Bytes of the length before what is sent."""


@functools.cache
def python() -> str:
    """Starts a server for as long as this process lives, and returns the path of the program that asks it."""
    import subprocess
    import tempfile

    if sys.platform != "linux":  # elsewhere, what the imports have loaded may not survive a fork
        return sys.executable
    folder = tempfile.TemporaryDirectory(prefix="tokenmill-forking-", ignore_cleanup_errors=True)
    program, address = os.path.join(folder.name, "python"), os.path.join(folder.name, "socket")
    with open(program, "w", encoding="utf-8", opener=functools.partial(os.open, mode=0o755)) as file:
        file.write(f'#!/bin/sh\nexec "{sys.executable}" -IS "{__file__}" "{address}" "$@"\n')
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen(64)
    # It ends with this process, however that ends: then nobody holds the other end of its stdin.
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    command = [sys.executable, "-m", "tests.forking", str(listener.fileno())]
    server = subprocess.Popen(command, cwd=root, stdin=subprocess.PIPE, pass_fds=[listener.fileno()])
    listener.close()
    atexit.register(lambda: (server.stdin.close(), server.wait(), folder.cleanup()))
    return program


def _ask(address: str, arguments: list[str]) -> int:
    """Has the server run a command with the streams of this process; returns how it ended, as `wait` has it."""
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(address)
        ignored = signal.getsignal(signal.SIGINT) == signal.SIG_IGN
        content = json.dumps([arguments, os.getcwd(), dict(os.environ), ignored]).encode("utf-8", "surrogateescape")
        server.sendmsg(
            [len(content).to_bytes(_LENGTH, "little")],
            [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0, 1, 2]))],
        )
        server.sendall(content)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            if signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, lambda number, _: server.send(bytes([number])))
        status = server.recv(_LENGTH)
        if len(status) < _LENGTH:
            raise ConnectionError("the process that runs commands of tests has ended")
        return int.from_bytes(status, "little")


def _serve(listener: socket.socket) -> tuple[list[str], bool]:
    """Forks for each that asks; returns, in the child, the arguments and whether to ignore SIGINT."""
    import gc
    import select
    import warnings

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those that answer
    gc.freeze()
    while listener in select.select([listener, 0], [], [])[0]:
        connection, _ = listener.accept()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python 3.12 warns of the threads of a library, which survives a fork
            answering = os.fork()
        if answering:
            connection.close()
            continue
        listener.close()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        head, streams, _, _ = socket.recv_fds(connection, _LENGTH, 3)
        content = connection.recv(int.from_bytes(head, "little"), socket.MSG_WAITALL)
        arguments, folder, environment, ignored = json.loads(content.decode("utf-8", "surrogateescape"))
        child = os.fork()
        if child:
            _answer(connection, child)
        connection.close()
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environment)
        return arguments, ignored
    os._exit(0)


def _answer(connection: socket.socket, child: int) -> None:
    """Passes signals on to a child, and its end to who asked for it; whose own end is the child's, too."""
    import select

    ended = os.pidfd_open(child)
    while ended not in select.select([connection, ended], [], [])[0]:
        number = connection.recv(1)
        os.kill(child, number[0] if number else signal.SIGKILL)
        if not number:
            break
    status = os.waitpid(child, 0)[1]
    with contextlib.suppress(OSError):
        connection.sendall(status.to_bytes(_LENGTH, "little"))
    os._exit(0)


def _import_everything() -> None:
    import importlib
    import logging
    import pkgutil

    # As the command line has it, which is too late for a forked one.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    silent = logging.NullHandler()
    logging.getLogger().addHandler(silent)  # else Beam adds one when it finds that a library is missing
    import tokenmill.pipeline

    for module in pkgutil.walk_packages(tokenmill.pipeline.__path__, "tokenmill.pipeline."):
        importlib.import_module(module.name)
    logging.getLogger().removeHandler(silent)


def _run(arguments: list[str]) -> None:
    import runpy
    import types

    # Those that there are know what their files were when the server started, such as that one could seek in them.
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        old = getattr(sys, name)
        mode = "w" if number else "r"
        stream = open(number, mode, encoding=old.encoding, errors=old.errors, closefd=False)  # noqa: SIM115
        if number:
            by_line = number == 2 or stream.isatty()
            stream.reconfigure(line_buffering=by_line, write_through="PYTHONUNBUFFERED" in os.environ)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    what, *rest = arguments
    paths = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    sys.path[:1] = ["" if what.startswith("-") else os.path.dirname(os.path.abspath(what)), *paths]
    if what == "-m":
        sys.argv = rest
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
        return
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    if what == "-c":
        sys.argv, code = [what, *rest[1:]], compile(rest[0], "<string>", "exec")
    else:
        sys.argv, main.__file__ = arguments, what
        with open(what, "rb") as file:
            code = compile(file.read(), what, "exec")
    exec(code, main.__dict__)


if __name__ == "__main__":
    if sys.argv[1].isdecimal():
        _import_everything()
        arguments, ignored = _serve(socket.socket(fileno=int(sys.argv[1])))
        signal.signal(signal.SIGINT, signal.SIG_IGN if ignored else signal.default_int_handler)
        _run(arguments)
    elif sys.argv[2:3] not in (["-m"], ["-c"]) and (len(sys.argv) < 3 or sys.argv[2].startswith("-")):
        os.execv(sys.executable, [sys.executable, *sys.argv[2:]])
    else:
        status = _ask(sys.argv[1], sys.argv[2:])
        if os.WIFSIGNALED(status):
            with contextlib.suppress(OSError):  # of SIGKILL
                signal.signal(os.WTERMSIG(status), signal.SIG_DFL)
            os.kill(os.getpid(), os.WTERMSIG(status))
        sys.exit(os.WEXITSTATUS(status))
