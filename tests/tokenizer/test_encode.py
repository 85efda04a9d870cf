# SPDX-License-Identifier: Apache-2.0
"""The compiled path against its reference implementation, on generated text and vocabularies."""

import copy
import dataclasses
import pickle
import threading
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import strategies
from tests.reference import bert as reference
from tests.reference.counting import swallowed_characters
from tokenmill.tokenizer import Encoding, Tokenizer


@given(strategies.text_columns(), st.booleans(), st.sampled_from([None, True, False]), st.booleans(), st.booleans())
def test_ids_equal_the_reference_on_hostile_columns(
    column: pa.Array, lowercase: bool, strip: bool | None, clean: bool, cjk: bool
) -> None:
    vocab = ["[UNK]", *"abcdefghijklmnopqrstuvwxyz0123456789!#@[]é", *(f"##{c}" for c in "abcéexy中\u0301\u302e")]
    tokenizer = Tokenizer.for_bert(
        vocab, lowercase=lowercase, strip_accents=strip, clean_text=clean, handle_chinese_chars=cjk, oov="contain"
    )
    expected = [
        None if t is None else reference.encode(t, tokenizer.normalizer, tokenizer.model) for t in column.to_pylist()
    ]
    assert tokenizer.encode_arrow(column).to_pylist() == expected


@given(st.lists(strategies.texts(), max_size=8), st.sampled_from(["word", "contain", "char", "byte"]))
def test_tally_equals_the_reference(texts: list[str], oov: str) -> None:
    tokenizer = Tokenizer.for_bert(["[UNK]", "<0xE2>", *"abcdefgh", *(f"##{c}" for c in "abcdefgh")], oov=oov)
    tally = tokenizer.new_tally()
    for text in texts:
        tokenizer.encode_arrow(pa.array([text], pa.string()), tally=tally)
    words = reference.count_words(texts, tokenizer.normalizer)
    lost = {w: n for w, n in words.items() if "[UNK]" in [t for t, _ in reference.wordpiece(w, tokenizer.model)]}
    assert tally.n_words == words.total()
    assert {r["word"].decode(): r["count"] for r in tally.oov_words().to_pylist()} == lost
    code_points, counts = tally.oov_characters()
    swallowed = Counter({chr(c): n for c, n in zip(code_points.tolist(), counts.tolist(), strict=True)})
    assert swallowed == swallowed_characters(words, tokenizer.model)
    assert tally.n_oov_characters == swallowed.total()
    assert tally.n_oov_words_untracked == 0


def test_a_tally_stays_bounded_and_its_characters_exact() -> None:
    n = 150_000
    tokenizer = Tokenizer.for_bert(["[UNK]"])
    tally = tokenizer.new_tally()
    texts = pa.array([" ".join(f"{i:x}" for i in range(k, n, 3)) + " common" * 5 for k in range(3)])
    tokenizer.encode_arrow(texts, tally=tally)
    words = tally.oov_words()
    assert tally.n_words == n + 15
    assert words.num_rows <= 1 << 16
    assert sum(words["count"].to_pylist()) + tally.n_oov_words_untracked == n + 15
    assert {"word": b"common", "count": 15} in words.to_pylist()
    assert tally.n_oov_characters == sum(len(f"{i:x}") for i in range(n)) + 15 * 6


def test_a_row_larger_than_any_table() -> None:
    tokenizer = Tokenizer.for_bert(["[UNK]", "a", "##a", "##b"], oov="contain", cache_bytes=1 << 16)
    tally = tokenizer.new_tally()
    word = "ab" * 1_500_000
    rows = tokenizer.encode_arrow(pa.array([word, "𝖟" * 1_500_000, "a"]), tally=tally)
    assert [len(r) for r in rows.to_pylist()] == [3_000_000, 1, 1]
    assert tally.n_oov_characters == 1_500_000


