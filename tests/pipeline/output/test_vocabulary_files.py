# SPDX-License-Identifier: Apache-2.0
"""The files of a tokenizer in an output folder."""

import tempfile

from tokenmill.pipeline.output.vocabulary_files import write_vocabulary
from tokenmill.tokenizer import Tokenizer


def test_a_worker_whose_own_disk_is_full_can_write_them(tiny_vocab_file, tmp_path, monkeypatch):
    tokenizer = Tokenizer.from_file(tiny_vocab_file)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "is not there"))
    written = write_vocabulary(str(tmp_path / "out"), tokenizer, None)
    assert [record.file for record in written] == ["vocab/tokenizer.json", "vocab/vocab.txt"]
    assert (tmp_path / "out/vocab/vocab.txt").read_bytes() == tiny_vocab_file.read_bytes()
