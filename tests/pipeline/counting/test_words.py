# SPDX-License-Identifier: Apache-2.0
"""Two ways to say the same words are one, and words are the same wherever they are said to be."""

import itertools
import json

import pyarrow as pa

from tokenmill.pipeline.counting.words import deciding, describe_words
from tokenmill.tokenizer import Tokenizer

TEXTS = pa.array(["The mill's 12 wheels,\n don't stop ", " Größe  字字 e\u0301\u2028x", "▁a ▁▁b\tÄ İ"])


def untrained():
    for normalizer, lowercase, accents in itertools.product(
        ("bert", "nfc", "none"), (False, True), (None, False, True)
    ):
        for pre_tokenizer in ("bert", "whitespace_split", "metaspace", "gpt2", "cl100k_base", "none"):
            for byte_level in (False, True):
                yield Tokenizer.untrained(
                    normalizer, pre_tokenizer, lowercase=bool(lowercase), strip_accents=accents, byte_level=byte_level
                )


def test_words_are_described_alike_only_if_they_are_the_same():
    found: dict[str, list[dict]] = {}
    for tokenizer in untrained():
        counter = tokenizer.new_word_counter()
        counter.update(TEXTS)
        described = json.dumps(describe_words(tokenizer.to_str()), sort_keys=True)
        found.setdefault(described, []).append(counter.to_table().sort_by("word").to_pydict())
    assert all(counts == tables[0] for tables in found.values() for counts in tables)
    # With and without a byte alphabet; accents that follow the case, and accents that are said to.
    assert len(found) == (4 + 4 + 4) * 6


def test_what_does_not_decide_is_left_out():
    gpt2 = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}
    words = {"normalizer": None, "pre_tokenizer": gpt2, "unicode": {}}
    nested = {"type": "Sequence", "pretokenizers": [{"type": "Sequence", "pretokenizers": [gpt2]}]}
    assert deciding(words) == deciding({**words, "pre_tokenizer": nested})
    assert deciding(words)["pre_tokenizer"]["type"] == "Split"
    prefixed = {**gpt2, "add_prefix_space": True}
    described = [
        deciding({**words, "pre_tokenizer": {**prefixed, "trim_offsets": trim}})["pre_tokenizer"]
        for trim in (False, True)
    ]
    assert described[0] == described[1] == prefixed
    assert deciding(deciding(words)) == deciding(words)