def test_threads_share_a_tokenizer() -> None:
    tokenizer = Tokenizer.for_bert(["[UNK]", *"abcdef", *(f"##{c}" for c in "abcdef")], oov="contain")
    texts = [pa.array([" ".join("abcdefx"[i % 7] * (1 + (i * k) % 9) for i in range(2000))]) for k in range(8)]
    expected = [tokenizer.encode_arrow(t).to_pylist() for t in texts]
    got: list[object] = [None] * 8
    errors = []

    def work(k: int) -> None:
        try:
            for _ in range(20):
                got[k] = tokenizer.encode_arrow(texts[k]).to_pylist()
                assert got[k] == expected[k]
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors
    assert got == expected


def test_what_is_found_later_is_of_the_tokenizer_as_it_was() -> None:
    tokenizer = Tokenizer.for_bert(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "b", "##b"])
    tokenizer.enable_truncation(4)
    tokenizer.enable_padding(length=6)
    ids = [2, 4, 6, 3, 0, 0]
    read_before, read_after, copied = tokenizer.encode_batch(["ab a", "ab a", "ab a"])
    whole = dataclasses.asdict(read_before)
    assert (whole["ids"], whole["offsets"]) == (ids, [(0, 0), (0, 1), (1, 2), (0, 0), (0, 0), (0, 0)])
    assert [each.ids for each in read_before.overflowing] == [[2, 4, 3, 0, 0, 0]]
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.add_tokens(["ab"])
    assert tokenizer.encode("ab a").ids == [2, 7, 4, 3]
    assert read_after.ids == ids  # and the rest is not known yet
    assert pickle.loads(pickle.dumps(copied)) == copy.deepcopy(copied) == read_after == read_before
    assert [each.ids for each in read_after.overflowing] == [each.ids for each in read_before.overflowing]
    with pytest.raises(AttributeError, match="'Encoding' object has no attribute 'idz'"):
        _ = tokenizer.encode("ab").idz


def everything(encoding: Encoding) -> list[object]:
    """The fields of an encoding and, like it, of all that overflows."""
    fields = [getattr(encoding, field.name) for field in dataclasses.fields(encoding) if field.compare]
    return [*fields, encoding.sequence_ids, *map(everything, encoding.overflowing)]


@pytest.mark.parametrize("text", ["ab a ab b a", ("ab a ab b", "b a ab a b"), ("a", "b a ab a b"), "a", ""])
@pytest.mark.parametrize("length", [None, 4, 5, 90])
@pytest.mark.parametrize("padded", [None, 6])
def test_a_pickled_encoding_has_what_overflows(text: Any, length: int | None, padded: int | None) -> None:
    tokenizer = Tokenizer.for_bert(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "b", "##b"])
    if length is not None:
        tokenizer.enable_truncation(length)
    if padded is not None:
        tokenizer.enable_padding(length=padded)
    (encoding,) = tokenizer.encode_batch([text])
    expected = everything(encoding)
    for whole in (pickle.loads(pickle.dumps(encoding)), copy.deepcopy(tokenizer.encode_batch([text])[0])):
        assert everything(whole) == expected
    parts = pickle.loads(pickle.dumps(encoding.overflowing))
    assert [*map(everything, parts)] == [*map(everything, encoding.overflowing)]
    for part, other in zip(parts, encoding.overflowing, strict=True):
        for each in (part, other):
            each.pad(12, direction="left")
        assert everything(part) == everything(other)


def test_pickled_parts_do_not_hold_their_texts() -> None:
    tokenizer = Tokenizer.for_bert(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "b", "##b"])
    tokenizer.enable_truncation(5)
    parts = tokenizer.encode("a b a " * 1000).overflowing
    assert len(parts) == 999
    assert len(pickle.dumps(parts[-1])) < 1000


def test_half_a_character_is_no_added_token() -> None:
    """Every text was then refused as "not text"."""
    tokenizer = Tokenizer.for_bert(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a"])
    with pytest.raises(ValueError, match=r"added token '\\ud800' holds half a surrogate pair"):
        tokenizer.add_tokens(["b", "\ud800"])
    assert tokenizer.encode("a b", add_special_tokens=False).ids == [4, 1]
