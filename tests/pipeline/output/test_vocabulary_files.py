# SPDX-License-Identifier: Apache-2.0
"""The files of a tokenizer in an output folder."""

import tempfile

from tokenmill.pipeline.output.vocabulary_files import vocabulary_files
from tokenmill.tokenizer import Tokenizer


def test_a_worker_whose_own_disk_is_full_can_make_them(tiny_vocab_file, tmp_path, monkeypatch):
    tokenizer = Tokenizer.from_file(tiny_vocab_file)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "is not there"))
    files = vocabulary_files(tokenizer, None)
    assert [*files] == ["vocab/tokenizer.json", "vocab/vocab.txt"]
    assert files["vocab/vocab.txt"] == tiny_vocab_file.read_bytes()
