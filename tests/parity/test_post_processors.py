# SPDX-License-Identifier: Apache-2.0
"""Post-processing against HF tokenizers: layouts, offsets, truncation with what overflows, padding, conversions.

HF tokenizes without a post-processor; what it then makes of the tokens with one is compared with what we make of them.
`DIFFERENCES` is the whole list of what is meant to differ.
"""

import json
from typing import Any

import pytest

hf = pytest.importorskip("tokenizers", reason="needs the test group: HF tokenizers")

from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from tokenizers import models, normalizers, pre_tokenizers  # noqa: E402
from tokenizers import processors as theirs  # noqa: E402

from tests import strategies  # noqa: E402
from tests.reference.tracing import assemble  # noqa: E402
from tokenmill.tokenizer import Tokenizer, TokenizerFileError  # noqa: E402
from tokenmill.tokenizer import post_processors as ours  # noqa: E402
from tokenmill.tokenizer.encoding import Encoding  # noqa: E402
from tokenmill.tokenizer.models.bpe import BYTE_ALPHABET  # noqa: E402
from tokenmill.tokenizer.offsets import EncodedToken  # noqa: E402
from tokenmill.tokenizer.post_processors import TemplatePiece, Truncation  # noqa: E402

pytestmark = pytest.mark.parity

DIFFERENCES = {
    "type ids of overflowing parts": "those of the layout; HF has them for the first part only",
    "sequences after a layout": "a ByteLevel after a template changes nothing; HF numbers the parts of the template",
    "sequences without a post-processor": "none for padding, two for every part of a pair; HF forgets them",
    "templates without A, or of a pair without B": "refused, and with one twice; HF leaves the text out",
    "a second layout in a Sequence": "refused, as is trim_offsets behind BertProcessing or RobertaProcessing; "
    "HF takes special tokens for text",
}
ATTRIBUTES = (
    "ids", "tokens", "type_ids", "attention_mask", "special_tokens_mask", "offsets", "word_ids", "sequence_ids",
    "n_sequences",
)  # fmt: skip
CLS, SEP = ("<s>", 256), ("</s>", 257)
SPECIALS = {"<s>": ours.SpecialToken((256,), ("<s>",)), "</s>": ours.SpecialToken((257,), ("</s>",))}


def template(single: str, pair: str) -> tuple[ours.TemplateProcessing, "theirs.TemplateProcessing"]:
    def pieces(text: str) -> tuple[TemplatePiece, ...]:
        parts = (part.partition(":") for part in text.split())
        return tuple(TemplatePiece(name.lstrip("$"), int(kind or 0), "$" in name) for name, _, kind in parts)

    mine = ours.TemplateProcessing(pieces(single), pieces(pair), SPECIALS)
    return mine, theirs.TemplateProcessing(single=single, pair=pair, special_tokens=[CLS, SEP])


PAIRS: dict[str, tuple[Any, Any]] = {
    "bert": (ours.BertProcessing(SEP, CLS), theirs.BertProcessing(SEP, CLS)),
    "roberta": (ours.RobertaProcessing(SEP, CLS), theirs.RobertaProcessing(SEP, CLS)),
    "roberta, no prefix": (
        ours.RobertaProcessing(SEP, CLS, True, False), theirs.RobertaProcessing(SEP, CLS, True, False)
    ),
    "roberta, untrimmed": (
        ours.RobertaProcessing(SEP, CLS, False, True), theirs.RobertaProcessing(SEP, CLS, False, True)
    ),
    "byte level": (ours.ByteLevel(), theirs.ByteLevel()),
    "byte level, no prefix": (ours.ByteLevel(False), theirs.ByteLevel(add_prefix_space=False)),
    "byte level, untrimmed": (ours.ByteLevel(True, False), theirs.ByteLevel(trim_offsets=False)),
    "template": template("<s> $A </s>", "<s> $A </s> $B:1 </s>:1"),
    "template, turned": template("$A </s> </s>", "$B:1 <s> $A"),
}  # fmt: skip
SEQUENCES = {
    "llama 3": ["byte level, untrimmed", "template"],
    "trimmed, template": ["byte level", "template"],
    "trimmed twice": ["byte level, no prefix", "byte level", "template, turned"],
    "trimmed, roberta": ["byte level", "roberta"],
    "trimmed only": ["byte level, no prefix", "byte level"],
    "none": [],
}
for _name, _parts in SEQUENCES.items():
    PAIRS[_name] = (
        ours.Sequence(tuple(PAIRS[p][0] for p in _parts)),
        theirs.Sequence([PAIRS[p][1] for p in _parts]),
    )


