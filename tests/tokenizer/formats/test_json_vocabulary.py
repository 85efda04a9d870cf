# SPDX-License-Identifier: Apache-2.0
"""Large vocabularies in JSON: the kernel against Python's JSON, on files as they are written and broken ones."""

import json
from collections.abc import Callable
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from tokenmill.tokenizer.errors import TokenizerFileError
from tokenmill.tokenizer.formats.json_node import Node, parse
from tokenmill.tokenizer.formats.json_vocabulary import parse_tokenizer, parse_usual_tokenizer, parse_vocab
from tokenmill.tokenizer.models.bpe_merges import MergesOfIds
from tokenmill.tokenizer.models.ids import MAX_ID
from tokenmill.tokenizer.models.vocabulary import ScoredTokens, Vocabulary

LETTERS = 'abé▁"\\/\n\x7f😀 '


@st.composite
def tokenizers(draw: st.DrawFn) -> dict[str, Any]:
    """A `tokenizer.json`, mostly one whose merges are of tokens that it has."""
    tokens = draw(st.lists(st.text(LETTERS, min_size=1, max_size=3), unique=True, min_size=1, max_size=8))
    pairs = draw(st.lists(st.tuples(st.sampled_from(tokens), st.sampled_from(tokens)), max_size=4))
    vocab = dict.fromkeys([*tokens, *(a + b for a, b in pairs)])
    vocab = {token: draw(st.one_of(st.just(i), st.just(i), st.integers(-1, 10**10))) for i, token in enumerate(vocab)}
    as_text = draw(st.booleans())
    merges = [f"{a} {b}" if as_text else [a, b] for a, b in pairs] + draw(
        st.sampled_from([[], [], ["a"], [[]], [None]])
    )
    model = {"type": "BPE", "vocab": vocab, "merges": merges, "x": {"vocab": [1], "y": '}\\"'}}
    return {"version": "1.0", "model": dict(draw(st.permutations(list(model.items())))), "vocab": {"a": 1}}


@st.composite
def unigram_tokenizers(draw: st.DrawFn) -> dict[str, Any]:
    """A `tokenizer.json` of a Unigram model."""
    scores = st.one_of(st.floats(-20, 0), st.floats(-1e300, 1e300), st.integers(-20, 10**21))
    pieces = draw(st.lists(st.tuples(st.text(LETTERS, max_size=3), scores), min_size=1, max_size=8))
    return {"version": "1.0", "model": {"unk_id": 0, "vocab": list(map(list, pieces)), "x": [1.5, -2e-3]}}


def written(draw: st.DrawFn, value: Any) -> str:
    """As JSON, in one of the ways in which it is written."""
    indent, is_ascii = draw(st.sampled_from([None, 0, 2])), draw(st.booleans())
    separators = draw(st.sampled_from([None, (",", ":"), (" , ", " :\t")]))
    text = json.dumps(value, indent=indent, ensure_ascii=is_ascii, separators=separators)
    return draw(st.sampled_from(["", " \n"])) + text + draw(st.sampled_from(["", "\r\n"]))


@st.composite
def json_texts(draw: st.DrawFn, values: Any = None) -> str:
    """JSON, often with a piece put in, taken out or changed."""
    text = written(draw, draw(tokenizers() if values is None else values))
    for _ in range(draw(st.integers(0, 2))):
        at = draw(st.integers(0, len(text)))
        piece = draw(st.one_of(st.sampled_from(PIECES), st.text(LETTERS + '[]{},:"0123456789tru', max_size=3)))
        text = text[:at] + piece + text[at + draw(st.integers(0, 3)) :]
    return text


PIECES = [
    '"', "\\u00e9", "\\ud83d\\ude00", "\\ud83d", "\\ude00", "\\u0000", "\\x", "\0", "\t", "01", "-1", "1.0", "1e3",
    "null", '"a": 1, ', '"vocab": {"a": 7}, ', '"merges": [], ', '"model": {}, ', "[[", "]]", "{}",
]  # fmt: skip


def outcome(read: Callable[[str, str], Node], text: str) -> tuple[Any, str]:
    """Returns what is read, or the message of the error."""
    try:
        return read(text, "file").value, ""
    except TokenizerFileError as error:
        return None, str(error)


def pairs_of(merges: list[Any]) -> list[tuple[str, ...]]:
    return [tuple(merge.split(" ") if isinstance(merge, str) else merge) for merge in merges]


