# SPDX-License-Identifier: Apache-2.0
"""Finished jobs in all formats that can be read in any order."""

from pathlib import Path

import pytest

from tests.plain_job import PlainJob

FORMATS = ["parquet", "arrow", "memmap", "megatron"]
PACKING = {"length": 16, "separator": "[SEP]", "boundaries": ["cu_seqlens", "segment_ids"]}
TEXTS = [" ".join("the mill grinds text a texts".split()[(i * 7 + j) % 6] for j in range(i % 23)) for i in range(97)]


@pytest.fixture(scope="session")
def session_vocab(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("vocab") / "vocab.txt"
    path.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"the mill grinds text a ##s".split()]))
    return path


@pytest.fixture(scope="session")
def jobs(tmp_path_factory, session_vocab) -> dict[str, PlainJob]:
    """Rows that are documents, and packed ones."""
    folder = tmp_path_factory.mktemp("jobs")
    of = {"documents": {"format": FORMATS}, "packed": {"format": FORMATS[::-1], "packing": PACKING}}
    return {name: PlainJob(folder, TEXTS, session_vocab, name, output=output).run() for name, output in of.items()}
