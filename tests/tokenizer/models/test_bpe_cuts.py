# SPDX-License-Identifier: Apache-2.0
"""Words without spaces are cut before they are encoded: the same ids as of the whole word, by the reference
implementation."""

import pyarrow as pa
import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from tokenmill.tokenizer import Tokenizer
from tokenmill.tokenizer.models.bpe import BPE, BYTE_ALPHABET
from tokenmill.tokenizer.pre_tokenizers import ByteLevel, Sequence, Split, WhitespaceSplit

# Characters that share their first bytes, or their last ones; of two and four bytes; that other characters are made of.
_CHARACTERS = "中丮乭你好妽가각éж𝖟😀ก"
_PADDING = "the end of the column, where nothing is cut, and words are not read in blocks; " * 2


def _spelled(text: str) -> str:
    return "".join(BYTE_ALPHABET[b] for b in text.encode())


@st.composite
def byte_models(draw: st.DrawFn) -> BPE:
    """All bytes, merges within and across characters, and entries that no merge makes."""
    tokens = [*BYTE_ALPHABET]
    seeds = [*(_spelled(c) for c in _CHARACTERS), *(_spelled(a + b) for a in "中你가 é" for b in "好中각é")]
    merges: list[tuple[str, str]] = []
    for seed in draw(st.lists(st.sampled_from(seeds), max_size=12)):
        start = draw(st.integers(0, len(seed) - 1))
        stop = draw(st.integers(start + 1, len(seed)))
        left = seed[start]
        for right in seed[start + 1 : stop]:
            if (left, right) not in merges:
                merges.append((left, right))
            left += right
            if left not in tokens:
                tokens.append(left)
    ignore = draw(st.booleans())
    if ignore:
        whole = draw(st.lists(st.text(st.sampled_from(_CHARACTERS), min_size=1, max_size=4), max_size=4))
        tokens += sorted({_spelled(text) for text in whole} - set(tokens))
    if draw(st.booleans()):
        merges = draw(st.permutations(merges))
    return BPE({t: i for i, t in enumerate(tokens)}, merges, ignore_merges=ignore, byte_level=True)


_words = st.text(st.sampled_from(_CHARACTERS + "a"), min_size=1, max_size=14)


def _check(tok: Tokenizer, model: BPE, words: list[str]) -> None:
    texts = [*words, "".join(words), _PADDING]
    expected = [[token for token, _ in model.tokenize_bytes(text.encode())] for text in texts[:-1]]
    # The second time words, parts and characters come from caches.
    for _ in range(2):
        assert tok.encode_arrow(pa.array(texts, pa.large_string())).to_pylist()[:-1] == expected


@given(byte_models(), st.lists(_words, min_size=1, max_size=6))
def test_bytes(model: BPE, words: list[str]) -> None:
    for use_regex in (True, False):
        _check(Tokenizer(model=model, pre_tokenizer=ByteLevel(False, use_regex)), model, _letters(words))


@pytest.mark.parametrize("suffix", [None, "</w>"])
def test_a_token_of_a_character_and_ascii(suffix: str | None) -> None:
    # Nothing else reaches across the right end of the character.
    dash = _spelled("—")
    merges = [(dash[:1], dash[1]), (dash[:2], dash[2]), (dash, '"')]
    tokens = [*BYTE_ALPHABET, *(left + right for left, right in merges)]
    if suffix:
        merges = [*merges[:2], (dash, '"' + suffix)]
        tokens = [*tokens[:-1], *(b + suffix for b in BYTE_ALPHABET), dash + '"' + suffix]
    model = BPE({t: i for i, t in enumerate(tokens)}, merges, end_of_word_suffix=suffix, byte_level=True)
    pre_tokenizer = Sequence((Split(CLIP, "removed", is_regex=True, invert=True), ByteLevel(False)))
    _check_words(Tokenizer(model=model, pre_tokenizer=pre_tokenizer), model, ["—", '—"', '———"', '—"—', '"—"', "a—b"])


def _letters(words: list[str]) -> list[str]:
    # An emoji is no letter, so that it would not be in one word with them.
    return [word.replace("😀", "") or "中" for word in words]


@st.composite
def suffix_models(draw: st.DrawFn) -> BPE:
    """All bytes, and each at the end of a word, and merges of both."""
    model = draw(byte_models())
    suffix = draw(st.sampled_from(["</w>", "</w>", "!", "é", " "]))
    tokens = [*(t for t in model.vocab if len(t) > 1 or t in BYTE_ALPHABET)]
    merges = [tuple(merge) for merge in model.merges]
    ended: list[tuple[str, str]] = []
    for left, right in draw(st.lists(st.sampled_from(merges), max_size=6)) if merges else []:
        if (left, right + suffix) not in ended:
            ended.append((left, right + suffix))
    every = [*merges, *ended]
    tokens += [t + suffix for t in BYTE_ALPHABET] + [a + b for a, b in ended] + [b for _, b in ended]
    vocab = {t: i for i, t in enumerate(dict.fromkeys(tokens))}
    if draw(st.booleans()):
        every = draw(st.permutations(every))
    ignore = model.ignore_merges and draw(st.booleans())
    return BPE(vocab, every, end_of_word_suffix=suffix, ignore_merges=ignore, byte_level=True)


