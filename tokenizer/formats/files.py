# SPDX-License-Identifier: Apache-2.0
"""Reading and writing tokenizer files: bounded size, clear errors, atomic writes."""

import codecs
import contextlib
import gc
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tokenmill.tokenizer.errors import TokenizerFileError
from tokenmill.tokenizer.formats import mistakes

MAX_FILE_BYTES = 512 << 20
"""The largest file to read. No real tokenizer file is near this size; a larger one is a mistake or an attack."""


GGUF = b"GGUF"
MAX_GGUF_BYTES = 128 << 20
"""The most bytes to read of a GGUF file; vocabulary, merges and templates of real ones take up to 20 MB."""


@contextlib.contextmanager
def without_collecting() -> Iterator[None]:
    """Pauses the garbage collector, which would go through a vocabulary again and again while it is read.

    That would be 40% of the time to load a hundred thousand tokens. Several threads may do this at the same time.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@contextlib.contextmanager
def named_in_errors(source: Path | str) -> Iterator[None]:
    """Turns every ValueError that is no TokenizerFileError into one, which names the file."""
    try:
        yield
    except TokenizerFileError:
        raise
    except ValueError as error:
        raise TokenizerFileError(f"{source}: {error}") from error


def read_bytes(path: Path) -> bytes:
    """Reads a file of at most `MAX_FILE_BYTES`, without the byte order mark that some editors put before UTF-8.

    Raises:
      TokenizerFileError: if it is larger, or begins like a file of another kind. OSError: if it cannot be read.
    """
    with path.open("rb") as handle:
        head = handle.read(mistakes.N_FIRST_BYTES)
        if head.startswith(GGUF):
            return head + handle.read(MAX_GGUF_BYTES)  # weights come after the tokenizer, and may be of any size
        check_kind(head, path)
        if handle.seek(0, os.SEEK_END) > MAX_FILE_BYTES:
            raise TokenizerFileError(f"{path}: longer than {MAX_FILE_BYTES} bytes, which no tokenizer file is")
        handle.seek(0)
        return handle.read(MAX_FILE_BYTES).removeprefix(codecs.BOM_UTF8)


def check_kind(head: bytes, path: Path | str) -> None:
    """Checks that a file that begins with these bytes may be a tokenizer.

    Raises:
      TokenizerFileError: if it is of another kind; the message says of which.
    """
    if what := mistakes.from_first_bytes(head[: mistakes.N_FIRST_BYTES].removeprefix(codecs.BOM_UTF8)):
        raise TokenizerFileError(f"{path}: this is {what}")


def decode(data: bytes, path: Path | str) -> str:
    """Decodes the UTF-8 of a file.

    Raises:
      TokenizerFileError: if it is not UTF-8; the message says where.
    """
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise TokenizerFileError(f"{path}: not UTF-8 at byte {error.start}: {error.reason}") from error


def read_text(path: Path) -> str:
    """Reads a UTF-8 file; errors are those of `read_bytes` and `decode`."""
    return decode(read_bytes(path), path)


def write_bytes(path: Path, data: bytes) -> None:
    """Writes a file atomically: no reader ever sees half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as out:
            out.write(data)
            out.flush()
            os.fsync(out.fileno())
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:  # an interrupt leaves no half-written file either
        Path(name).unlink(missing_ok=True)
        raise
