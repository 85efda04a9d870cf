# SPDX-License-Identifier: Apache-2.0
"""The public surface of HF's `Tokenizer` and `Encoding`: what has the same name here does the same.

`LEFT_OUT` is all that HF has and we do not, `DIFFERENCES` all that differs on purpose.
"""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

hf = pytest.importorskip("tokenizers", reason="needs the test group: HF tokenizers")

from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from tokenizers import models, normalizers, pre_tokenizers, processors, trainers  # noqa: E402

from tests import strategies  # noqa: E402
from tests.parity import families  # noqa: E402
from tests.parity.test_post_processors import assert_same_conversions  # noqa: E402
from tokenmill.tokenizer import AddedToken, BPETrainer, Encoding, Tokenizer, Unigram, WordLevel  # noqa: E402
from tokenmill.tokenizer import pre_tokenizers as our_pre_tokenizers  # noqa: E402
from tokenmill.tokenizer.post_processors import BertProcessing  # noqa: E402

pytestmark = pytest.mark.parity

LEFT_OUT = {
    "async_encode": "run encode in a thread",
    "async_encode_batch": "run encode_batch in a thread; kernels release the GIL",
    "async_encode_batch_fast": "run encode_arrow in a thread; kernels release the GIL",
    "async_decode_batch": "run decode_arrow in a thread; kernels release the GIL",
    "encode_special_tokens": "the attribute special has three values: plain, split, error",
}
DIFFERENCES = {
    "from_pretrained": "takes a folder or a file; nothing here uses the network",
    "truncation and padding": "objects with the fields of HF's dicts",
    "pad_id of enable_padding": "that of pad_token, which must be there, unless it is given; HF takes 0",
    "ids of new tokens": "one more than the largest; HF counts tokens, and where ids have gaps gives one twice",
    "ids of AddedToken": "an AddedToken has its id; HF gives it one",
    "tokens that are special no more": "decode keeps them; HF leaves out what was special once",
    "type ids of encode_batch_fast": "1 for a pair without a post-processor, as in encode_batch; HF has 0",
    "post_process of what is processed": "an error; HF puts special tokens around special tokens",
    "sequences of post_process": "0 and 1 for a pair; HF takes both for the text, and forgets which tokens are its",
    "stride that is too large": "an error; HF crashes",
    "added tokens in texts to train on": "text; HF takes each that is there already for a word",
    "id_to_token of normalized tokens": "the content, as in get_vocab; HF gives its normalized form, as decode does",
    "ids after training": "of added tokens: their places in the new vocabulary, or behind it; HF keeps the old ones",
}
ATTRIBUTES = (
    "ids", "tokens", "type_ids", "attention_mask", "special_tokens_mask", "offsets", "word_ids", "sequence_ids",
    "n_sequences",
)  # fmt: skip
# A post-processor each: without one HF forgets sequences, see test_post_processors.
FAMILIES = ["roberta", "llama3", "llama2", "t5", "modernbert"]


def both(name: str) -> tuple[Tokenizer, "hf.Tokenizer"]:
    text = families.family(name)
    theirs = hf.Tokenizer.from_str(text)
    theirs.encode_special_tokens = True
    return Tokenizer.from_str(text), theirs


def assert_same(
    got: Encoding,
    expected: "hf.Encoding",
    *,
    known: bool = True,
    tokens: bool = True,
    types: bool = True,
    belongs: bool = True,
) -> None:
    """Compares two encodings with all that overflows.

    known: whether each token has one sequence only; HF takes any of several.
    tokens: whether to compare texts, which differ for unknown pieces.
    types: whether to compare the type ids of what overflows, which HF has only in part.
    belongs: whether to compare which tokens are those of a pair.
    """
    skipped = set() if tokens else {"tokens"}
    if not belongs:
        skipped |= {"sequence_ids", "n_sequences"}
        known = False
    for name in ATTRIBUTES:
        if name not in skipped:
            assert getattr(got, name) == getattr(expected, name), name
    assert len(got) == len(expected)
    if known:
        assert_same_conversions(got, expected)
    assert len(got.overflowing) == len(expected.overflowing)
    for mine, other in zip(got.overflowing, expected.overflowing, strict=True):
        if not types:
            mine = copy.copy(mine)
            mine.type_ids = other.type_ids
        assert_same(mine, other, known=known, tokens=tokens, types=types, belongs=belongs)


