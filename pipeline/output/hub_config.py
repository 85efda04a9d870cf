# SPDX-License-Identifier: Apache-2.0
"""`.huggingface.yaml`: which files of a folder are the data, so that `datasets.load_dataset(folder)` reads its rows.

Without it `datasets` and hubs guess by names and endings: they take `vocab/training.json` for data to train on, and
tables of documents for rows.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from tokenmill.pipeline import filenames
from tokenmill.pipeline.books.ledger import FileRecord, to_json
from tokenmill.pipeline.output.vocabulary_files import write_file

_READABLE = ("parquet", "arrow")
"""The formats that `datasets` reads; of several, one is the data."""


def configs(formats: Iterable[str], partitions: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Returns the value of `configs` in the metadata of a data set; none if `datasets` reads none of the formats.

    Args:
      formats: the formats of the shards.
      partitions: the folders of a job with several: of one tokenizer they are one data set, of several one each.
    """
    format_ = next((each for each in _READABLE if each in {*formats}), None)
    if format_ is None:
        return []
    paths = {"default": {"train": [f"{name}/" for name in partitions] or [""]}}
    if any(name.startswith("tokenizer=") for name in partitions):
        paths = {name.partition("=")[2]: {"train": [f"{name}/"]} for name in partitions}
    elif partitions and "=" not in partitions[0]:  # parts of `output.splits`
        paths = {"default": {name: [f"{name}/"] for name in partitions}}
    return [
        {
            "config_name": name,
            "data_files": [
                {"split": split, "path": [f"{folder}tokens-*-of-*.{format_}" for folder in folders]}
                for split, folders in splits.items()
            ],
        }
        for name, splits in paths.items()
    ]


def write(output: str, formats: Iterable[str], partitions: Sequence[str] = ()) -> list[FileRecord]:
    """Writes the file, if `datasets` reads one of the formats; returns its record. Arguments as for `configs`."""
    found = configs(formats, partitions)
    # JSON is YAML, and the same bytes whatever the version of a library.
    return [write_file(output, filenames.HUB, to_json({"configs": found}))] if found else []