@given(suffix_models(), st.lists(_words, min_size=1, max_size=6))
def test_bytes_with_a_suffix(model: BPE, words: list[str]) -> None:
    pre_tokenizer = Sequence((Split(CLIP, "removed", is_regex=True, invert=True), ByteLevel(False)))
    tok = Tokenizer(model=model, pre_tokenizer=pre_tokenizer)
    assert "encode_apart_bpe" in str(tok.explain())
    texts = ["x ".join(word.replace("ж", "ж ")) + "y" * k for k, word in enumerate(words)]
    for text in (*_letters(words), *texts):
        _check_words(tok, model, [text, f"{text} {text}", f"{text}，{text}"])


@pytest.mark.parametrize("suffix", ["</w>", " ", "é", "\n", "▁"])
@pytest.mark.parametrize("ignore_merges", [False, True])
def test_a_suffix_on_the_other_side_of_a_cut(suffix: str, ignore_merges: bool) -> None:
    # Only at the end of a word does a merge reach across.
    def chain(text: str, ended: str) -> list[tuple[str, str]]:
        parts = [*text[:-1], text[-1] + ended]
        return [("".join(parts[:k]), parts[k]) for k in range(1, len(parts))]

    you, good = _spelled("你"), _spelled("好")
    merges = [*chain(you, ""), *chain(good, ""), *chain(good, suffix), (you, good + suffix)]
    tokens = [
        *BYTE_ALPHABET,
        *(b + suffix for b in BYTE_ALPHABET),
        *(a + b for a, b in merges),
        _spelled("我我") + suffix,
    ]
    vocab = {token: i for i, token in enumerate(dict.fromkeys(tokens))}
    model = BPE(vocab, merges, end_of_word_suffix=suffix, ignore_merges=ignore_merges, byte_level=True)
    pre_tokenizer = Sequence((Split(CLIP, "removed", is_regex=True, invert=True), ByteLevel(False)))
    tok = Tokenizer(model=model, pre_tokenizer=pre_tokenizer)
    _check_words(tok, model, ["你好", "我你好", "你好我", "我我你好你好", "我我", "我我我", "好好好，你你你你"])


CLIP = r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"


def _check_words(tok: Tokenizer, model: BPE, texts: list[str]) -> None:
    expected = [
        [token for word in regex.findall(CLIP, text) for token, _ in model.tokenize_bytes(word.encode())]
        for text in texts
    ]
    for _ in range(2):
        assert tok.encode_arrow(pa.array([*texts, _PADDING], pa.large_string())).to_pylist()[:-1] == expected


@st.composite
def character_models(draw: st.DrawFn) -> BPE:
    """Characters, merges of them, and entries that no merge makes."""
    tokens = sorted({*_CHARACTERS, "a"})
    merges: list[tuple[str, str]] = []
    for _ in range(draw(st.integers(0, 12))):
        left, right = draw(st.sampled_from(tokens)), draw(st.sampled_from(tokens))
        if (left, right) not in merges:
            merges.append((left, right))
        if left + right not in tokens:
            tokens.append(left + right)
    whole = draw(st.lists(st.text(st.sampled_from(_CHARACTERS), min_size=2, max_size=4), max_size=4))
    tokens += sorted(set(whole) - set(tokens))
    return BPE({t: i for i, t in enumerate(tokens)}, merges, ignore_merges=draw(st.booleans()))


@given(character_models(), st.lists(_words, min_size=1, max_size=6))
def test_characters(model: BPE, words: list[str]) -> None:
    # The words that a scanner finds, and those that are found before the loop.
    for pre_tokenizer in (WhitespaceSplit(), Split(" ", "removed")):
        _check(Tokenizer(model=model, pre_tokenizer=pre_tokenizer), model, words)


@pytest.mark.parametrize("text", ["我你好", "我们你好", "们好们们们", "你好", "好"])
def test_entries_that_only_a_whole_word_becomes(text: str) -> None:
    tokens = [*BYTE_ALPHABET, _spelled("你好"), _spelled("好")]
    model = BPE({t: i for i, t in enumerate(tokens)}, [], ignore_merges=True, byte_level=True)
    _check(Tokenizer(model=model, pre_tokenizer=ByteLevel(False)), model, [text])
