# SPDX-License-Identifier: Apache-2.0
"""What TokenMill is used for, run by an installation: `python repertoire.py FOLDER [VOCABULARY ...]`.

FOLDER has the inputs of the golden record and its jobs, as NAME.json, with the command of each in commands.json. This
imports nothing of the tests: it runs where only TokenMill is installed. It prints what was compiled, hopefully nothing.
"""

import contextlib
import io
import json
import os
import sys
from pathlib import Path

import tokenmill
from tokenmill.pipeline import cli
from tokenmill.tokenizer import Tokenizer, trainers
from tokenmill.tokenizer.compiling import kernel
from tokenmill.tokenizer.pre_tokenizers.known_patterns import TIKTOKEN_PATTERNS

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "<|end|>"]
COMPOSITIONS = [
    *(("none", name, True, trainers.BPETrainer(vocab_size=3000)) for name in TIKTOKEN_PATTERNS),
    ("bert", "bert", False, trainers.WordPieceTrainer(vocab_size=3000, special_tokens=SPECIAL)),
    ("bert", "bert", False, trainers.WordLevelTrainer(vocab_size=3000, special_tokens=["<unk>"])),
    ("nfkc", "metaspace", False, trainers.UnigramTrainer(vocab_size=3000, hard_vocab_limit=False)),
    ("nmt_nfkc", "whitespace_metaspace", False, trainers.UnigramTrainer(vocab_size=3000, hard_vocab_limit=False)),
    ("sentencepiece", "none", False, trainers.UnigramTrainer(vocab_size=3000, hard_vocab_limit=False)),
    ("sentencepiece", "metaspace", False, trainers.BPETrainer(vocab_size=3000)),
    ("nfc", "whitespace", False, trainers.BPETrainer(vocab_size=3000, special_tokens=SPECIAL)),
    ("nfc", "cl100k_base", False, trainers.WordPieceTrainer(vocab_size=3000, special_tokens=SPECIAL)),
    ("nfc", "gpt2", True, trainers.UnigramTrainer(vocab_size=3000, hard_vocab_limit=False)),
]
"""Normalizer, pre-tokenizer, whether bytes are spelled, trainer."""


def encode(tok: Tokenizer, texts: list[str]) -> None:
    """Encodes, decodes and counts texts in all ways."""
    column = tok.encode_arrow(texts, add_special_tokens=True)
    assert tok.encode_batch_fast(texts)[3].ids == column[3].as_py()
    for encoding in (tok.encode(texts[3]), tok.encode(texts[3], texts[4]), *tok.encode_batch(texts)):
        assert len(encoding.offsets) == len(encoding.ids) == len(encoding.word_ids)
    tok.decode_batch([ids.as_py() for ids in column])
    tok.explain()


def tokenizers(texts: list[str], vocabularies: list[str]) -> None:
    """Encodes with published vocabularies, and with small ones of every kind, as trained and as read from a file."""
    for path in vocabularies:
        encode(Tokenizer.from_file(path), texts)
    for i, (normalizer, pre_tokenizer, byte_level, trainer) in enumerate(COMPOSITIONS):
        tok = Tokenizer.untrained(normalizer, pre_tokenizer, byte_level=byte_level)
        tok = tok.train_from_iterator(texts, trainer)
        encode(tok, texts)
        tok.save(f"{i}.json")
        again = Tokenizer.from_file(f"{i}.json")
        encode(again, texts)
        again.token_offsets(texts, again.encode_bare(texts))
        again.enable_truncation(max_length=5)
        again.enable_padding(length=7, pad_id=0)
        encode(again, texts)


def jobs() -> None:
    """Takes each job from its plan to its replay."""
    for name, command in json.loads(Path("commands.json").read_text(encoding="utf-8")).items():
        for words in (
            ["plan", f"{name}.json", "--job", command],
            [command, f"{name}.json", "--mode", "inline"],
            ["verify", name],
            ["verify", name, "--deep", "--share", "1"],
            ["inspect", name, "--rows", "2"],
            ["trace", "--json", name, "1", "0"],
            ["report", name],
            ["replay", f"{name}.json"],
        ):
            code = cli.main(words)
            assert code == 0 or words[0] not in ("plan", command), words  # not every output has rows or can be replayed
    vocabularies = ["csv-tfrecord/vocab", "fim-packed/vocab", "unigram/vocab/1400"]
    assert cli.main(["compare", *vocabularies, "--on", "a.jsonl"]) == 0
    assert cli.main(["viz", "naïve 玫瑰", "--tokenizer", "vocab.txt"]) == 0


def main(folder: str, *vocabularies: str) -> None:
    """Runs everything in a folder; prints the kernels that were compiled, and whether numba was imported."""
    os.chdir(folder)
    lines = Path("a.jsonl").read_text(encoding="utf-8").splitlines()
    texts = [json.loads(line)["text"] for line in lines if line.startswith("{")]
    with contextlib.redirect_stdout(io.StringIO()):
        tokenizers(texts, [*vocabularies])
        jobs()
    compiled = sorted(path.name for path in kernel.saved)
    print(json.dumps({"compiled": compiled, "numba": "numba" in sys.modules, "version": tokenmill.VERSION}))


if __name__ == "__main__":
    main(*sys.argv[1:])
