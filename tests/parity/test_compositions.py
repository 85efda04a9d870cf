# SPDX-License-Identifier: Apache-2.0
"""Random compositions of all parts: every way to encode a text gives the same ids, and those of HF tokenizers.

`./run.sh bench compositions` tries many more; see `benchmarks.compositions` for what is compared.
"""

import itertools

import pytest

pytest.importorskip("tokenizers", reason="needs the test group: HF tokenizers")

from hypothesis import settings

from benchmarks import compositions
from tokenmill.tokenizer import Tokenizer

pytestmark = pytest.mark.parity

COMPILED = {
    "bert_wordpiece", "encode_apart_bpe", "encode_found_bpe", "encode_found_bpe_flagged", "encode_found_unigram",
    "encode_found_wordlevel", "encode_found_wordpiece", "encode_joined_bpe", "normalized_words", "sentencepiece_bpe",
    "sentencepiece_unigram",
}  # fmt: skip
"""The kernels of the compositions that are tried here: no test waits for a kernel that no other test needs."""


def _is_tried(number: int) -> bool:
    try:
        kernel = Tokenizer(**compositions.make(number).parts)._plan.describe()["kernel"]
    except ValueError:
        return False
    return kernel in COMPILED


def test_every_way_to_encode_gives_the_same_ids() -> None:
    n_texts = 0
    numbers = filter(_is_tried, itertools.count())
    for number in itertools.islice(numbers, settings.default.max_examples):
        problems, seen = compositions.check(number)
        assert not problems, f"composition {number}"
        n_texts += seen.get("texts compared with tokenizers", 0)
    assert n_texts > 0
