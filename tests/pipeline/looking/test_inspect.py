# SPDX-License-Identifier: Apache-2.0
"""Rows of shards, as a person sees them."""

import pytest
from rich.console import Console

from tests.plain_job import token_rows
from tokenmill.pipeline.config.output import OutputConfig
from tokenmill.pipeline.looking.inspect import Row, find_tokenizer, render, rows, to_record
from tokenmill.pipeline.output.writers import formats
from tokenmill.pipeline.output.writers.base import TokenizerInfo
from tokenmill.tokenizer import Tokenizer

FORMATS = [{}, {"format": "tfrecord"}, {"format": "tfrecord", "compression": "gzip"}]
IDS = [[i] * (i % 4) for i in range(25)]


@pytest.fixture
def tokenizer(tiny_vocab):
    return Tokenizer.for_bert(tiny_vocab)


def write_shard(folder, ids, padding_side=None, n_tokens=None, **output):
    config = OutputConfig(path=str(folder), row_group_tokens=4, **output)
    path = folder / f"tokens-00000-of-00001{formats.suffix(config)}"
    batch = token_rows(ids, n_tokens, [f"doc{i}" for i in range(len(ids))])
    with path.open("wb") as handle:
        writer = formats.open_writer(handle, config, TokenizerInfo("d", 40, padding_side=padding_side))
        writer.write(batch)
        writer.close()
    return str(path)


@pytest.mark.parametrize("output", FORMATS)
def test_rows_of_any_format_from_anywhere(tmp_path, output):
    path = write_shard(tmp_path, IDS, **output)
    for start, count in [(0, 3), (0, 99), (7, 5), (24, 1), (24, 9), (25, 3), (99, 3), (5, 0)]:
        found = [(row.number, row.doc_id, row.ids, row.n_tokens) for row in rows(path, start, count)]
        assert found == [(i, f"doc{i}", IDS[i], len(IDS[i])) for i in range(25)][start : start + count]


def lines(row, tokenizer, **options):
    return render(row, tokenizer, **options).plain.split("\n")


def test_boundaries_of_tokens_are_visible(tokenizer):
    ids = tokenizer.encode("Unaffable 玫 mills ɸ").ids
    head, body = lines(Row(4, "d", ids, len(ids), 1), tokenizer)
    assert head == "row 4  d  n_tokens 9  n_oov 1"
    assert body == "[CLS]┊ un┊aff┊able┊ 玫┊ mill┊s┊ [UNK]┊ [SEP]"


def test_unknown_tokens_are_counted_where_the_shard_does_not_say(tokenizer):
    assert lines(Row(0, "d", [1, 5, 1], 3, None), tokenizer)[0].endswith("n_oov 2")


def test_padding_is_one_entry_on_its_side(tokenizer):
    assert lines(Row(0, "d", [5, 6, 0, 0, 0], 2, 0), tokenizer)[1] == "the┊ a┊[PAD]×3"
    assert lines(Row(0, "d", [0, 0, 0, 5, 6], 2, 0), tokenizer)[1] == "[PAD]×3┊the┊ a"
    assert lines(Row(0, "d", [0, 0], 0, 0), tokenizer)[1] == "[PAD]×2"
    assert lines(Row(0, "d", [], 0, 0), tokenizer)[1] == ""


def test_what_a_terminal_would_obey_is_escaped():
    tokenizer = Tokenizer.for_bert(["[UNK]", "a\x1b[31m", "\n", "\u202e"])
    head, body = lines(Row(0, "x\ny\x07", [1, 2, 3, 77], 4, 0), tokenizer)
    assert head.startswith(r"row 0  x\ny\x07  n_tokens")
    assert body == r"a\x1b[31m┊ \n┊ \u202e┊<77?>"


def test_colours_alternate_on_a_terminal_only(tokenizer):
    text = render(Row(0, "d", [5, 6, 5, 1], 4, 1), tokenizer)
    with_colour = Console(force_terminal=True, color_system="standard", width=200)
    with with_colour.capture() as captured:
        with_colour.print(text)
    found = captured.get()
    assert "\x1b[36mthe" in found
    assert "\x1b[33m a" in found
    plain = Console(force_terminal=False, color_system=None, width=200)
    with plain.capture() as captured:
        plain.print(text)
    assert captured.get().splitlines()[1] == "the┊ a┊ the┊ [UNK]"


def test_the_tokenizer_beside_the_shard_is_found(tmp_path, tokenizer, monkeypatch, tiny_vocab_file):
    path = write_shard(tmp_path, IDS)
    with pytest.raises(ValueError, match=r"there is no '.*tokenizer\.json' beside the shard; name a tokenizer"):
        find_tokenizer(path)
    assert find_tokenizer(path, str(tiny_vocab_file)).get_vocab() == tokenizer.get_vocab()
    (tmp_path / "vocab").mkdir()
    tokenizer.save(tmp_path / "vocab" / "tokenizer.json")
    assert find_tokenizer(path).digest == tokenizer.digest
    monkeypatch.chdir(tmp_path)
    assert find_tokenizer("tokens-00000-of-00001.parquet").digest == tokenizer.digest


def test_a_row_as_json_has_places_and_words(tokenizer):
    ids = [2, *tokenizer.encode("Unaffable mills, ɸ", add_special_tokens=False).ids, 3, 5, 77]
    record = to_record(Row(4, "d", ids, len(ids), 1), tokenizer)
    text = tokenizer.decode(ids[:-1], skip_special_tokens=False)
    assert [text[t["start"] : t["stop"]] for t in record["tokens"][:-1]] == [t["text"] for t in record["tokens"][:-1]]
    assert [t["word"] for t in record["tokens"]] == [None, 0, 0, 0, 1, 1, 2, None, None, 3, None]
    assert [t["kind"] for t in record["tokens"]][-3:] == ["special", "ordinary", "missing"]
    assert (record["n_oov"], record["n_padding"], record["segments"]) == (1, 0, [])
    assert len(to_record(Row(4, "d", ids, len(ids), 1), tokenizer, 3)["tokens"]) == 3


def test_what_is_looked_for_is_shown_wherever_it_is_in_a_row(tokenizer):
    ids = [5, 7, 8] * 200 + [6, 7] + [5, 7, 8] * 100
    row = Row(0, "a", ids, len(ids), 0, segments=[(f"#{i}", 3 * i) for i in range(100)])
    whole = lines(row, tokenizer, max_tokens=None)
    assert "a" in "".join(whole)
    for tokens in (3, 20, 200):
        shown = "\n".join(lines(row, tokenizer, max_tokens=tokens, pattern=r"\ba mill"))
        assert "a┊ mill" in shown
        assert "before …" in shown
        assert "more" in shown
        assert "#0 to #99, 100 documents" in shown
    assert "before" not in "\n".join(lines(row, tokenizer, max_tokens=3, pattern="the mill"))
