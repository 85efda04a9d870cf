# SPDX-License-Identifier: Apache-2.0
"""Recognizes files that are no tokenizer, or not a supported one, by their first bytes, and says what to do instead."""

import json
import re
from typing import Any

_WEIGHTS = "weights of a model; the tokenizer is in another file, tokenizer.json for example"
_PACKED = "unpack it and name the tokenizer file in it"
_MAGIC: tuple[tuple[bytes, str], ...] = (
    (b"version https://git-lfs.github.com/", "a pointer of git-lfs, not the file; get it with `git lfs pull`"),
    (b"PK\x03\x04", "a zip archive, as PyTorch's weights are; " + _PACKED),
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
_SENTENCEPIECE_VOCAB = re.compile(r"[^\t]+\t-?\d+(?:\.\d+)?(?:e-?\d+)?")
N_FIRST_BYTES = 4096
"""The most bytes to look at, or this many lines of them:"""
N_LINES = 16


def from_first_bytes(head: bytes) -> str | None:
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
    if not head.strip(b"\0"):
        return "zeros; a download that broke off, perhaps: get it again"
    lines = head.decode("utf-8", "replace").splitlines()[:-1][:N_LINES]
    if len(lines) > 1 and all(map(_SENTENCEPIECE_VOCAB.fullmatch, lines)):
        return "the list of pieces that sentencepiece writes for people; use the .model beside it"
    return None


def of_json(fields: dict[str, Any]) -> str | None:
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
    return None
