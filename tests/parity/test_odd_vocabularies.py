# SPDX-License-Identifier: Apache-2.0
"""Vocabularies without their unknown token, or with a token or an id twice: loaded, and texts refused, as HF does."""

import json
from pathlib import Path
from typing import Any

import pytest

hf = pytest.importorskip("tokenizers", reason="needs the test group: tokenizers")

from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from tokenmill.tokenizer import Tokenizer, UnknownCharacterError, reach  # noqa: E402
from tokenmill.tokenizer.models import BPE  # noqa: E402
from tokenmill.tokenizer.reference_encoding import encode  # noqa: E402
from tokenmill.tokenizer.sampling import Sampling  # noqa: E402

pytestmark = pytest.mark.parity

TOKENS = {token: i for i, token in enumerate(["▁", "a", "b", "ab", "##b", "##a", "Ġ", "Ã", "ı", "é"])}
MODELS: dict[str, dict[str, Any]] = {
    "WordLevel": {"unk_token": "?"},
    "WordPiece": {"unk_token": "?", "continuing_subword_prefix": "##", "max_input_chars_per_word": 6},
    "BPE": {"unk_token": "?", "merges": [["a", "b"]], "fuse_unk": True, "byte_fallback": True},
}
NORMALIZERS: list[Any] = [
    None,
    {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
    {"type": "BertNormalizer"}
    | dict.fromkeys(("clean_text", "handle_chinese_chars", "strip_accents", "lowercase"), True),
]
PRE_TOKENIZERS = [
    None, *({"type": name} for name in ("Whitespace", "BertPreTokenizer", "WhitespaceSplit")),
    {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
    {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True},
]  # fmt: skip


def file_of(kind: str, normalizer: Any = None, pre_tokenizer: Any = None) -> str:
    """Returns a tokenizer.json whose unknown token is an added token at most."""
    model = {"type": kind, "vocab": TOKENS} | MODELS[kind]
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    added = [{"id": len(TOKENS), "content": "?", "special": True} | flags]
    parts = {"normalizer": normalizer, "pre_tokenizer": pre_tokenizer, "post_processor": None, "decoder": None}
    rest = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added}
    return json.dumps(rest | parts | {"model": model})


@given(st.data())
def test_a_text_is_refused_where_hf_refuses_it(data: st.DataObject) -> None:
    text = file_of(*(data.draw(st.sampled_from(each)) for each in ([*MODELS], NORMALIZERS, PRE_TOKENIZERS)))
    ours, theirs = Tokenizer.from_str(text).replace(special="split"), hf.Tokenizer.from_str(text)
    assert "lacks the unknown token '?'" in ours.explain()
    texts = data.draw(st.lists(st.text(st.sampled_from("abé ?x玫")), min_size=1, max_size=6))
    for row in [*texts, *texts]:
        try:
            expected = theirs.encode(row)
        except Exception:
            for attempt in (ours.encode, ours.encode_batch, ours.encode_arrow):
                with pytest.raises(UnknownCharacterError):
                    attempt([row] if attempt != ours.encode else row)
            with pytest.raises(UnknownCharacterError):
                encode(ours, row)
        else:
            assert (ours.encode(row).ids, ours.encode(row).offsets) == (expected.ids, expected.offsets)


@pytest.mark.parametrize("kind", MODELS)
def test_entries_are_told_apart_without_one_call_for_each(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = Tokenizer.from_str(file_of(kind, None, PRE_TOKENIZERS[1]))
    monkeypatch.setattr(reach, "FAILS", ())  # no text fails, so none is tried again
    found = reach.kinds(ours).to_pylist()
    assert len(found) == ours.n_ids
    assert (found[TOKENS["ab"]], found[len(TOKENS)]) == ("ordinary", "added")


def test_dropout_refuses_it_too() -> None:
    ours = Tokenizer(model=BPE(TOKENS, [("a", "b")], unk_token="?"))
    assert ours.encode_arrow(["ab"], sampling=Sampling(dropout=1.0)).to_pylist() == [[1, 2]]
    with pytest.raises(UnknownCharacterError):
        ours.encode_arrow(["abx"], sampling=Sampling(dropout=1.0))


@pytest.mark.parametrize("kind", MODELS)
def test_a_token_that_stands_twice_has_its_last_id(kind: str) -> None:
    text = file_of(kind, None, {"type": "WhitespaceSplit"}).replace('"a": 1', '"a": 20, "a": 1')
    ours, theirs = Tokenizer.from_str(text), hf.Tokenizer.from_str(text)
    assert ours.encode("a ab b").ids == theirs.encode("a ab b").ids
    assert ours.get_vocab() == theirs.get_vocab()
    assert ours.id_to_token(20) is theirs.id_to_token(20) is None
    assert "id 20 of 'a', which has a later one" in ours.explain()


def test_a_line_that_stands_twice_in_vocab_txt(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text("[UNK]\na\nb\na\nb\n", encoding="utf-8")
    ours, theirs = (kind.from_file(str(tmp_path / "vocab.txt")) for kind in (Tokenizer, hf.models.WordPiece))
    assert [theirs.token_to_id(token) for token in "ab"] == ours.encode("a b").ids == [3, 4]
    assert "2 lines have a token that comes again below, as line 2 has" in ours.explain()


@given(st.lists(st.tuples(st.sampled_from(["ab", "b", "x", "y", "z", ""]), st.integers(8, 14)), max_size=5))
def test_added_tokens_whose_ids_contradict_the_vocabulary_have_those_of_hf(tokens: list[tuple[str, int]]) -> None:
    fields = json.loads(file_of("BPE", None, {"type": "WhitespaceSplit"}))
    flags = fields["added_tokens"][0]
    text = json.dumps(fields | {"added_tokens": [flags | {"content": content, "id": i} for content, i in tokens]})
    ours, theirs = Tokenizer.from_str(text).replace(special="split"), hf.Tokenizer.from_str(text)
    new = {content: i for content, i in reversed(tokens) if content and content not in TOKENS}
    if len({*new.values()} - {*TOKENS.values()}) == len(new):  # possible, so the file is believed
        assert ours.get_vocab() == TOKENS | new
    else:
        assert ours.get_vocab() == theirs.get_vocab()
        assert ours.encode(" ".join(["ab", *new, "b"])).ids == theirs.encode(" ".join(["ab", *new, "b"])).ids
        assert "as in HF tokenizers, not" in ours.explain()
    assert all(f"{content!r} has id {i}, as" not in ours.explain() for content, i in tokens if content in TOKENS)


def test_null_is_the_default_of_a_flag() -> None:
    fields = json.loads(file_of("BPE", None, {"type": "Metaspace", "replacement": "▁", "add_prefix_space": None}))
    fields["model"] |= dict.fromkeys(("fuse_unk", "byte_fallback", "ignore_merges"))
    ours, theirs = (kind.from_str(json.dumps(fields)) for kind in (Tokenizer, hf.Tokenizer))
    assert ours.encode("ab a").ids == theirs.encode("ab a").ids


@given(st.text("ab ?xé", max_size=9))
def test_what_is_put_in_front_of_the_text_after_a_token(text: str) -> None:
    patterns = {"[^ab ]": "", "^ +": "", r"(?=.)|(?<!^)$": "é"}  # as in the files of VITS
    steps = [{"type": "Replace", "pattern": {"Regex": each}, "content": put} for each, put in patterns.items()]
    file = file_of("BPE", {"type": "Sequence", "normalizers": steps}).replace('"unk_token": "?"', '"unk_token": "a"')
    ours, theirs = Tokenizer.from_str(file).replace(special="split"), hf.Tokenizer.from_str(file)
    found, expected = ours.encode(text), theirs.encode(text)
    assert (found.ids, found.offsets) == (expected.ids, expected.offsets)
