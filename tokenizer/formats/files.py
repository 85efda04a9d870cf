# SPDX-License-Identifier: Apache-2.0
"""Reading and writing tokenizer files: bounded size, clear errors, atomic writes.

Files that are no tokenizer, or not a supported one, are told by their first bytes, with what to do instead.
"""

import codecs
import contextlib
import gc
import json
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tokenmill.tokenizer.errors import TokenizerFileError

MAX_FILE_BYTES = 512 << 20
"""The largest file to read. No real tokenizer file is near this size; a larger one is a mistake or an attack."""

_WEIGHTS = "weights of a model; the tokenizer is in another file, tokenizer.json for example"
_PACKED = "unpack it and name the tokenizer file in it"
_MAGIC: tuple[tuple[bytes, str], ...] = (
    (b"version https://git-lfs.github.com/", "a pointer of git-lfs, not the file; get it with `git lfs pull`"),
    (b"PK\x03\x04", "a zip archive, as PyTorch's weights are; " + _PACKED),
    (b"GGUF", "a GGUF file, " + _WEIGHTS + ", beside the model that this file was converted from"),
    (b"\x89HDF", "an HDF5 file, " + _WEIGHTS),
    (b"PAR1", "a Parquet file, which is data"),
    (b"\x28\xb5\x2f\xfd", "packed with zstd; " + _PACKED),
    (b"BZh9", "packed with bzip2; " + _PACKED),
    (b"\xfd7zXZ\x00", "packed with xz; " + _PACKED),
    (b"%PDF", "a PDF"),
    (b"\xff\xfe", "text in UTF-16; save it as UTF-8"),
    (b"\xfe\xff", "text in UTF-16; save it as UTF-8"),
    (b"\x7fELF", "a program"),
)
_PICKLE = re.compile(rb"\x80[\x02-\x05]")
_HTML = re.compile(rb"\s*<(?:!doctype\s+html|html|head|\?xml)\b", re.IGNORECASE)
_KERAS = re.compile(rb'\s*"?\{\s*\\?"class_name\\?":\s*\\?"Tokenizer\\?"')
_JSON_IN_STRING = re.compile(rb'\s*"(?:\s|\\[nrt])*\{(?:\s|\\[nrt])*\\"')
_TEMPLATE = re.compile(rb"\s*\{[%{#]")
_RWKV_LINE = re.compile(r"\d{1,9} (b?(?P<quote>['\"]).*(?P=quote)) \d{1,9}")
_SENTENCEPIECE_VOCAB = re.compile(r"[^\t]+\t-?\d+(?:\.\d+)?(?:e-?\d+)?")
_OF_TOKENIZER = {"version", "added_tokens", "normalizer", "pre_tokenizer", "post_processor", "decoder", "vocab"}
"""Fields of which a `tokenizer.json` or `tekken.json` has at least one, beside its model."""

N_FIRST_BYTES = 4096
"""The most bytes to look at, or this many lines of them:"""
N_LINES = 16


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
        head = handle.read(N_FIRST_BYTES)
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
    if what := _describe_start(head[:N_FIRST_BYTES].removeprefix(codecs.BOM_UTF8)):
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


def _describe_start(head: bytes) -> str | None:
    """Returns a description of a file that begins with these bytes; None if it may be a tokenizer."""
    if not head:
        return "an empty file"
    for magic, what in _MAGIC:
        if head.startswith(magic):
            return what
    if _PICKLE.match(head):
        return "a pickle, " + _WEIGHTS + "; it could run any program, so it is not opened"
    if head[8:10] == b'{"' and head[5:8] == b"\0\0\0":
        return "a safetensors file, " + _WEIGHTS
    if head[257:262] == b"ustar":
        return "a tar archive; " + _PACKED
    if _HTML.match(head):
        return "a web page, not the file; a download that was answered with an error, perhaps: get it again"
    if _KERAS.match(head):
        return (
            "a Tokenizer of Keras, a list of words and how often each occurred, which is not read; train a tokenizer "
            "with `tokenmill train`, or make a WordLevel tokenizer.json of its word_index"
        )
    if _JSON_IN_STRING.match(head):
        return "JSON inside a string of JSON; write what json.loads returns for it to a file, as it is"
    if _TEMPLATE.match(head):
        return "a template, of chats perhaps; name the folder, or tokenizer.json"
    if not head.strip(b"\0"):
        return "zeros; a download that broke off, perhaps: get it again"
    lines = head.decode("utf-8", "replace").splitlines()[:-1][:N_LINES]
    if len(lines) > 1 and all(map(_RWKV_LINE.fullmatch, lines)):
        return (
            "a vocabulary of RWKV, which is not read; name a tokenizer.json of the same model, or encode with the "
            "package rwkv"
        )
    if len(lines) > 1 and all(map(_SENTENCEPIECE_VOCAB.fullmatch, lines)):
        numbers = [float(line.rpartition("\t")[2]) for line in lines]
        if min(numbers) < 0 or not any(numbers):
            return "the list of pieces that sentencepiece writes for people; use the .model beside it"
        what = "ids" if numbers == [*range(int(numbers[0]), len(numbers) + int(numbers[0]))] else "numbers"
        return (
            f"a list of tokens and {what}, which does not say how they are made of text; use the tokenizer that it was "
            "written from, or, if it is BERT's and the ids are 0, 1, 2 and so on, `cut -f1` makes a vocab.txt of it"
        )
    return None


def describe_json(fields: dict[str, Any]) -> str | None:
    """Returns a description of a JSON object, None if it may be a tokenizer."""
    if "model" in fields:
        return None
    if "tokenizer_class" in fields or "added_tokens_decoder" in fields:
        return "what transformers notes beside a tokenizer; name the folder, or tokenizer.json"
    if "model_type" in fields or "architectures" in fields:
        return "the config of a model; name the folder, or tokenizer.json"
    if {"bos_token", "eos_token", "unk_token", "cls_token", "pad_token"} & fields.keys():
        return "a map of special tokens; name the folder, or tokenizer.json"
    if "error" in fields or "message" in fields:
        return (
            f"a message, {json.dumps(fields)[:80]}; a download that was answered with an error, perhaps: get it again"
        )
    if not _OF_TOKENIZER & fields.keys():
        names = ", ".join(repr(name)[:40] for name in list(fields)[:3]) or "nothing"
        return (
            f"JSON of something else than HF tokenizers, with {names} and no field 'model'; name a tokenizer.json, "
            "vocab.json with merges.txt, vocab.txt, SentencePiece model, or tiktoken's ranks"
        )
    return None
