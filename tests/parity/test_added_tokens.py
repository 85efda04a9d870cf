# SPDX-License-Identifier: Apache-2.0
"""Added tokens against HF tokenizers: every combination of flags, hostile surroundings; policies for special ones."""

import collections
import json

import pytest

hf = pytest.importorskip("tokenizers", reason="needs the test group: HF tokenizers")

import pyarrow as pa  # noqa: E402
from hypothesis import assume, given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from tests import strategies  # noqa: E402
from tests.parity.families import family  # noqa: E402
from tokenmill.tokenizer import Sampling, Tokenizer, WordPiece, reference_encoding  # noqa: E402
from tokenmill.tokenizer.chat.masks import mask_tokens  # noqa: E402

pytestmark = pytest.mark.parity

VOCAB = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefgh1中<>|", *(f"##{c}" for c in "abcdefgh1")]
CONTENTS = ["<a>", "<a", "[MASK]", "ab", "abc", " b", "É", "中", "<|x|>", "bb ", " ", "\n", "\n "]
# Not `tokens`: for an added token HF gives the text that matched, normalized and with its white space, we the token.
ATTRIBUTES = ("ids", "type_ids", "special_tokens_mask", "offsets", "word_ids", "sequence_ids")


@st.composite
def added_tokens(draw: st.DrawFn) -> list[dict[str, object]]:
    contents = draw(st.lists(st.sampled_from(CONTENTS), min_size=1, max_size=5, unique=True))
    flags = ("single_word", "lstrip", "rstrip", "normalized", "special")
    return [
        {"id": VOCAB.index(c) if c in VOCAB else len(VOCAB) + i, "content": c} | {f: draw(st.booleans()) for f in flags}
        for i, c in enumerate(contents)
    ]


def texts() -> st.SearchStrategy[str]:
    pieces = st.one_of(st.sampled_from([*CONTENTS, " ", "  ", "\u3000", "a", "é", "_", "x"]), strategies.characters())
    return st.lists(pieces, max_size=14).map("".join)


