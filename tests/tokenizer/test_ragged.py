# SPDX-License-Identifier: Apache-2.0
"""The door: Arrow data from outside is checked before any kernel reads it."""

import numpy as np
import pyarrow as pa
import pytest

from tokenmill.tokenizer import (
    Layout,
    Sampling,
    Tokenizer,
    add_word_counts,
    check_array,
    count_characters,
)
from tokenmill.tokenizer.languages import Languages, LanguageTextTokenizer, LanguageTokenizers, identify, main_scripts
from tokenmill.tokenizer.post_processors import Padding
from tokenmill.tokenizer.ragged import id_rows, text_column, text_rows
from tokenmill.tokenizer.text import TextChain, TextTokenizer
from tokenmill.tokenizer.trainers import BPETrainer, WordPieceTrainer, spelled_word_counts

VOCAB = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "text", "latin", "caf", "ext", "a", "b"]
LATIN_1 = pa.array([b"text", None, b"latin caf\xe9 text"]).view(pa.string())
PLACE = r"row 2 is not UTF-8: invalid continuation byte 0xe9 at byte 9 of it"


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.for_bert(VOCAB)


def _strings(offsets, data=b"hello", kind=pa.string(), **options):  # noqa: B008  # immutable
    numbers = np.array(offsets, np.int32 if kind in (pa.string(), pa.binary()) else np.int64)
    buffers = [options.pop("valid", None), pa.py_buffer(numbers), pa.py_buffer(data)]
    return pa.Array.from_buffers(kind, options.pop("length", len(offsets) - 1), buffers, **options)


ENTRIES = {
    "encode_arrow": lambda t, a: t.encode_arrow(a),
    "encode_bare": lambda t, a: t.encode_bare(a, t.new_tally()),
    "sampled": lambda t, a: _byte_level().encode_arrow(a, sampling=Sampling()),
    "normalize_arrow": lambda t, a: t.normalizer.normalize_arrow(a),
    "WordCounter.update": lambda t, a: t.new_word_counter().update(a),
    "WordCounter.scan": lambda t, a: t.new_word_counter().scan(a),
    "TextChain.apply": lambda t, a: TextChain.from_config(["nfc"]).apply(a),
    "TextTokenizer.prepare": lambda t, a: TextTokenizer(t).prepare(a),
    "TextTokenizer.encode_arrow": lambda t, a: TextTokenizer(t, spans=[SPAN]).encode_arrow(a),
    "LanguageTextTokenizer.prepare": lambda t, a: LanguageTextTokenizer(t).prepare(a),
    "LanguageTokenizers.encode_arrow": lambda t, a: LanguageTokenizers({"default": t}).encode_arrow(a),
    "identify": lambda t, a: identify(a),
    "main_scripts": lambda t, a: main_scripts(a),
}
SPAN = {"find": "url", "token": "[URL]", "keep_source": True}


def _byte_level() -> Tokenizer:
    counts = pa.table({"word": pa.array([b"ab"], pa.large_binary()), "count": [1]})
    return Tokenizer.untrained("none", "gpt2", byte_level=True).with_model(
        BPETrainer(vocab_size=256, byte_level=True).train(counts)
    )


@pytest.mark.parametrize("name", ENTRIES)
def test_every_function_refuses_what_is_not_utf8_and_says_where(name, tokenizer):
    with pytest.raises(ValueError, match=PLACE):
        ENTRIES[name](tokenizer, LATIN_1)


DAMAGED = {
    "beyond the buffer": _strings([0, 1_000_000_000, 5]),
    "decreasing": _strings([0, 4, 2, 5]),
    "negative": _strings([0, -3, 5]),
    "before the buffer": _strings([0, 5, 5], length=2, offset=-1),
    "a wrong number of nulls": _strings([0, 5, 5], valid=pa.py_buffer(b"\1"), null_count=2),
    "indices": pa.DictionaryArray.from_buffers(
        pa.dictionary(pa.int32(), pa.string()), 1, [None, pa.py_buffer(np.array([7], np.int32))], pa.array(["a"])
    ),
    "dictionary": pa.DictionaryArray.from_arrays(pa.array([0]), _strings([0, 1_000_000_000, 5])),
    "chunk": pa.chunked_array([pa.array(["a"]), _strings([0, 1_000_000_000, 5])]),
}


@pytest.mark.parametrize("damage", DAMAGED)
@pytest.mark.parametrize("name", ENTRIES)
def test_no_function_reads_outside_the_buffers(name, damage, tokenizer):
    with pytest.raises(ValueError, match="not a valid Arrow array: "):
        ENTRIES[name](tokenizer, DAMAGED[damage])