def texts() -> st.SearchStrategy[str]:
    ordinary = st.sampled_from(["The mill ", "grinds", " text", "  ", "", "it's 2026. ", "玫瑰", "<s>", "▁", "é"])
    # Short: with a pair, every part of one text that overflows is combined with every part of the other.
    return st.lists(st.one_of(ordinary, strategies.characters()), max_size=5).map("".join)


def sequences(is_pretokenized: bool) -> st.SearchStrategy[Any]:
    if not is_pretokenized:
        return texts()
    words = st.lists(texts(), max_size=4)
    return st.one_of(words, words.map(tuple))


def lengths() -> st.SearchStrategy[dict[str, Any]]:
    """Arguments of `enable_truncation` and `enable_padding`."""
    sides = st.sampled_from(["right", "left"])
    strategy = st.sampled_from(["longest_first", "longest_first", "only_first", "only_second"])
    truncation = st.fixed_dictionaries(
        {"max_length": st.integers(5, 12), "stride": st.integers(0, 2), "strategy": strategy, "direction": sides}
    )
    fillers = {"pad_id": st.just(5), "pad_type_id": st.just(2), "pad_token": st.just("!")}
    sizes = {"length": st.sampled_from([None, 0, 9, 20]), "pad_to_multiple_of": st.sampled_from([None, 4])}
    padding = st.fixed_dictionaries({"direction": sides, **fillers, **sizes})
    return st.fixed_dictionaries({"truncation": st.none() | truncation, "padding": st.none() | padding})


def set_lengths(tokenizer: Any, wanted: dict[str, Any]) -> None:
    tokenizer.no_truncation()
    tokenizer.no_padding()
    if wanted["truncation"]:
        tokenizer.enable_truncation(**wanted["truncation"])
    if wanted["padding"]:
        tokenizer.enable_padding(**wanted["padding"])


def on_both(pair: tuple[Tokenizer, "hf.Tokenizer"], call: Callable[[Any], Any]) -> tuple[Any, Any] | None:
    """What a call returns in both libraries; None where both refuse it."""
    try:
        expected = call(pair[1])
    except BaseException as error:  # HF panics, or raises a bare Exception
        if isinstance(error, KeyboardInterrupt):
            raise
        with pytest.raises((ValueError, TypeError)):
            call(pair[0])
        return None
    return call(pair[0]), expected


@pytest.mark.parametrize("name", FAMILIES)
def test_encode_of_texts_pairs_and_words(name: str) -> None:
    pair = both(name)
    options = {"tokens": not isinstance(pair[0].model, Unigram), "types": False}

    @given(st.data(), st.booleans(), st.booleans(), lengths())
    def check(data: st.DataObject, words: bool, special: bool, wanted: dict[str, Any]) -> None:
        first = data.draw(sequences(words))
        second = data.draw(st.none() | sequences(words))
        for tokenizer in pair:
            set_lengths(tokenizer, wanted)
        found = on_both(pair, lambda t: t.encode(first, second, words, special))
        if found:
            assert_same(*found, **options)

    check()


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("method", ["encode_batch", "encode_batch_fast"])
def test_encode_of_batches(name: str, method: str) -> None:
    pair = both(name)
    options = {"tokens": not isinstance(pair[0].model, Unigram), "types": False}

    @given(st.data(), st.booleans(), st.booleans(), lengths())
    def check(data: st.DataObject, words: bool, special: bool, wanted: dict[str, Any]) -> None:
        one = sequences(words)
        two = st.tuples(one, one)
        batch = data.draw(st.lists(st.one_of(one, two, two.map(list)), max_size=4))
        for tokenizer in pair:
            set_lengths(tokenizer, wanted)
        found = on_both(pair, lambda t: getattr(t, method)(batch, is_pretokenized=words, add_special_tokens=special))
        if found:
            assert len(found[0]) == len(found[1])
            for got, expected in zip(*found, strict=True):
                assert_same(got, expected, **options)

    check()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda t: t.encode(["a"]), "text must be a str, got list"),
        (lambda t: t.encode("a", is_pretokenized=True), "pre-tokenized text must be a list or tuple of str, got 'a'"),
        (lambda t: t.encode(["a", 1], is_pretokenized=True), "pre-tokenized text must be"),
        (lambda t: t.encode_batch([["a", "b", "c"]]), "text must be a str, got list"),
        (lambda t: t.encode_batch([("a", None)]), "text must be a str, got tuple"),
        (lambda t: t.encode_batch(["a"], is_pretokenized=True), "pre-tokenized text must be"),
        (lambda t: t.encode_batch_fast([(["a"], "b")], is_pretokenized=True), "pre-tokenized text must be"),
        (lambda t: t.add_tokens("ab"), "tokens must be a list, got one str, 'ab'"),
    ],
)
def test_what_is_no_text(call: Callable[[Any], Any], message: str) -> None:
    ours, theirs = both("roberta")
    with pytest.raises(TypeError):
        call(theirs)
    with pytest.raises(TypeError, match=message):
        call(ours)


