# SPDX-License-Identifier: Apache-2.0
"""Offsets of columns are those of `Encoding`, in characters and in bytes; the quick ways find what `Locator` does."""

import itertools

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import charsmaps, strategies
from tokenmill.tokenizer import Tokenizer, offsets
from tokenmill.tokenizer.added_tokens import AddedToken
from tokenmill.tokenizer.models import BPE, Unigram, WordLevel, WordPiece
from tokenmill.tokenizer.models.byte_alphabet import BYTE_ALPHABET
from tokenmill.tokenizer.normalizers import (
    NFC,
    NFKC,
    NFKD,
    BertNormalizer,
    Lowercase,
    Nmt,
    Precompiled,
    Prepend,
    Replace,
    Sequence,
    Strip,
    StripAccents,
)
from tokenmill.tokenizer.offsets import TokenLengths
from tokenmill.tokenizer.plan import EncodePlan
from tokenmill.tokenizer.post_processors import ByteLevel as Trims
from tokenmill.tokenizer.pre_tokenizers import (
    BertPreTokenizer,
    ByteLevel,
    Digits,
    Metaspace,
    Whitespace,
    WhitespaceSplit,
)
from tokenmill.tokenizer.pre_tokenizers import Sequence as Sequences

TEXTS = st.lists(strategies.texts(30) | st.text("abe\u0301é 玫😀ﬁ \n<s>", max_size=30), max_size=6)


def byte_level(prefix: bool = False, trim: bool = True) -> Tokenizer:
    words = ["th", "he", " a", "\xe7\x8e", "ab", "  "]
    spelled = ["".join(BYTE_ALPHABET[b] for b in word.encode("latin-1")) for word in words]
    vocab = {token: i for i, token in enumerate([*BYTE_ALPHABET, *spelled])}
    merges = [(token[0], token[1:]) for token in spelled]
    post = Trims(add_prefix_space=prefix, trim_offsets=trim)
    tokenizer = Tokenizer(model=BPE(vocab, merges), pre_tokenizer=ByteLevel(prefix), post_processor=post)
    tokenizer.add_special_tokens(["<s>"])
    return tokenizer


UNIGRAM = Unigram([("<unk>", 0.0), ("▁", -1.0), ("a", -1.0), ("é", -1.0), ("▁a", -0.5)], 0)
TOKENIZERS = {
    "trimmed": byte_level(),
    "not trimmed": byte_level(trim=False),
    "with a prefix": byte_level(prefix=True),
    "NFC": byte_level().replace(normalizer=NFC(), special="split"),
    "NFKC": byte_level(trim=False).replace(normalizer=NFKC(), special="split"),
    "BERT": Tokenizer.for_bert(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "b", "##b", "é"]),
    "Unigram": Tokenizer(model=UNIGRAM, normalizer=NFKC(), pre_tokenizer=Metaspace("▁")),
}


@pytest.mark.parametrize("name", TOKENIZERS)
@strategies.FEWER
@given(texts=TEXTS, special=st.booleans(), length=st.none() | st.integers(3, 9), left=st.booleans(), pad=st.booleans())
def test_offsets_of_a_column_are_those_of_each_text(name, texts, special, length, left, pad) -> None:
    tokenizer = TOKENIZERS[name]
    tokenizer.truncation = tokenizer.padding = None
    if length is not None:
        tokenizer.enable_truncation(length, direction="left" if left else "right")
    if pad:
        tokenizer.enable_padding(pad_id=1, pad_token=tokenizer.id_to_token(1), direction="left" if left else "right")
    expected = tokenizer.encode_batch(texts, add_special_tokens=special)
    found = tokenizer.encode_arrow(texts, special, offsets=True)
    assert found.column("input_ids").to_pylist() == [each.ids for each in expected]
    pairs = zip(found.column("starts").to_pylist(), found.column("stops").to_pylist(), strict=True)
    assert [list(zip(*pair, strict=True)) for pair in pairs] == [each.offsets for each in expected]
    in_bytes = tokenizer.encode_arrow(texts, special, offsets="bytes")
    for text, each, starts, stops in zip(
        texts, expected, in_bytes.column("starts").to_pylist(), in_bytes.column("stops").to_pylist(), strict=True
    ):
        if name in ("trimmed", "not trimmed", "NFC", "NFKC"):  # a token may be part of a character
            data = text.encode()
            for (a, b), start, stop in zip(each.offsets, starts, stops, strict=True):
                assert text[a:b].encode().find(data[start:stop]) >= 0
        else:
            assert list(zip(starts, stops, strict=True)) == [
                (len(text[:a].encode()), len(text[:b].encode())) for a, b in each.offsets
            ]