@given(json_texts())
@example('{"model": {"vocab": {"a": 0, "aa": 1}, "merges": ["a a"]}}')
@example('{"model": {"vocab": {"a": 0, " a": 1}, "merges": [" a"]}}')
@example('{"model": {"vocab": {"a": 0, "a ": 1}, "merges": ["a "]}}')
@example('{"model": {"vocab": {"a": 0}, "merges": []}} x')
@example('{"model": {"vocab": {"a": 0,}}}')
@example('{"model": {"vocab": {"a": 0]}}')
@example('{"model": {"vocab": {"a": 0, "a": 1}}}')
@example('{"model": {"vocab": {"a": 0}}, "mod\\u0065l": {}}')
def test_what_the_kernel_reads_is_what_python_reads(text: str) -> None:
    quick = parse_usual_tokenizer(text.encode(), "file")
    slow, message = outcome(parse, text)
    if quick is None:
        assert outcome(lambda text, name: parse_tokenizer(text.encode(), name), text) == (slow, message)
        return
    assert not message
    merges = quick.value["model"].get("merges")
    assert list(quick.value["model"]["vocab"].items()) == list(slow["model"]["vocab"].items())
    if "merges" in slow["model"] and isinstance(merges, MergesOfIds):
        assert list(merges) == pairs_of(slow["model"]["merges"])
        quick.value["model"]["merges"] = slow["model"]["merges"]
    assert quick.value == slow


@given(tokenizers(), st.data())
def test_files_as_they_are_written_are_read_by_the_kernel(value: dict[str, Any], data: st.DataObject) -> None:
    model = value["model"]
    ids = sorted(set(model["vocab"].values()))
    has_good_ids = len(ids) == len(model["vocab"]) and ids[0] >= 0 and ids[-1] <= MAX_ID
    is_usual = has_good_ids and all(
        len(pair) == 2 and pair[0] in model["vocab"] and pair[1] in model["vocab"] and "".join(pair) in model["vocab"]
        for pair in pairs_of([merge or [] for merge in model["merges"]])
    )
    assert (parse_usual_tokenizer(written(data.draw, value).encode(), "file") is not None) == is_usual


@given(json_texts(unigram_tokenizers()))
@example('{"model": {"vocab": [["a", -1.5], ["", 0], ["a", -0.0]]}}')
@example('{"model": {"vocab": [["a", 1e5], ["b", -1E-5], ["c", 1.25e+2]]}}')
@example('{"model": {"vocab": [["a", 01.5]]}}')
@example('{"model": {"vocab": [["a", 1.]]}}')
@example('{"model": {"vocab": [["a", 1e]]}}')
@example('{"model": {"vocab": [["a", -]]}}')
@example('{"model": {"vocab": [["a", 1e999]]}}')
@example('{"model": {"vocab": [["a", 1.5,]]}}')
@example('{"model": {"vocab": [["a"]]}}')
@example('{"model": {"vocab": [["a", 1.5]}}')
@example('{"model": {"vocab": [["a", 1.5]], "merges": []}}')
@example('{"model": {"vocab": []}}')
def test_pieces_that_the_kernel_reads_are_those_that_python_reads(text: str) -> None:
    quick = parse_usual_tokenizer(text.encode(), "file")
    slow, message = outcome(parse, text)
    if quick is None:
        assert outcome(lambda text, name: parse_tokenizer(text.encode(), name), text) == (slow, message)
        return
    assert not message
    if isinstance(quick.value["model"]["vocab"], ScoredTokens):
        quick.value["model"]["vocab"] = list(map(list, quick.value["model"]["vocab"]))
        # An integer is a score too, whatever its size.
        slow["model"]["vocab"] = [[piece, float(score)] for piece, score in slow["model"]["vocab"]]
    assert quick.value == slow


@given(unigram_tokenizers(), st.data())
def test_pieces_as_they_are_written_are_read_by_the_kernel(value: dict[str, Any], data: st.DataObject) -> None:
    # With many digits and a small exponent a power of ten is beyond the largest.
    is_usual = all(
        abs(score) < 10**18 if type(score) is int else score == 0 or abs(score) > 1e-280
        for _, score in value["model"]["vocab"]
    )
    if is_usual:
        quick = parse_usual_tokenizer(written(data.draw, value).encode(), "file")
        assert quick is not None
        assert isinstance(quick.value["model"]["vocab"], ScoredTokens)


@given(json_texts(st.dictionaries(st.text(LETTERS, max_size=3), st.integers(-1, 10**10), max_size=5)))
@example('{"a": 1} x')
@example('{"a": 1}\0')
@example("[]")
def test_vocabularies_are_read_as_by_python(text: str) -> None:
    found, expected = outcome(parse_vocab, text), outcome(parse, text)
    assert found == expected
    if isinstance(found[0], Vocabulary):
        found = (dict(found[0]), found[1])
    assert json.dumps(found) == json.dumps(expected)  # in the same order, too


@given(st.text(LETTERS + '[]{},:"0123456789modelvca\0', max_size=60))
def test_any_text_is_refused_or_read_alike(text: str) -> None:
    quick = parse_usual_tokenizer(('{"model": {"vocab": {"' + text).encode(), "file")
    if quick is not None:
        assert quick.value["model"]["vocab"] == parse('{"model": {"vocab": {"' + text, "file").value["model"]["vocab"]