@pytest.mark.parametrize("name", FAMILIES)
def test_post_process(name: str) -> None:
    pair = both(name)
    options = {"tokens": not isinstance(pair[0].model, Unigram), "types": False}

    @given(texts(), st.none() | texts(), st.booleans(), lengths())
    def check(first: str, second: str | None, special: bool, wanted: dict[str, Any]) -> None:
        def call(tokenizer: Any) -> Any:
            set_lengths(tokenizer, {"truncation": None, "padding": None})
            parts = [tokenizer.encode(t, add_special_tokens=False) for t in (first, second) if t is not None]
            set_lengths(tokenizer, wanted)
            return tokenizer.post_process(*parts, add_special_tokens=special)

        found = on_both(pair, call)
        if found:
            assert_same(*found, **options, belongs=second is None)
            assert found[0].n_sequences == 1 + (second is not None)

    check()


def operations() -> st.SearchStrategy[tuple[str, dict[str, Any]]]:
    """Ways to change an encoding, with arguments."""
    sides = st.sampled_from(["right", "left"])
    pad = st.fixed_dictionaries(
        {"length": st.integers(0, 14), "direction": sides, "pad_id": st.integers(0, 9),
         "pad_type_id": st.integers(0, 2), "pad_token": st.sampled_from(["[PAD]", "!"])}
    )  # fmt: skip
    truncate = st.fixed_dictionaries({"max_length": st.integers(0, 9), "stride": st.integers(0, 2), "direction": sides})
    return st.one_of(
        st.tuples(st.just("pad"), pad),
        st.tuples(st.just("truncate"), truncate),
        st.tuples(st.just("set_sequence_id"), st.fixed_dictionaries({"sequence_id": st.integers(0, 2)})),
    )


@given(st.lists(st.tuples(texts(), st.none() | texts(), st.lists(operations(), max_size=4)), max_size=3), st.booleans())
def test_changing_and_merging_encodings(
    inputs: list[tuple[str, str | None, list[tuple[str, dict[str, Any]]]]], grow: bool
) -> None:
    pair = both("modernbert")
    changed: list[tuple[Encoding, hf.Encoding]] = []
    for first, second, steps in inputs:
        got, expected = (t.encode(first, second) for t in pair)
        known = True
        for method, arguments in steps:
            if method == "truncate" and 0 < arguments["max_length"] <= arguments["stride"]:
                with pytest.raises(ValueError, match="stride must be in 0"):
                    got.truncate(**arguments)
                continue
            getattr(expected, method)(**arguments)
            assert getattr(got, method)(**arguments) is None
            known = known and method != "set_sequence_id"
            assert_same(got, expected, known=known)
        changed.append((got, expected))
    got = Encoding.merge([mine for mine, _ in changed], growing_offsets=grow)
    expected = hf.Encoding.merge([other for _, other in changed], growing_offsets=grow)
    assert_same(got, expected, known=False)


