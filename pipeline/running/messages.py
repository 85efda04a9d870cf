# SPDX-License-Identifier: Apache-2.0
"""What a user is told of an error inside a job, once: runners raise it as text, log it, and print it as well."""

import builtins
import contextlib
import logging
import re
import sys
import threading
from collections.abc import Iterator
from typing import Any, TextIO


def explain(error: BaseException, output: str = "") -> str:
    """Returns the message of an error inside a job, without the tracebacks that runners wrap around it.

    Runners pass errors on as text: `RuntimeError("Traceback ... ValueError: the message [while running 'Step']")`.
    An error of the system about a path below `output`, the folder of the job, names its key in the config.
    """
    name = type(error).__name__
    if name in ("_MultiThreadedRendezvous", "_InactiveRpcError"):  # gRPC's, whose text has many lines
        return f"the runner or its job server cannot be reached: {error.details()}"  # type: ignore[attr-defined]
    if name == "FutureTimeoutError":  # gRPC's, without a text
        return "no job server answers at --job_endpoint; correct it, or wait longer by --job_server_timeout=SECONDS"
    text = str(error)
    if "Traceback (most recent call last):" in text:
        last = text.rpartition("Traceback (most recent call last):\n")[2].rstrip()
        # Frames are indented; the first line that is not names the error, and its message runs to the end.
        found = re.search(r"^([^\s:][^\n:]*)(?:: (.*))?\Z", last, re.MULTILINE | re.DOTALL)
        if found:
            name, text = found[1].rpartition(".")[2], found[2] or ""
    text = re.sub(r" \[while running '[^']*'\]", "", text).replace("\n(on host ", " (on host ").strip()
    if name == "RuntimeError" and (wrapped := re.match(r"(\w+(?:Error|Exception)): ", text)):
        name, text = wrapped[1], text[wrapped.end() :]
    kind = getattr(builtins, name, None)
    if isinstance(kind, type) and issubclass(kind, OSError) and output and output in text:
        text = f"output.path: {text}"
    says_enough = isinstance(kind, type) and issubclass(kind, OSError | ValueError)
    if text and (says_enough or name in ("RuntimeError", "BooksError", "TokenizerFileError")):
        return text
    return f"{name}: {text}".rstrip(": ")


_REPEATING = (
    *("apache_beam.runners.common", "apache_beam.runners.worker", "apache_beam.runners.portability.fn_api_runner"),
    *("apache_beam.utils.subprocess_server", "apache_beam.runners.portability.portable_runner", "PrismRunner"),
    "apache_beam.runners.portability.local_job_service",
)
"""Loggers that warn only of how workers and servers were started, and log errors that are raised as well."""


@contextlib.contextmanager
def without_repetitions() -> Iterator[None]:
    """Keeps Beam from logging, with its traceback, an error that the block raises as well, or what is no news."""
    loggers = [logging.getLogger(name) for name in _REPEATING]
    levels = [each.level for each in loggers]
    for each in loggers:
        each.setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(_says_more)
    try:
        yield
    finally:
        logging.getLogger().removeFilter(_says_more)
        for each, level in zip(loggers, levels, strict=True):
            each.setLevel(level)


def configure_logging(*, debug: bool = False) -> None:
    """Sets up logging for a command line: quiet unless `debug`. Call it before Beam is imported.

    Importing Beam logs a warning through the root logger, which installs a handler of Python's choosing and makes
    every later `basicConfig` a no-op.
    """
    handler = _StderrHandler()
    handler.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
    handler.addFilter(lambda record: debug or _says_more(record))
    logging.basicConfig(level=logging.INFO if debug else logging.WARNING, handlers=[handler], force=True)
    level = logging.NOTSET if debug else logging.CRITICAL
    for name in _REPEATING:
        logging.getLogger(name).setLevel(level)
    threading.excepthook = threading.__excepthook__ if debug else _report_thread_error


def _says_more(record: logging.LogRecord) -> bool:
    """Returns whether a log record adds something to the error with which the job will fail."""
    # Not what job servers pass on, nor what Prism logs. Other output of Prism, not in its log format, tells of its end.
    is_repeated = record.module == "portable_runner" or record.name.startswith(("PrismRunner", "SdkWorker@"))
    return not is_repeated and not str(record.msg).startswith("apitools not found")


# When a worker or a job server ends, its connections break, and the threads that read from them fail.
_THREADS_OF_RUNNERS = (
    *("beam_control_read", "read_grpc_client_inputs", "read_state", "read_log_control_messages"),
    *("forward_grpc_outputs", "wait_until_finish", "run_worker"),
)


def _report_thread_error(args: threading.ExceptHookArgs) -> None:
    """Prints nothing for errors in a runner's threads: the job fails with the reason."""
    if args.thread is None or not args.thread.name.startswith(_THREADS_OF_RUNNERS):
        threading.__excepthook__(args)


class _StderrHandler(logging.StreamHandler[Any]):
    """Writes to the current `sys.stderr`, which a progress display may have replaced."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> TextIO:
        return sys.stderr


def silence_workers() -> None:
    """Keeps Beam's workers (2.77) in this process from printing, one each, the traceback that the runner raises, too.

    For good: a job may fail, and its other workers after it.
    """
    from apache_beam.runners.worker import sdk_worker

    sdk_worker.print = lambda *_, **__: None  # type: ignore[attr-defined]  # found before the built-in one
