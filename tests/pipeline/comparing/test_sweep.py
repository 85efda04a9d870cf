# SPDX-License-Identifier: Apache-2.0
"""One tokenizer at several sizes: what training for each would have made, and what a doubling gains."""

import json
import math

import pytest

from tests.word_counts import table
from tokenmill.pipeline import cli
from tokenmill.pipeline.comparing.comparison import smaller
from tokenmill.tokenizer import BPETrainer, Tokenizer, UnigramTrainer

TEXT = "the mill grinds the text into tokens, and the mill's tokens into the text of the mill and the grinder"
WORDS = {word: TEXT.count(word) for word in f" {TEXT}".replace(" ", "| ").split("|") if word}
KINDS = {
    "bytes": ("gpt2", {"byte_level": True, "special_tokens": ["<|end|>"]}),
    "characters": ("metaspace", {"byte_fallback": True, "user_defined_symbols": ["mi"]}),
    "marked": ("whitespace", {"continuing_subword_prefix": "@@"}),
}


def trained(kind, sizes):
    """Returns what one training makes for each size."""
    pre_tokenizer, fields = KINDS[kind]
    counts = table((word.replace(" ", "▁" if kind == "characters" else " "), n) for word, n in WORDS.items())
    blank = Tokenizer.untrained("none", pre_tokenizer, byte_level=kind == "bytes")
    models = BPETrainer(**fields).train_sizes(counts, sizes)
    added = [fields.get(name, ()) for name in ("special_tokens", "user_defined_symbols")]
    return {size: blank.with_model(model, *added) for size, model in models.items()}


@pytest.mark.parametrize("kind", KINDS)
def test_a_smaller_size_is_what_training_for_it_makes(kind):
    largest = next(iter(trained(kind, [1000]).values()))
    sizes = [largest.n_ids - 20, largest.n_ids - 1, largest.n_ids]
    for size, expected in trained(kind, sizes).items():
        found = smaller(largest, size)
        assert (found.n_ids, found.to_str()) == (size, expected.to_str())


@pytest.mark.parametrize("size", [0, 100, 1000])
def test_a_size_that_it_never_had_is_refused(size):
    largest = next(iter(trained("bytes", [300]).values()))
    with pytest.raises(ValueError, match=rf"from 257, .* to {largest.n_ids}, all of it; got {size:,}"):
        smaller(largest, size)


def test_models_that_do_not_grow_are_refused():
    unigram = Tokenizer.untrained("none", "metaspace").with_model(
        UnigramTrainer(hard_vocab_limit=False).train(table({"a": 9}.items()))
    )
    for tokenizer, name in ((unigram, "Unigram"), (Tokenizer.for_bert(["[UNK]", "a"]), "WordPiece")):
        with pytest.raises(ValueError, match=rf"this is {name}, which does not say"):
            smaller(tokenizer, 2)


def test_the_command_says_what_a_doubling_gains(tmp_path, capsys):
    (tmp_path / "a.txt").write_text(f"{TEXT}\n" * 3, encoding="utf-8")
    path = str(tmp_path / "bpe.json")
    trained("bytes", [300])[300].save(path)
    typed = ["compare", path, "--on", str(tmp_path / "a.txt")]
    assert cli.main([*typed, "--sizes", "280,260,270", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [each["label"] for each in report["tokenizers"]] == [f"bpe.json@{n}" for n in (260, 270, 280)]
    first, second, third = report["sizes"]
    assert first["gain_per_doubling"] is None
    for before, each in ((first, second), (second, third)):
        n_tokens = report["all"]["by"][each["label"]]["tokens"]
        assert each["bytes_per_token"] == report["all"]["bytes"] / n_tokens
        gained = each["bytes_per_token"] - before["bytes_per_token"]
        assert each["gain_per_doubling"] == pytest.approx(gained / math.log2(each["size"] / before["size"]))
    assert cli.main([*typed, "--sizes", "260,280"]) == 0
    assert "gained per doubling" in capsys.readouterr().out
    for wrong in ("260", "260,8k", "many"):
        assert cli.main([*typed, "--sizes", wrong]) == 2
