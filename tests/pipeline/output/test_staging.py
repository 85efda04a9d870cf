# SPDX-License-Identifier: Apache-2.0
"""Files on their way to their names, and the commit protocol: all of a split, or nothing; whatever disk is full."""

import hashlib
import os
import tempfile
from pathlib import Path

import numpy as np
import pytest

from tests.ledger_entries import SPLIT, commit, committed, entry_of
from tokenmill.pipeline import storage
from tokenmill.pipeline.books.ledger import FileRecord
from tokenmill.pipeline.output.staging import StagedFile, Staging
from tokenmill.pipeline.output.vocabulary_files import vocabulary_files
from tokenmill.tokenizer import Tokenizer


def test_staged_files_know_their_size_and_digest(tmp_path):
    file = StagedFile("a.bin", str(tmp_path / "staged"))
    assert file.write(b"abc") == 3
    file.write(memoryview(np.arange(3, dtype=np.int32)))  # a buffer whose length is not its bytes
    assert file.tell() == 15
    record = file.finish(rows=4, tokens=5)
    data = b"abc" + np.arange(3, dtype=np.int32).tobytes()
    assert record == FileRecord("a.bin", 15, hashlib.sha256(data).hexdigest(), 4, 5)
    assert (tmp_path / "staged").read_bytes() == data


def test_the_entry_comes_last(tmp_path, monkeypatch):
    """Whatever rename fails, there is no entry, and the next attempt succeeds."""
    rename = storage.rename
    for n_before_failure in range(4):
        output = str(tmp_path / f"out{n_before_failure}")
        calls = []

        def fail(source, destination, calls=calls, allowed=n_before_failure):
            if len(calls) == allowed:
                raise OSError("disk full")
            calls.append(destination)
            rename(source, destination)

        monkeypatch.setattr(storage, "rename", fail)
        with pytest.raises(OSError, match="disk full"):
            commit(output)
        monkeypatch.setattr(storage, "rename", rename)
        assert not any("_ledger" in path for path in calls)
        assert committed(output) is None
        assert os.listdir(os.path.join(output, "_tmp")) == []
        commit(output)
        assert committed(output) == entry_of()


def test_two_attempts_never_share_a_file(tmp_path):
    with Staging(str(tmp_path), SPLIT.id) as one, Staging(str(tmp_path), SPLIT.id) as two:
        a, b = one.create("x"), two.create("x")
        a.write(b"one")
        b.write(b"two")
        a.finish()
        b.finish()
        assert [Path(file.path).read_bytes() for file in (a, b)] == [b"one", b"two"]


def test_a_worker_whose_own_disk_is_full_can_make_them(tiny_vocab_file, tmp_path, monkeypatch):
    tokenizer = Tokenizer.from_file(tiny_vocab_file)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "is not there"))
    files = vocabulary_files(tokenizer, None)
    assert [*files] == ["vocab/tokenizer.json", "vocab/vocab.txt"]
    assert files["vocab/vocab.txt"] == tiny_vocab_file.read_bytes()
