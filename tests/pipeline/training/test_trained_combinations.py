# SPDX-License-Identifier: Apache-2.0
"""All combinations of `tokenizer.train`: refused by the config, or trained, saved, and read back by us and by HF.

Where the normalizer is sentencepiece's, sentencepiece reads a `.model` of it; HF, which has no such normalizer, gets
the same ids on ordinary text only.
"""

import itertools
import re
from pathlib import Path
from typing import Any, get_args

import pyarrow as pa
import pytest
from pydantic import ValidationError

from tokenmill.pipeline.config.tokenizer import (
    BERT_TOKENS,
    BYTE_TOKENS,
    OPTIONS,
    NormalizerName,
    PreTokenizerName,
    TokenizerConfig,
)
from tokenmill.pipeline.training.tokenizers import counting_tokenizer, train_tokenizer
from tokenmill.tokenizer import Tokenizer

pytestmark = pytest.mark.parity

ORDINARY = ["The mill grinds text, 12 times.", "don't <sym> stop <sym>now", "the the mills miller mill Ab AB"]
CORPUS = [*ORDINARY, " Größe   ist ﬁne\n", "玫瑰花 花 abc abc ab\t\u3000ab", "▁ab ab▁ 👍🏽 e\u0301 é É"] * 3
HOSTILE = [
    *ORDINARY, "", " ", "  a  b ", "<sym>ab<sym>  <sym>", "The mill.\n\ngrinds İ 12345", "▁▁ab ▁", "zq 𝖟 Ⰻ👨🏽‍🔬",
    "\u0301e\u0301 ﬁ ﷺ ｶﾞ", "\x00a\x85b\xa0c\u200bd\ufeff", "<unk> <s> [CLS] <|endoftext|>", "abcabc\tab\r\nab",
]  # fmt: skip


def variants(model: str) -> list[dict[str, Any]]:
    """Options beside normalizer and pre-tokenizer that change what the tokenizer is made of."""
    found: list[dict[str, Any]] = [{}]
    if "user_defined_symbols" in OPTIONS[model]:
        found.append({"user_defined_symbols": ["<sym>"]})
    if "byte_fallback" in OPTIONS[model]:
        found += [{**options, "byte_fallback": True} for options in found]
    if model == "wordpiece":
        found += [{"oov": "contain"}, {"oov": "char"}]
        found += [{"oov": "byte", "special_tokens": [*BERT_TOKENS, *BYTE_TOKENS]}]
    return found


def configs(model: str) -> list[TokenizerConfig]:
    """Every combination that a config accepts."""
    found = []
    normalizers, pre_tokenizers = get_args(NormalizerName), get_args(PreTokenizerName)
    folds = [(None, None), (True, None), (None, True), (False, True)]
    for normalizer, pre_tokenizer, fold, options in itertools.product(
        normalizers, pre_tokenizers, folds, variants(model)
    ):
        usual = "none" if normalizer == "sentencepiece" else OPTIONS[model]["pre_tokenizer"]
        if fold != folds[0] and (options or pre_tokenizer != usual):
            continue  # case and accents are the normalizer's affair alone
        train = {"model": model, "normalizer": normalizer, "pre_tokenizer": pre_tokenizer, "vocab_size": 520}
        train |= {"hard_vocab_limit": False} if model == "unigram" else {"min_frequency": 1}
        train |= {key: value for key, value in options.items() if key != "oov"}
        try:
            config = TokenizerConfig(train=train, lowercase=fold[0], strip_accents=fold[1], oov=options.get("oov"))
        except ValidationError as error:
            assert_refusal(str(error), train)
            continue
        found.append(config)
    return found


def assert_refusal(message: str, train: dict[str, Any]) -> None:
    if train["normalizer"] == "sentencepiece":
        reason = "is for bpe, unigram, char|which changes no letters"
        assert re.search("must be none" if train["pre_tokenizer"] != "none" else reason, message)
    else:
        assert train["model"] == "unigram"
        assert train["pre_tokenizer"] not in ("bert", "whitespace", "whitespace_split", "metaspace")
        assert "whose words have no spaces" in message


def ids(tokenizer: Tokenizer) -> list[list[int]]:
    return tokenizer.encode_arrow(pa.array(HOSTILE)).to_pylist()


def trained(config: TokenizerConfig) -> Tokenizer:
    # As a job does it: the tokenizer that counts is a string in between.
    counter = Tokenizer.from_str(counting_tokenizer(config).to_str()).new_word_counter()
    counter.update(pa.array(CORPUS))
    (tokenizer,) = train_tokenizer(counter.to_table(), config).values()
    return tokenizer


@pytest.mark.parametrize("model", OPTIONS)
def test_every_combination_is_trained_and_read_back(model: str, tmp_path: Path) -> None:
    hf = pytest.importorskip("tokenizers", reason="needs the test group: HF tokenizers")
    for config in configs(model):
        assert config.train is not None
        said = config.model_dump_json(exclude_defaults=True)
        tokenizer = trained(config)
        text, found = tokenizer.to_str(), ids(tokenizer)
        again = Tokenizer.from_str(text)
        assert (again.to_str(), ids(again)) == (text, found), said
        if config.oov not in (None, "word"):
            continue  # HF has no such policies
        theirs = hf.Tokenizer.from_str(text)
        theirs.encode_special_tokens = True
        is_sentencepiece = config.train.normalizer == "sentencepiece"
        n = len(ORDINARY) if is_sentencepiece else len(HOSTILE)
        encodings = theirs.encode_batch(HOSTILE[:n], add_special_tokens=False)
        assert [encoding.ids for encoding in encodings] == found[:n], said
        assert [theirs.decode(row) for row in found[:n]] == tokenizer.decode_batch(found[:n]), said
        if is_sentencepiece:
            assert_sentencepiece_agrees(tokenizer, found, tmp_path, said)


def assert_sentencepiece_agrees(tokenizer: Tokenizer, found: list[list[int]], folder: Path, said: str) -> None:
    spm = pytest.importorskip("sentencepiece", reason="needs the test group: sentencepiece")
    path = folder / "trained.model"
    tokenizer.save(path)
    theirs = spm.SentencePieceProcessor(model_file=str(path))
    assert theirs.encode(HOSTILE) == found, said
    known = [row for row in found if tokenizer.unk_token_id not in row]
    assert [theirs.decode(row) for row in known] == tokenizer.decode_batch(known), said
    assert ids(Tokenizer.from_file(path)) == found, said