@given(st.lists(st.lists(st.sampled_from(["<a>", "b ", "the", "", " c", "<a>"]), max_size=3), max_size=4), st.data())
def test_adding_tokens(calls: list[list[str]], data: st.DataObject) -> None:
    text = families.family("roberta")
    theirs, ours = hf.Tokenizer.from_str(text), Tokenizer.from_str(text).replace(special="split")
    for tokens in calls:
        method = data.draw(st.sampled_from(["add_tokens", "add_special_tokens"]))
        assert getattr(ours, method)(tokens) == getattr(theirs, method)(tokens)
        assert ours.get_vocab() == theirs.get_vocab()
        expected = {i: token.__getstate__() for i, token in theirs.get_added_tokens_decoder().items()}
        found = ours.get_added_tokens_decoder()
        assert list(found) == list(expected)
        for i, token in expected.items():
            assert {key: getattr(found[i], key) for key in token} == token
        sample = data.draw(st.lists(st.sampled_from(["<a>", "b ", "the", " c", " ", "x"]), max_size=6).map("".join))
        assert ours.encode(sample).ids == theirs.encode(sample).ids
        assert ours.decode(ours.encode(sample).ids, False) == theirs.decode(theirs.encode(sample).ids, False)


def test_parts_may_be_replaced_at_any_time() -> None:
    ours = Tokenizer(model=WordLevel({"a": 0, "b": 1, "ab": 2, "?": 3}, unk_token="?"))
    assert ours.encode("a b").ids == [3]
    ours.pre_tokenizer = our_pre_tokenizers.WhitespaceSplit()
    assert ours.encode("a b").ids == [0, 1]
    ours.model = WordLevel({"a": 5, "b": 6, "?": 7}, unk_token="?")
    assert ours.encode("a b").ids == ours.encode_arrow(strategies.pa.array(["a b"]))[0].as_py() == [5, 6]
    assert (ours.id_to_token(5), ours.decode([6, 5])) == ("a", "b a")
    ours.added_tokens = [AddedToken(8, "b", special=False)][:0]
    with pytest.raises(ValueError, match="special must be"):
        ours.special = "no"
    assert ours.special == "plain"


def test_the_public_surface() -> None:
    ours, theirs = both("roberta")
    names = {name for one in (hf.Tokenizer, hf.Encoding) for name in dir(one) if not name.startswith("_")}
    missing = {name for name in names if not (hasattr(ours, name) or hasattr(ours.encode("a"), name))}
    assert missing == set(LEFT_OUT)
    assert {name for name in dir(theirs.encode("a")) if name[0] != "_"} <= set(dir(ours.encode("a")))


