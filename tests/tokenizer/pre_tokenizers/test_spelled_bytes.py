# SPDX-License-Identifier: Apache-2.0
"""Words behind a `ByteLevel`: bytes as letters, in columns as in the reference implementation, for every model that
reads letters."""

from collections import Counter

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tokenmill.tokenizer import Tokenizer
from tokenmill.tokenizer.models import BPE, Unigram
from tokenmill.tokenizer.models.bpe import BYTE_ALPHABET
from tokenmill.tokenizer.pre_tokenizers import ByteLevel, Digits, Sequence, Split, Whitespace
from tokenmill.tokenizer.pre_tokenizers.spelled_bytes import spelled_words
from tokenmill.tokenizer.ragged import read_only
from tokenmill.tokenizer.words import Words

GPT2 = ByteLevel(add_prefix_space=False)


@given(words=st.lists(st.binary(min_size=1, max_size=20), max_size=8), left_out=st.integers(0, 3))
def test_words_are_spelled(words: list[bytes], left_out: int) -> None:
    values = read_only(np.frombuffer(b"".join(w + bytes(left_out) for w in words) or b"\0", np.uint8))
    starts = np.cumsum([0, *(len(w) + left_out for w in words)])[:-1].astype(np.int64)
    stops = starts + np.array([len(w) for w in words], np.int64)
    found = spelled_words(Words(values, starts, stops, np.array([0, len(words)], np.int64)))
    letters = ["".join(BYTE_ALPHABET[b] for b in word) for word in words]
    assert [found.word(i).decode() for i in range(found.n_words)] == letters


STEPS = (
    GPT2,
    ByteLevel(),
    Sequence((GPT2, Digits(individual_digits=True))),
    Sequence((Whitespace(), ByteLevel(use_regex=False))),
    Sequence((GPT2, GPT2)),
)


@given(rows=st.lists(st.text("ab é1中", max_size=9), max_size=6), is_bpe=st.booleans(), cuts=st.booleans())
def test_swallowed_characters_are_counted_whole(rows: list[str], is_bpe: bool, cuts: bool) -> None:
    """Each once, whichever of its bytes are unknown; none that the words have a part of each."""
    known = {"<unk>": 0, "a": 1, "b": 2, "Ġ": 3, "Ã": 4, "ä": 5, "Ń": 6}
    model = BPE(known, [], unk_token="<unk>") if is_bpe else Unigram([(t, -1.0) for t in known], 0)
    steps = Sequence((GPT2, Split("Ã", "isolated"))) if cuts else GPT2
    tokenizer = Tokenizer(model=model, pre_tokenizer=steps)
    tally = tokenizer.new_tally()
    tokenizer.encode_arrow(pa.array(rows, pa.large_string()), tally=tally)
    expected = Counter(c for row in rows for c in row if c in ("1中" if cuts else "é1中"))
    code_points, counts = tally.oov_characters()
    assert dict(zip(map(chr, code_points.tolist()), counts.tolist(), strict=True)) == expected