@pytest.mark.parametrize("length", [-1, 10**9])
def test_a_view_of_a_null_beyond_its_buffer(length: int) -> None:
    """Arrow looks at no view of a null when it validates, but adds their lengths up when it casts."""
    views = bytearray(pa.array(["x" * 30] * 2, pa.string_view()).buffers()[1].to_pybytes())
    views[:4] = length.to_bytes(4, "little", signed=True)
    buffers = [pa.py_buffer(b"\2"), pa.py_buffer(bytes(views)), pa.py_buffer(b"x" * 60)]
    column = pa.Array.from_buffers(pa.string_view(), 2, buffers)
    column.validate(full=True)
    lists = pa.ListArray.from_arrays(pa.array([0, 2], pa.int32()), column)
    indices = pa.array([1, 1])
    with pytest.raises(ValueError, match="not a valid Arrow array"):
        text_rows(column)
    with pytest.raises(ValueError, match="not a valid Arrow array"):
        text_rows(pa.DictionaryArray.from_arrays(indices, column))
    for outer in (lists, pa.StructArray.from_arrays([lists], ["a"])):
        with pytest.raises(ValueError, match="not a valid Arrow array"):
            check_array(outer)


def test_a_view_beyond_its_buffer():
    views = bytearray(pa.array(["x" * 30], pa.string_view()).buffers()[1].to_pybytes())
    views[12:16] = (10**9).to_bytes(4, "little")
    buffers = [None, pa.py_buffer(bytes(views)), pa.py_buffer(b"x" * 30)]
    with pytest.raises(ValueError, match="not a valid Arrow array: View at slot 0 references range"):
        text_rows(pa.Array.from_buffers(pa.string_view(), 1, buffers))


TEXTS = ["text", None, "", "玫 é", "x" * 40]
VALUES = [None, "", "text", "玫 é", "x" * 40]
SAME = {
    "string": pa.array(TEXTS),
    "large_string": pa.array(TEXTS, pa.large_string()),
    "string_view": pa.array(TEXTS, pa.string_view()),
    "dictionary": pa.array(TEXTS).dictionary_encode(),
    "dictionary with null": pa.DictionaryArray.from_arrays(pa.array([2, 0, 1, 3, 4]), pa.array(VALUES)),
    "dictionary of views": pa.DictionaryArray.from_arrays(pa.array([0, 1, 2, 3, 4]), pa.array(TEXTS, pa.string_view())),
    "chunked": pa.chunked_array([TEXTS[:2], [], TEXTS[2:]], pa.string()),
    "slice": pa.array(["before", *TEXTS, "after"]).slice(1, 5),
    "slice of views": pa.array(["before" * 5, *TEXTS, "after"], pa.string_view()).slice(1, 5),
    "list": TEXTS,
    "tuple": tuple(TEXTS),
    "invalid under null": _strings(
        [0, 4, 8, 8, 14, 54], b"text\xff\xff\xff\xff" + "玫 é".encode() + b"x" * 40, valid=pa.py_buffer(b"\x1d")
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SAME)
def test_text_is_the_same_however_it_lies_in_memory(name, tokenizer):
    rows, nulls = text_column(SAME[name])
    assert [rows.values[a:b].tobytes().decode() for a, b in zip(rows.offsets, rows.offsets[1:], strict=False)] == [
        text or "" for text in TEXTS
    ]
    assert nulls.to_pylist() == [text is None for text in TEXTS]
    assert tokenizer.encode_arrow(SAME[name]).to_pylist()[:3] == [[4], None, []]


def test_a_row_may_not_begin_inside_a_character():
    halves = pa.array([b"\xe6\x9d", b"\xb1"]).view(pa.string())
    with pytest.raises(ValueError, match="row 0 is not UTF-8: unexpected end of data 0xe6 at byte 0 of it"):
        text_rows(halves)


def test_replaced_bytes_become_the_replacement_character(tokenizer):
    rows = text_rows(LATIN_1, "replace")
    assert rows.values.tobytes().decode() == "textlatin caf\ufffd text"
    expected = tokenizer.encode_arrow(["text", None, "latin caf\ufffd text"]).to_pylist()
    assert tokenizer.encode_arrow(LATIN_1, errors="replace").to_pylist() == expected
    assert TextTokenizer(tokenizer).encode_arrow(LATIN_1, errors="replace").ids.to_pylist() == expected
    assert (
        LanguageTokenizers({"default": tokenizer}).encode_arrow(LATIN_1, errors="replace").ids.to_pylist() == expected
    )
    assert TextChain([]).apply(LATIN_1, "replace")[0].to_pylist()[2] == "latin caf\ufffd text"
    halves = pa.array([b"\xe6\x9d", b"\xb1", b"ok"]).view(pa.string())
    assert text_rows(halves, "replace").values.tobytes().decode() == "\ufffd\ufffdok"
    assert text_rows(["a\ud83d\ude00\ud800"], "replace").values.tobytes().decode() == "a😀\ufffd"
    with pytest.raises(ValueError, match="errors must be 'strict' or 'replace', got 'ignore'"):
        tokenizer.encode_arrow(LATIN_1, errors="ignore")


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (pa.array([b"a"]), "one of binary"),
        (pa.array([1]), "one of int64"),
        (pa.array([["a"]]), "one of list<item: string>"),
        (pa.array([1]).dictionary_encode(), "one of int64"),
        ("text", "got str"),
        ({"a": 1}, "got dict"),
        (None, "got NoneType"),
        (np.array(["a"]), "got ndarray"),
        ([b"a"], "expected str or None in a list of texts, got b'a' in row 0"),
        (["a", 1], "expected str or None in a list of texts, got 1 in row 1"),
    ],
)
def test_what_is_no_text_is_refused(texts, message, tokenizer):
    with pytest.raises(TypeError, match=message):
        tokenizer.encode_arrow(texts)