def make(prefix: bool) -> "hf.Tokenizer":
    """A byte-level tokenizer with few merges, and added tokens that begin and end with spaces."""
    vocab = {c: i for i, c in enumerate(BYTE_ALPHABET)} | {"<s>": 256, "</s>": 257}
    merges = [
        ("Ġ", "Ġ"), ("a", "Ġ"), ("Ġ", "a"), ("Ġ", "t"), ("t", "h"), ("Ġ", "th"), ("Ċ", "Ċ"), ("ĠĠ", "ĠĠ"), ("Ã", "©"),
    ]  # fmt: skip
    for a, b in merges:
        vocab[a + b] = len(vocab)
    tokenizer = hf.Tokenizer(models.BPE(vocab, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split("|", "removed"), pre_tokenizers.ByteLevel(prefix, use_regex=False)]
    )
    tokenizer.normalizer = normalizers.Replace("_", "")
    tokenizer.add_tokens([" x", "x  ", "\t\u3000", hf.AddedToken("y", lstrip=True, rstrip=True)])
    return tokenizer


RAW = {prefix: make(prefix) for prefix in (True, False)}


def processed(raw: "hf.Tokenizer", processor: Any) -> "hf.Tokenizer":
    tokenizer = hf.Tokenizer.from_str(raw.to_str())
    if processor is not None:
        tokenizer.post_processor = processor
    return tokenizer


WITH = {(name, prefix): processed(RAW[prefix], pair[1]) for name, pair in PAIRS.items() for prefix in RAW}


def encoded(raw: "hf.Tokenizer", text: str) -> list[EncodedToken]:
    found = raw.encode(text, add_special_tokens=False)
    return [
        EncodedToken(*fields) for fields in zip(found.ids, found.tokens, found.offsets, found.word_ids, strict=True)
    ]


def assert_same(got: Encoding, expected: "hf.Encoding", skipped: set[str], later: set[str]) -> None:
    """Compares encodings and the parts that overflow, but for what differs: in all, and in those parts."""
    for name in ATTRIBUTES:
        if name not in skipped:
            assert getattr(got, name) == getattr(expected, name), name
    if "sequence_ids" not in skipped:
        assert_same_conversions(got, expected)
    assert len(got.overflowing) == len(expected.overflowing)
    for mine, other in zip(got.overflowing, expected.overflowing, strict=True):
        assert_same(mine, other, later, later)


def assert_same_conversions(got: Encoding, expected: "hf.Encoding") -> None:
    for i in range(len(got) + 3):
        for name in ("token_to_sequence", "token_to_chars", "token_to_word"):
            assert getattr(got, name)(i) == getattr(expected, name)(i), (name, i)
        for name in ("word_to_tokens", "word_to_chars", "char_to_token", "char_to_word"):
            for sequence in range(3):
                assert getattr(got, name)(i, sequence) == getattr(expected, name)(i, sequence), (name, i, sequence)
            assert getattr(got, name)(i) == getattr(expected, name)(i), (name, i)


def texts() -> st.SearchStrategy[str]:
    pieces = st.sampled_from(
        ["a", "th", " ", "  ", " a", " the", "\n", "\t\u3000", "é", "中", " x", "x  ", "y", "|", "_"]
    )
    # Short: with a pair, every part of one text that overflows is combined with every part of the other.
    return st.lists(st.one_of(pieces, strategies.characters()), max_size=10).map("".join)


def truncations() -> st.SearchStrategy[Truncation | None]:
    def build(max_length: int, strategy: Any, direction: Any, stride: int) -> Truncation:
        return Truncation(max_length, strategy, direction, min(stride, max(0, max_length - 1)))

    strategy = st.sampled_from(["longest_first", "longest_first", "only_first", "only_second"])
    direction = st.sampled_from(["right", "left"])
    return st.none() | st.builds(build, st.integers(0, 14), strategy, direction, st.integers(0, 4))


def enable(tokenizer: "hf.Tokenizer", cut: Truncation | None) -> None:
    tokenizer.no_truncation()
    if cut:
        tokenizer.enable_truncation(cut.max_length, stride=cut.stride, strategy=cut.strategy, direction=cut.direction)