@pytest.mark.parametrize("ids", [[[1 << 30, -5, 7, 5, 1 << 30]], [[5]], [[]]])
def test_ids_of_another_text_are_refused(ids) -> None:
    tokenizer = byte_level().replace(normalizer=Lowercase(), post_processor=Trims(trim_offsets=True))
    with pytest.raises(ValueError, match=rf"ids must be those of the texts: row 0 has {len(ids[0])}, of"):
        tokenizer.token_offsets(pa.array(["A玫"]), pa.array(ids, pa.large_list(pa.int32())))


WORDS = ["[UNK]", "[CLS]", "[SEP]", *"abhteé玫▁ ", "▁a", "th", "##e", "ab", "▁th", "he", "the"]
VOCAB = {token: i for i, token in enumerate(WORDS)}
MERGES = [("t", "h"), ("a", "b"), ("▁", "a"), ("h", "e"), ("▁", "th"), ("th", "e")]
MODELS = {
    "BPE": BPE(VOCAB | {"<0xC3>": 90}, [], unk_token="[UNK]", fuse_unk=True),
    "merges": BPE({**VOCAB}, MERGES, unk_token="[UNK]", fuse_unk=True),
    "WordPiece": WordPiece(VOCAB, unk_token="[UNK]"),
    "WordLevel": WordLevel(VOCAB, unk_token="[UNK]"),
    "Unigram": Unigram([(token, -1.0 - i / 9) for i, token in enumerate(WORDS)], 0),
}
NORMALIZERS = {
    "none": None,
    "T5": Sequence((Replace(" {2,}", "▁", is_regex=True), Lowercase())),
    "Llama": Sequence((Prepend("▁"), Replace(" ", "▁"))),
    "lower": Lowercase(),
    "NFKD": Sequence((NFKD(), StripAccents(), Lowercase())),
    "Nmt": Sequence((Nmt(), Strip(), Replace("b", "é"))),
    "BERT": BertNormalizer(),
    "map": Precompiled(
        charsmaps.build({key.encode(): text for key, text in {"e\u0301": "é", "，": ",", "ﬁ": "fi", "é": "e"}.items()})
    ),
}
PRE_TOKENIZERS = {
    "none": None,
    "Metaspace": Metaspace("▁"),
    "first": Metaspace("▁", prepend_scheme="first"),
    "whole": Metaspace("▁", split=False),
    "T5": Sequences((WhitespaceSplit(), Metaspace("▁"))),
    "Whitespace": Whitespace(),
    "BERT": BertPreTokenizer(),
    "digits": Sequences((Metaspace("▁"), Digits())),
    "ByteLevel": ByteLevel(add_prefix_space=True),
    "spelled": Sequences((ByteLevel(add_prefix_space=False), Whitespace())),
}


@pytest.mark.parametrize("pre_tokenizer", PRE_TOKENIZERS)
@given(data=st.data(), texts=TEXTS, is_pretokenized=st.booleans())
def test_places_are_those_of_the_locator(pre_tokenizer, data, texts, is_pretokenized) -> None:
    model = MODELS[data.draw(st.sampled_from(sorted(MODELS)))]
    normalizer = data.draw(st.sampled_from(sorted(NORMALIZERS)))
    flags = st.builds(dict, lstrip=st.booleans(), rstrip=st.booleans(), normalized=st.booleans(), special=st.booleans())
    added = [AddedToken(100 + i, text, **data.draw(flags)) for i, text in enumerate(("<s>", "ht", "É"))]
    tokenizer = Tokenizer(
        model=model,
        normalizer=NORMALIZERS[normalizer],
        pre_tokenizer=PRE_TOKENIZERS[pre_tokenizer],
        added_tokens=added[: data.draw(st.integers(0, 3))],
        special="split",
        post_processor=Trims(add_prefix_space=data.draw(st.booleans()), trim_offsets=data.draw(st.booleans())),
    )
    tokenizer._names_matched = data.draw(st.booleans())
    if data.draw(st.booleans()):
        tokenizer.enable_truncation(5, stride=1, direction=data.draw(st.sampled_from(("left", "right"))))
    if data.draw(st.booleans()):
        tokenizer.enable_padding(pad_id=1, pad_token="[CLS]", direction=data.draw(st.sampled_from(("left", "right"))))
    inputs = [text.split(" ") for text in texts] if is_pretokenized else texts
    if not is_pretokenized:  # short: every part of one text that overflows is combined with every part of the other
        inputs += list(itertools.pairwise(text[:9] for text in texts))
    found = tokenizer.encode_batch(inputs, is_pretokenized)
    expected = tokenizer.encode_batch(inputs, is_pretokenized)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(offsets, "_quick_spans", nothing_found)
        patch.setattr(TokenLengths, "of_few", lambda *_: None)
        patch.setattr(EncodePlan, "locate_few", lambda *_: None)
        fields = "tokens", "offsets", "word_ids", "sequence_ids", "sequence_ranges", "overflowing"
        expected = [[getattr(each, name) for name in fields] for each in expected]
    assert [[getattr(each, name) for name in fields] for each in found] == expected