def _lists(offsets, values, kind=pa.int32(), **options):  # noqa: B008  # immutable
    buffers = [None, pa.py_buffer(np.array(offsets, np.int32))]
    children = [pa.array(values, kind)]
    return pa.Array.from_buffers(pa.list_(kind), len(offsets) - 1, buffers, children=children, **options)


@pytest.mark.parametrize(
    "ids",
    [_lists([0, 1_000_000, 2], [4, 5]), _lists([0, 2, 1], [4, 5]), _lists([0, 1], [4], offset=-1), _lists([9], [4])],
)
def test_ids_outside_of_their_buffers(ids, tokenizer):
    for take in (tokenizer.decode_arrow, tokenizer.layout(True).apply, id_rows, check_array):
        with pytest.raises(ValueError, match="not a valid Arrow array"):
            take(ids)


def test_ids_that_are_not_there_or_not_seen(tokenizer):
    for wrong in ([[10]], [[-1]], [[2**40]]):
        with pytest.raises(ValueError, match=r"belongs to no token|Integer value"):
            tokenizer.decode_arrow(pa.array(wrong, pa.list_(pa.int64())))
    hidden = pa.array([[None], [4, 8], [2**40]], pa.list_(pa.int64())).slice(1, 1)
    assert tokenizer.decode_arrow(hidden).to_pylist() == ["text a"]


def test_spans_of_a_layout_are_inside_its_tokens():
    layout = Layout(np.array([2], np.int32), np.array([3], np.int32), padding=Padding(length=4))
    tokens = np.array([4, 5], np.int32)
    assert layout.lay_out(tokens, np.array([0]), np.array([2])).to_pylist() == [[2, 4, 5, 3]]
    for start, stop in ((0, 3), (-1, 1), (2, 1)):
        with pytest.raises(ValueError, match="spans must be inside the 2 tokens"):
            layout.lay_out(tokens, np.array([start]), np.array([stop]))


def _words(words, counts=None, **columns):
    counts = [1] * len(words) if counts is None else counts
    return pa.table({"word": words, "count": pa.array(counts, pa.int64()), **columns})


COUNTED = {
    "add_word_counts": lambda table: add_word_counts([table]),
    "count_characters": lambda table: count_characters(table, np.zeros(0x110000, np.int64)),
    "spelled_word_counts": spelled_word_counts,
    "train": lambda table: WordPieceTrainer(vocab_size=100).train(table),
    "train bytes": lambda table: BPETrainer(vocab_size=300, byte_level=True).train(table),
}


@pytest.mark.parametrize("name", COUNTED)
def test_word_counts_are_checked(name):
    count = COUNTED[name]
    with pytest.raises(ValueError, match="not a valid Arrow array"):
        count(_words(_strings([0, 1 << 40, 5], kind=pa.large_binary())))
    with pytest.raises(ValueError, match="must not hold nulls, got 1 in column 'word'"):
        count(_words(pa.array([None, b"a"], pa.large_binary())))
    with pytest.raises(ValueError, match="must not hold nulls, got 1 in column 'count'"):
        count(_words(pa.array([b"a"], pa.large_binary()), [None]))
    with pytest.raises(TypeError, match="but word is string"):
        count(_words(pa.array(["a"])))
    with pytest.raises(TypeError, match="but count is there 0 times"):
        count(_words(pa.array([b"a"], pa.large_binary())).drop_columns("count"))
    with pytest.raises(TypeError, match=r"word_counts must be a pa\.Table, got list"):
        count([(b"a", 1)])


def test_tables_of_word_counts_may_have_more_columns_in_another_order():
    words = pa.array([b"b", b"a", b"b"], pa.large_binary())
    table = _words(words, [1, 2, 3], lang=["x"] * 3).select(["lang", "count", "word"])
    assert add_word_counts([table]).to_pydict() == {"word": [b"a", b"b"], "count": [2, 4]}
    with pytest.raises(TypeError, match=r"expected a list of tables of word counts, got one pa\.Table"):
        add_word_counts(table)


def test_characters_are_counted_into_an_array_that_has_room():
    table = _words(pa.array(["玫".encode()], pa.large_binary()))
    for array in (np.zeros(100, np.int64), np.zeros(0x110000, np.int32)):
        with pytest.raises(ValueError, match=r"characters must be int64\[1114112\], got int"):
            count_characters(table, array)


def test_languages_of_other_texts_are_refused(tokenizer):
    found = identify(["text"])
    with pytest.raises(ValueError, match="languages must have one entry for each of 2 texts, got 1"):
        LanguageTextTokenizer(tokenizer).prepare(
            ["text", "text"], Languages(found.codes, found.confidence, found.mixed)
        )