@pytest.mark.parametrize("name", PAIRS)
def test_everything(name: str) -> None:
    processor = PAIRS[name][0]

    @given(
        texts(), st.none() | texts(), st.booleans(), st.booleans(), truncations(), st.sampled_from([None, 0, 6, 20]),
        st.sampled_from(["right", "left"]),
    )  # fmt: skip
    def check(
        text: str, pair: str | None, prefix: bool, special: bool, cut: Truncation | None, length: int | None, side: str
    ) -> None:  # fmt: skip
        inputs = [text] if pair is None else [text, pair]
        tokens = [encoded(RAW[prefix], t) for t in inputs]
        tokenizer = WITH[name, prefix]
        layout = processor.template(special)
        pieces = layout.single if pair is None else layout.pair
        n_special = ours.n_added(pieces, layout.special_tokens)
        assert not special or n_special == tokenizer.num_special_tokens_to_add(pair is not None)
        if cut and cut.max_length < n_special:
            return  # refused, see test_bert
        try:
            enable(tokenizer, cut)
            tokenizer.no_padding()
            if length is not None:
                tokenizer.enable_padding(direction=side, length=length, pad_id=7, pad_type_id=3, pad_token="!")
            expected = tokenizer.encode(*inputs, add_special_tokens=special)
        except BaseException:  # HF panics, or raises a bare Exception
            # HF looks at the special tokens when truncation is enabled too, whether they are added or not.
            if cut and cut.stride <= cut.max_length - tokenizer.num_special_tokens_to_add(False):
                with pytest.raises(ValueError, match=r"stride|truncation"):
                    assemble(layout, tokens, cut, processor.trims)
            return
        got = assemble(layout, tokens, cut, processor.trims)
        got.pad(length or 0, side, 7, 3, "!")
        keeps_types = {p.name: p.type_id for p in pieces if p.is_sequence}.items() <= {"A": 0, "B": 1}.items()
        assert_same(got, expected, set(), set() if keeps_types else {"type_ids"})

    check()


def test_the_differences_are_these() -> None:
    seen = set()
    cut = Truncation(4)
    tokens = [encoded(RAW[False], t) for t in ("aaaa", "tttttt")]

    def on_both(processor: Any, other: Any) -> tuple[Encoding, "hf.Encoding"]:
        tokenizer = processed(RAW[False], other)
        tokenizer.enable_truncation(4)
        layout, trims = (processor.template(False), processor.trims) if processor else (ours.PLAIN_LAYOUT, ())
        return assemble(layout, tokens, cut, trims), tokenizer.encode("aaaa", "tttttt", add_special_tokens=False)

    got, expected = on_both(*PAIRS["roberta"])
    assert got.type_ids == expected.type_ids == got.overflowing[0].type_ids
    if [e.type_ids for e in got.overflowing] != [e.type_ids for e in expected.overflowing]:
        seen.add("type ids of overflowing parts")
    got, expected = on_both(
        ours.Sequence((PAIRS["template, turned"][0], ours.ByteLevel())),
        theirs.Sequence([PAIRS["template, turned"][1], theirs.ByteLevel()]),
    )
    assert got.sequence_ids == [1, 1, 0, 0]
    assert (got.ids, got.offsets) == (expected.ids, expected.offsets)
    if got.sequence_ids != expected.sequence_ids:
        seen.add("sequences after a layout")
    got, expected = on_both(None, None)
    assert got.overflowing[0].n_sequences == 2
    if expected.overflowing[0].n_sequences == 1:
        seen.add("sequences without a post-processor")
    text = {"id": "A", "type_id": 0}
    layout = {"type": "TemplateProcessing", "single": [], "pair": [{"Sequence": text}], "special_tokens": {}}
    model = {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}
    file = json.dumps({"version": "1.0", "model": model, "post_processor": layout})
    with pytest.raises(TokenizerFileError, match="single template must hold A exactly once, got"):
        Tokenizer.from_str(file)
    both = hf.Tokenizer.from_str(file)
    if (both.encode("a").ids, both.encode("a", "a").ids) == ([], [0]):
        seen.add("templates without A, or of a pair without B")
    bert, trims = PAIRS["bert"], (ours.ByteLevel(trim_offsets=True), None)
    for second, words in ((bert, "may hold one layout"), (trims, "put it before")):
        with pytest.raises(ValueError, match=words):
            ours.Sequence((bert[0], second[0]))
    both.post_processor = theirs.Sequence([bert[1], bert[1]])
    if both.encode("a").ids == [256, 256, 0, 257, 257]:
        seen.add("a second layout in a Sequence")
    assert seen == set(DIFFERENCES)
