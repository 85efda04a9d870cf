# SPDX-License-Identifier: Apache-2.0
"""`.huggingface.yaml`: which files of a folder are the data, so that `datasets.load_dataset(folder)` reads its rows.

Without it `datasets` and hubs guess by names and endings: they take `vocab/training.json` for data to train on, and
tables of documents for rows.
"""

from collections.abc import Iterable, Sequence

from tokenmill.pipeline import filenames
from tokenmill.pipeline.books.ledger import FileRecord, to_json
from tokenmill.pipeline.output.vocabulary_files import write_file

_READABLE = ("parquet", "arrow")
"""The formats that `datasets` reads; of several, one is the data."""


def write(output: str, formats: Iterable[str], folders: Sequence[str] = ()) -> list[FileRecord]:
    """Writes the file, if `datasets` reads one of the formats; returns its record.

    Args:
      output: the output folder.
      formats: the formats of the shards.
      folders: those of parts: with one tokenizer they are one data set, with several one each.
    """
    format_ = next((each for each in _READABLE if each in {*formats}), None)
    if format_ is None:
        return []
    paths = {"default": {"train": [f"{name}/" for name in folders] or [""]}}
    if any(name.startswith("tokenizer=") for name in folders):
        paths = {name.partition("=")[2]: {"train": [f"{name}/"]} for name in folders}
    elif folders and "=" not in folders[0]:  # shares
        paths = {"default": {name: [f"{name}/"] for name in folders}}
    configs = [
        {
            "config_name": name,
            "data_files": [
                {"split": split, "path": [f"{place}tokens-*-of-*.{format_}" for place in places]}
                for split, places in splits.items()
            ],
        }
        for name, splits in paths.items()
    ]
    # JSON is YAML, and the same bytes whatever the version of a library.
    return [write_file(output, filenames.HUB, to_json({"configs": configs}))]
