# SPDX-License-Identifier: Apache-2.0
"""The files of a tokenizer in an output folder: `vocab/tokenizer.json`, and other requested formats.

A vocabulary that a job has trained is written in every format that can hold it. A tokenizer from a file is written
once, as the job used it, since the user has the file already.
"""

import contextlib
from collections.abc import Iterable, Sequence

from tokenmill.pipeline import filenames, storage
from tokenmill.pipeline.books import ledger
from tokenmill.pipeline.books.ledger import FileRecord
from tokenmill.pipeline.config.job import Config
from tokenmill.pipeline.config.output import VOCABULARY_FORMATS, OutputConfig
from tokenmill.tokenizer import Tokenizer


def formats_of(config: Config) -> Sequence[str] | None:
    """Returns the formats to write besides `tokenizer.json`; None for all that can hold the tokenizer."""
    if config.output.vocabulary is None and config.tokenizer.train is None:
        return []
    return config.output.vocabulary


def check_formats(tokenizer: Tokenizer, output: OutputConfig) -> None:
    """Raises ValueError if a requested format cannot hold the tokenizer."""
    for name in output.vocabulary or ():
        _contents(tokenizer, name)


def vocabulary_files(tokenizer: Tokenizer, formats: Iterable[str] | None, folder: str = "") -> dict[str, bytes]:
    """Returns `vocab/tokenizer.json` and the files of other formats by name; with `vocab.json` also `merges.txt`.

    Args:
      tokenizer: the tokenizer to write.
      formats: some of `config.output.VOCABULARY_FORMATS`; None for all that can hold the tokenizer.
      folder: the folder below `vocab/`, if there are several vocabularies.

    Raises:
      ValueError: if one of `formats` cannot hold the tokenizer.
    """
    base = f"{filenames.VOCABULARY}/{folder}/" if folder else f"{filenames.VOCABULARY}/"
    others: dict[str, bytes] = {}
    for name in VOCABULARY_FORMATS if formats is None else formats:
        # Some formats belong to another family of tokenizers, or cannot express this one.
        with contextlib.suppress(ValueError) if formats is None else contextlib.nullcontext():
            others |= _contents(tokenizer, name)
    files = {"tokenizer.json": tokenizer.to_str().encode(), **dict(sorted(others.items()))}
    return {base + name: data for name, data in files.items()}


def _contents(tokenizer: Tokenizer, name: str) -> dict[str, bytes]:
    try:
        return tokenizer.files(name)
    except ValueError as error:
        raise ValueError(f"output.vocabulary: {error}") from error


def write_file(output: str, name: str, data: bytes) -> FileRecord:
    """Writes a file of the output folder, whole or not at all, and returns its record."""
    storage.write_atomic(storage.join(output, name), data)
    return ledger.describe(output, name)
