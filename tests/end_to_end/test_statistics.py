# SPDX-License-Identifier: Apache-2.0
"""Every number of stats.json is that of a recount in plain Python, whatever the workers and the splits."""

import json

import pytest

from tests.recounting_stats import stats_of
from tokenmill.tokenizer import BPETrainer, Tokenizer
from tokenmill.tokenizer.languages import RULES

SENTENCES = [
    "The mill grinds the text into tokens, and all of the tokens into shards.",
    "Ein Text wird von der Mühle gemahlen, und aus dem Text werden dabei Wörter.",
    "玫瑰花朵向日葵\u3000玫瑰",
    "Привет, мир: это проверка слов.",
    "  def f(x):\n\treturn x ** 2  # O(1)\u2028",
    "[SEP] [MASK] naïve café \ufffd 🎉👩\u200d👩\u200d👧 3Ⰻ7 ᛁ",
    "",
]
TEXTS = [" ".join(SENTENCES[(i * 5 + j * j) % len(SENTENCES)] for j in range(i % 5)) for i in range(60)]

STEP = {"regex": {"pattern": "mill", "replace": "water mill"}}

RUNS = [
    (["--mode", "inline"], 1 << 25),
    (["--workers", "2", "--mode", "threads"], 300),
    (["--workers", "2", "--mode", "threads"], 2000),
    (["--workers", "2", "--mode", "processes"], 1000),
]


def words(tiny_vocab):
    tokenizer = Tokenizer.for_bert(tiny_vocab, oov="word")
    sections = {"add_special_tokens": True, "truncation": {"max_length": 30}}
    return tokenizer, sections, {}, {"around": ([2], [3]), "n_special": 2, "max_length": 30, "dropped": ("zh",)}


def byte_pairs(_):
    bpe = BPETrainer(vocab_size=330, special_tokens=["<|endoftext|>"])
    tokenizer = Tokenizer.untrained("nfc", "gpt2", byte_level=True).train_from_iterator(SENTENCES, bpe)
    end = tokenizer.token_to_id("<|endoftext|>")
    return tokenizer, {}, {"append": "<|endoftext|>"}, {"around": ([], [end]), "dropped": ("zh",)}


@pytest.mark.parametrize("make", [words, byte_pairs])
def test_every_number_is_that_of_a_recount(make, make_job, tmp_path, tiny_vocab):
    for first in range(0, len(TEXTS), 25):
        lines = (json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in TEXTS[first : first + 25])
        (tmp_path / f"{first}.jsonl").write_text("".join(lines), encoding="utf-8")
    tokenizer, section, output, facts = make(tiny_vocab)
    tokenizer.save(tmp_path / "tokenizer.json")
    expected = stats_of(TEXTS, tokenizer, replace=("mill", "water mill"), **facts)
    assert expected["sample"]["documents"] == expected["documents"] < len(TEXTS)
    for number, (arguments, split_bytes) in enumerate(RUNS):
        job = make_job(
            str(number),
            input={"paths": [str(tmp_path / "*.jsonl")], "split_bytes": split_bytes},
            tokenizer={"file": str(tmp_path / "tokenizer.json"), "max_unknown_fraction": 1.0, **section},
            languages={"drop": list(facts["dropped"]), "rules": {code: [STEP] for code in RULES}},
        )
        settings = [f"--set=output.{name}={value}" for name, value in output.items()]
        assert job.run("tokenize", *arguments, *settings) == 0
        found = json.loads(job.files()["stats.json"])
        assert found.keys() == expected.keys()
        for name in expected:
            assert rounded(found[name]) == rounded(expected[name]), (name, arguments)
    assert len(job.manifest()["shards"]) > 3


def rounded(value):
    """Returns JSON with floats cut to twelve digits: sums of them may be added up in another order."""
    if isinstance(value, dict):
        return {name: rounded(each) for name, each in value.items()}
    if isinstance(value, list):
        return [rounded(each) for each in value]
    return float(f"{value:.12g}") if isinstance(value, float) else value