TRIMMING = [
    {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": True, "use_regex": True}
    for prefix in (False, True)
]


@given(st.lists(st.sampled_from([*CONTENTS, "a", "##b"]), max_size=12), st.booleans())
def test_a_tokenizer_has_as_many_tokens_as_hf_while_some_are_added(contents: list[str], special: bool) -> None:
    ours = Tokenizer.for_bert(VOCAB)
    theirs = hf.Tokenizer.from_str(ours.to_str())
    for content in contents:
        for each in (ours, theirs):
            (each.add_special_tokens if special else each.add_tokens)([content])
        for whole in (True, False):
            assert ours.get_vocab_size(whole) == theirs.get_vocab_size(whole) == len(ours.get_vocab(whole))


@given(added_tokens(), st.lists(texts(), max_size=4), st.booleans(), st.sampled_from([None, *TRIMMING]))
def test_added_tokens_on_hostile_text(
    added: list[dict[str, object]], batch: list[str], split: bool, layout: dict[str, object] | None
) -> None:
    base = json.loads(Tokenizer.for_bert(VOCAB).to_str()) | {"added_tokens": added, "post_processor": layout}
    # HF gives ids in the order of the file, and only as it would have given them itself.
    theirs = hf.Tokenizer.from_str(json.dumps(base | {"added_tokens": []}))
    for token in added:
        fields = {k: v for k, v in token.items() if k not in ("id", "content")}
        add = theirs.add_special_tokens if token["special"] else theirs.add_tokens
        add([hf.AddedToken(str(token["content"]), **{k: v for k, v in fields.items() if k != "special"})])
    for token in added:
        token["id"] = theirs.token_to_id(str(token["content"]))
    looked_for = [theirs.normalizer.normalize_str(str(token["content"])) for token in added if token["normalized"]]
    assume(len(set(looked_for)) == len(looked_for))  # of those that are equal HF takes any, another in each process
    theirs.encode_special_tokens = not split
    ours = Tokenizer.from_str(json.dumps(base))._with_overrides(special="split" if split else "plain")
    expected, usable = [], []
    for text in batch:
        try:
            expected.append(theirs.encode(text, add_special_tokens=False))
        except BaseException as error:  # HF crashes on white space that two tokens take
            if type(error).__name__ != "PanicException":
                raise
            ours.encode(text)
        else:
            usable.append(text)
    batch = usable
    assert ours.encode_arrow(pa.array(batch, pa.string())).to_pylist() == [e.ids for e in expected]
    for text, encoding in zip(batch, expected, strict=True):
        got = ours.encode(text, add_special_tokens=False)
        for name in ATTRIBUTES:
            assert getattr(got, name) == getattr(encoding, name), name
        assert ours.decode(got.ids, False) == theirs.decode(encoding.ids, False)


@pytest.mark.parametrize("normalized", [False, True])
@pytest.mark.parametrize("name", ["gemma 3", "gpt2", "bert and digits", "t5", "added tokens", "clip"])
def test_white_space_that_two_tokens_take_is_cut_as_there(name: str, normalized: bool) -> None:
    theirs = hf.Tokenizer.from_str(family(name))
    theirs.add_tokens([hf.AddedToken("<x>", rstrip=True, normalized=normalized)])
    added = ("\n", " a") if normalized else ("\n", "\n\n", " a")  # of those that are equal once normalized HF takes any
    theirs.add_tokens([hf.AddedToken(token, normalized=normalized) for token in added])
    batch = ["the <x>\r\n\r\n", "mill", "<x> \n \n\n b<x> a", "<x>\n\n\n a", "a\n<x>", "", "<x>  the \u3000<x>\u3000 é"]
    ours = Tokenizer.from_str(theirs.to_str())
    expected = theirs.encode_batch(batch, add_special_tokens=False)
    tally, names = ours.new_tally(), {token.id: token.content for token in ours.added_tokens}
    assert ours.encode_arrow(batch, tally=tally).to_pylist() == [each.ids for each in expected]
    hits = collections.Counter(names[i] for each in expected for i in each.ids if i in names)
    assert tally.added_token_hits == hits
    n_words = tally.n_words + hits.total()
    assert name in ("gemma 3", "added tokens") or n_words == sum(len(set(each.word_ids)) for each in expected)
    if not isinstance(ours.model, WordPiece):
        best = Sampling(dropout=0, nbest_size=1)
        assert ours.encode_arrow(batch, sampling=best).to_pylist() == [each.ids for each in expected]
    for got, each in zip(ours.encode_batch(batch, add_special_tokens=False), expected, strict=True):
        assert (got.ids, got.offsets, got.word_ids) == (each.ids, each.offsets, each.word_ids)
    # A token is trained if a byte of it is, though others overlap it.
    texts, lasts = pa.array(batch), [[(len(text) - 1, len(text))] if text else [] for text in batch]
    ids = ours.encode_bare(texts)
    trained = mask_tokens(ours, texts, ids, lasts, [[]] * len(batch), 0).trained.tolist()
    before = [len(text[:-1].encode()) for text, row in zip(batch, ids, strict=True) for _ in row]
    found = zip(*ours.token_offsets(texts, ids), strict=True)
    assert trained == [stop > max(start, last) for (start, stop), last in zip(found, before, strict=True)]
    found = ours.encode_arrow(batch, offsets=True)
    pairs = zip(found.column("starts").to_pylist(), found.column("stops").to_pylist(), strict=True)
    assert [list(zip(*pair, strict=True)) for pair in pairs] == [each.offsets for each in expected]
    for text, each in zip(batch, expected, strict=True):
        assert reference_encoding.encode(ours, text) == each.ids


def test_the_policies_for_special_tokens() -> None:
    text = "a [MASK]b"
    tokens = {}
    for special in ("plain", "split"):
        tokenizer = Tokenizer.for_bert([*VOCAB, "mask", "[", "]"])._with_overrides(special=special)
        tokens[special] = tokenizer.encode(text, add_special_tokens=False).tokens
    assert tokens == {"plain": ["a", "[", "mask", "]", "b"], "split": ["a", "[MASK]", "b"]}
    strict = Tokenizer.for_bert(VOCAB)._with_overrides(special="error")
    assert strict.encode("a b").ids
    for encode in (strict.encode, lambda t: strict.encode_arrow(pa.array([t]))):
        with pytest.raises(ValueError, match=r"special token '\[MASK\]' occurs in a text; pass special='plain'"):
            encode(text)
    with pytest.raises(ValueError, match="special must be 'plain', 'split' or 'error', got 'ignore'"):
        Tokenizer.for_bert(VOCAB)._with_overrides(special="ignore")  # type: ignore[arg-type]
