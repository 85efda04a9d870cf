# SPDX-License-Identifier: Apache-2.0
"""Ranks and merges, line by line."""

import base64
from pathlib import Path

import pytest

from tokenmill.tokenizer import Tokenizer
from tokenmill.tokenizer.errors import TokenizerFileError
from tokenmill.tokenizer.formats import tiktoken_ranks
from tokenmill.tokenizer.trainers import BPETrainer


@pytest.mark.parametrize(
    "line", [" x", "= x", "YQ==", "YQ== ", "YQ=\u0663 1", "YQ= 1", "YQ===1", "Y=Q= 1", "Y 1", "YWI= x", "YWI= 1 2"]
)
def test_a_line_that_is_no_rank_is_an_error(line: str) -> None:
    with pytest.raises(TokenizerFileError, match=r"^ranks, line 2: expected base64 and a rank, got"):
        tiktoken_ranks.read_lines(f"YQ== 0\n{line}\n", "ranks")


def test_a_rank_of_no_bytes_is_left_free(tmp_path: Path) -> None:
    tiktoken_load = pytest.importorskip("tiktoken.load", reason="needs the test group: tiktoken")
    path = tmp_path / "multilingual.tiktoken"
    lines = [f"{base64.b64encode(bytes([b])).decode()} {b}" for b in range(256)]
    path.write_text("\n".join([*lines, "= 256", "YWI= 257"]) + "\n")
    ours = Tokenizer.from_file(path, pattern="gpt2")
    theirs = tiktoken_load.load_tiktoken_bpe(str(path))
    assert (theirs[b""], theirs[b"ab"]) == (256, 257)
    assert ours.encode("abb").ids == [257, 98]
    assert ours.id_to_token(256) is None
    assert ours.n_ids == 258


def test_what_a_file_leaves_out_is_told(tmp_path: Path) -> None:
    bert = Tokenizer.for_bert(["[UNK]", "[CLS]", "[SEP]", "a"])
    assert bert.left_out(tmp_path / "vocab.txt") == bert.left_out("tokenizer.json") == []
    changed = bert.replace(normalizer=None)
    assert changed.left_out("vocab.txt") == ["this normalizer: null"]
    assert changed.left_out("x", format="vocab.txt") == ["this normalizer: null"]
    trainer = BPETrainer(vocab_size=260, byte_level=True, special_tokens=["<s>"])
    gpt2 = Tokenizer.untrained("none", "gpt2", byte_level=True).train_from_iterator(["the the"], trainer)
    told = gpt2.left_out("x.tiktoken")
    assert told == ["how text is split, which is pattern='gpt2'", "1 special tokens, such as '<s>'"]
    gpt2.save(tmp_path / "x.tiktoken")
    assert Tokenizer.from_file(tmp_path / "x.tiktoken", pattern="gpt2").added_tokens == ()