def test_the_differences_are_these(tmp_path: Path) -> None:
    seen = set()
    ours, theirs = both("roberta")
    with pytest.raises(FileNotFoundError, match=r"if it is a name on the Hugging Face hub, .*: hf down"):
        Tokenizer.from_pretrained("openai-community/gpt2")
    ours.save(tmp_path / "tokenizer.json")
    if Tokenizer.from_pretrained(tmp_path).to_str() == ours.to_str():
        seen.add("from_pretrained")
    for tokenizer in (ours, theirs):
        tokenizer.enable_truncation(9)
    if isinstance(theirs.truncation, dict) and ours.truncation == Tokenizer.from_str(theirs.to_str()).truncation:
        seen.add("truncation and padding")
    theirs.enable_padding()
    assert theirs.padding["pad_id"] == 0
    with pytest.raises(ValueError, match="pass pad_id= or pad_token="):
        ours.enable_padding()
    ours.enable_padding(pad_token="a")
    assert ours.padding is not None
    if ours.padding.pad_id == ours.token_to_id("a") != 0:
        seen.add("pad_id of enable_padding")

    gaps = {"a": 0, "b": 3}
    theirs = hf.Tokenizer(models.WordLevel(gaps, unk_token="a"))
    mine = Tokenizer(model=WordLevel(gaps, unk_token="a"))
    assert mine.add_tokens(["x", "y"]) == theirs.add_tokens(["x", "y"]) == 2
    assert (mine.token_to_id("x"), mine.token_to_id("y")) == (4, 5)
    if (theirs.token_to_id("x"), theirs.token_to_id("y")) == (2, 3):
        seen.add("ids of new tokens")
    mine.add_tokens([AddedToken(9, "z")])
    theirs.add_tokens([hf.AddedToken("z")])
    if mine.token_to_id("z") == 9 != theirs.token_to_id("z"):
        seen.add("ids of AddedToken")

    for tokenizer in (mine, theirs):
        tokenizer.add_special_tokens(["s"])
        assert tokenizer.decode([tokenizer.token_to_id("s")]) == ""
        tokenizer.add_tokens(["s"])
    if mine.decode([mine.token_to_id("s")]) == "s" != theirs.decode([theirs.token_to_id("s")]):
        seen.add("tokens that are special no more")

    theirs.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    (got,), (expected,) = mine.encode_batch_fast([("a", "b")]), theirs.encode_batch_fast([("a", "b")])
    assert got.ids == expected.ids
    if got.type_ids == [0, 1] == theirs.encode("a", "b").type_ids != expected.type_ids:
        seen.add("type ids of encode_batch_fast")

    layout = processors.BertProcessing(("b", 3), ("a", 0))
    theirs.post_processor, mine.post_processor = layout, BertProcessing(("b", 3), ("a", 0))
    assert theirs.post_process(theirs.encode("a")).ids == [0, 0, 0, 3, 3]
    with pytest.raises(ValueError, match="post_process is for encodings without special tokens"):
        mine.post_process(mine.encode("a"))
    seen.add("post_process of what is processed")
    got, expected = (
        t.post_process(*(t.encode(part, add_special_tokens=False) for part in "ab"), add_special_tokens=False)
        for t in (mine, theirs)
    )
    assert got.ids == expected.ids == [0, 3]
    if got.sequence_ids == [0, 1] != expected.sequence_ids:
        seen.add("sequences of post_process")
    with pytest.raises(BaseException, match="stride"):
        theirs.encode("a").truncate(1, 1)
    with pytest.raises(ValueError, match="stride must be in"):
        mine.encode("a").truncate(1, 1)
    seen.add("stride that is too large")
    trained = []
    for tokenizer, made, kept in (
        (hf.Tokenizer(models.BPE()), trainers.BpeTrainer(special_tokens=["<s>"], show_progress=False), "<kept>"),
        (Tokenizer(model=None), BPETrainer(special_tokens=("<s>",)), AddedToken(0, "<kept>", special=False)),
    ):
        tokenizer.add_tokens([kept])
        trained.append(tokenizer.train_from_iterator(["ab"], made) or tokenizer)
    assert [t.token_to_id("<kept>") for t in trained] == [0, trained[1].token_to_id("ab") + 1]
    assert trained[0].token_to_id("<s>") == 0
    seen.add("ids after training")
    theirs, mine = hf.Tokenizer(models.BPE()), Tokenizer(model=None)
    theirs.add_tokens(["<kept>"])
    mine.add_tokens([AddedToken(0, "<kept>", special=False)])
    theirs.train_from_iterator(["a<kept>b"], trainers.BpeTrainer(show_progress=False))
    mine.train_from_iterator(["a<kept>b"], BPETrainer())
    if [t.token_to_id("a<kept>b") is None for t in (theirs, mine)] == [True, False]:
        seen.add("added tokens in texts to train on")
    theirs = hf.Tokenizer(models.BPE({"a": 0}, []))
    theirs.normalizer = normalizers.Lowercase()
    theirs.add_tokens([hf.AddedToken("A B", normalized=True)])
    mine = Tokenizer.from_str(theirs.to_str())
    assert mine.decode([1, 0]) == theirs.decode([1, 0]) == "a b a"
    assert mine.get_vocab() == theirs.get_vocab()
    if (mine.id_to_token(1), theirs.id_to_token(1)) == ("A B", "a b"):
        seen.add("id_to_token of normalized tokens")
    theirs.add_special_tokens([hf.AddedToken("[S]", normalized=True)])
    mine = Tokenizer.from_str(theirs.to_str())
    assert mine.decode([0, 2]) == mine.decode([0, 2], False) == theirs.decode([0, 2]) == "a [s]"
    assert seen == set(DIFFERENCES)