def nothing_found(_, rows, ids, *, in_bytes):
    starts, stops, words = np.zeros((3, ids.n_values), np.int32)
    return starts, stops, words, np.zeros(rows.n_rows, np.bool_)


def of_letters(*more: str, **options) -> BPE:
    vocab = {token: i for i, token in enumerate(dict.fromkeys([*(b for b in BYTE_ALPHABET if b != "Ġ"), *more]))}
    return BPE(vocab, [("C", "a"), ("l", "l"), ("Ca", "ll")], **options)


LOCATED = {
    "steps that undo each other": (
        {
            "model": BPE({token: i for i, token in enumerate(" ab")}, []),
            "normalizer": Sequence((Strip(), Prepend(" "))),
            "added_tokens": [AddedToken(2, "b", lstrip=True, special=False)],
        },
        {" ba": [(0, 2), (2, 3), (2, 3)], "ab": [(0, 1), (0, 1), (1, 2)]},
    ),
    "a match that becomes itself": (
        {
            "model": BPE({token: i for i, token in enumerate(" ab")}, []),
            "normalizer": Replace("ab|ba", "ab", is_regex=True),
        },
        {"ab a": [(1, 2), (1, 2), (2, 3), (3, 4)]},
    ),
    "bytes that are dropped": (
        {"model": of_letters("Ca", "ll", "Call"), "pre_tokenizer": ByteLevel(add_prefix_space=False)},
        {"an Call!": [(0, 1), (1, 2), (2, 5), (7, 8)], "é a": [(0, 1), (0, 1), (1, 2)]},
    ),
    "markers as long as what is dropped": (
        {
            "model": of_letters("Ca", "ll", "Call", "a_", "@a_", end_of_word_suffix="_", unk_token="!"),
            "pre_tokenizer": Sequences((WhitespaceSplit(), ByteLevel(add_prefix_space=False))),
        },
        {" a": [(1, 2)], "  Ca": [(2, 3), (3, 4)]},
    ),
}
"""Name -> a tokenizer, and the offsets of texts, which are those of HF tokenizers 0.23."""


@pytest.mark.parametrize("name", LOCATED)
def test_offsets_where_lengths_and_texts_look_right(name) -> None:
    parts, expected = LOCATED[name]
    tokenizer = Tokenizer(**parts)
    assert [tokenizer.encode(text).offsets for text in expected] == list(expected.values())
    found = tokenizer.encode_arrow(list(expected), offsets=True)
    pairs = zip(found.column("starts").to_pylist(), found.column("stops").to_pylist(), strict=True)
    assert [list(zip(*pair, strict=True)) for pair in pairs] == list(expected.values())
    try:
        hf = pytest.importorskip("tokenizers").Tokenizer.from_str(tokenizer.to_str())
    except pytest.skip.Exception:
        return
    assert [hf.encode(text).offsets for text in expected] == list(expected.values())


@pytest.mark.parametrize(("max_length", "stride"), [(1, 0), (2, 0), (2, 1), (3, 2)])
def test_a_part_that_overflows_is_trimmed_as_a_text_is(max_length, stride) -> None:
    tokenizer = byte_level(prefix=True)
    hf = pytest.importorskip("tokenizers").Tokenizer.from_str(tokenizer.to_str())
    found = []
    for each in (tokenizer, hf):
        each.enable_truncation(max_length, stride=stride)
        encoding = each.encode("a a the  a\u3000a")
        found.append([part.offsets for part in (encoding, *encoding.overflowing)])
    assert found[0] == found[1]
    assert len(found[0]) > 3
