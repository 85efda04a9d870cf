# SPDX-License-Identifier: Apache-2.0
"""JSON lines: what is a document, what is rejected and why, and that no cut or path of the code changes it."""

import json
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st

from tests import read_files
from tokenmill.pipeline.config.input import InputConfig
from tokenmill.pipeline.input import json_columns, jsonl, streams
from tokenmill.pipeline.input.reading import read_split
from tokenmill.pipeline.input.rejects import CONVERSATION_REASONS, REASONS
from tokenmill.pipeline.input.splitting import plan_splits

BOM = b"\xef\xbb\xbf"


def read(path, batch_bytes=1 << 22, **options):
    """Returns documents, rejects and skipped bytes of a file, as Python."""
    found = read_files.read(path, batch_bytes, format="jsonl", **options)
    assert found.n_bytes == path.stat().st_size
    return found.rows("doc_id", "text", "offset", "n_bytes"), found.refused(), found.n_skipped


def write(directory, data):
    path = Path(directory) / "f.jsonl"
    path.write_bytes(data)
    return path


NESTED = b"[" * 255 + b"]" * 255
NESTED_TEXT = json.dumps("[{" * 300 + '"\\' + "[" * 300).encode()

# A line, then either the text and the id it gives (None: made of name and offset), or the reason it is rejected for.
ACCEPTED = [
    (b'{"text":"a","id":"x"}', "a", "x"),
    (b' \t{ "text" : "a" }\t\r ', "a", None),
    (b'{"text":""}', "", None),
    (b'{"text":"a","id":null}', "a", None),
    (b'{"text":"a","id":""}', "a", ""),
    (b'{"text":"a","id":12}', "a", "12"),
    (b'{"text":"a","id":-0}', "a", "0"),
    (b'{"text":"a","id":-12}', "a", "-12"),
    (b'{"text":"a","id":9223372036854775808}', "a", "9223372036854775808"),
    (b'{"text":"a","id":' + b"9" * 5000 + b"}", "a", "9" * 5000),
    (b'{"text":"a","id":1.50}', "a", "1.50"),
    (b'{"text":"a","id":1e3}', "a", "1e3"),
    (b'{"text":"a\\u0000b"}', "a\0b", None),
    (b'{"text":"\\ud83d\\ude00\\/\\u00E9"}', "\U0001f600/é", None),
    (b'{"te\\u0078t":"a"}', "a", None),
    (b'{"text":"a","text":"b"}', "b", None),
    (b'{"text":"a","id":"b","id":"c"}', "a", "c"),
    (b'{"text":null,"text":"b"}', "b", None),
    (b'{"text":"a","z":1,"z":{"a":2}}', "a", None),
    (b'{"z":{"text":"q","id":"r"},"text":"a"}', "a", None),
    (b'{"text":"a","z":[1,"a",{"b":[]},null,true]}', "a", None),
    (b'{"text":"a","z":1e999}', "a", None),
    (b'{"text":"a","z":' + b"9" * 5000 + b"}", "a", None),
    (b'{"text":"a","z":"\\ud800"}', "a", None),
    (b'{"text":"a","\\ud800":1}', "a", None),
    (b'{"text":"}null","z":"\\"}"}', "}null", None),
    (b'{"text":": NaN, [-Inf"}', ": NaN, [-Inf", None),
    (b'{"text":"a","z":' + NESTED + b"}", "a", None),
    (b'{"text":' + NESTED_TEXT + b"}", json.loads(NESTED_TEXT), None),
    (b'{"text":"\xef\xbb\xbf\x7f"}', "\ufeff\x7f", None),
]
REJECTED = [
    (b"hello", "not_json"),
    (b'{"text":"a"', "not_json"),
    (b'{"text":"a"}}', "not_json"),
    (b'{"text":"a"}]', "not_json"),
    (b'{"text":"a"},', "not_json"),
    (b'{"text":"a",}', "not_json"),
    (b'{"text":"a","z":[1,]}', "not_json"),
    (b'{,"text":"a"}', "not_json"),
    (b'{"text":"a"/*c*/}', "not_json"),
    (b'{"text":"a"} // c', "not_json"),
    (b"{'text':'a'}", "not_json"),
    (b'{"text" "a"}', "not_json"),
    (b'{"text":"a","z":}', "not_json"),
    (b'{"text":"a"}{"text":"b"}', "not_json"),
    (b'{"text":"a"} {"text":"b"}', "not_json"),
    (b'{"text":"a"}\r{"text":"b"}', "not_json"),
    (b'{"text":"a"}null{}', "not_json"),
    (b'{"text":"a"} null', "not_json"),
    (b'{"text":"a","z":NaN}', "not_json"),
    (b'{"text":"a","z":[ Infinity]}', "not_json"),
    (b'{"text":"a","z":[0,\t-Infinity]}', "not_json"),
    (b'{"text":"a","z":Inf}', "not_json"),
    (b'{"text":"a","z":-NaN}', "not_json"),
    (b'{"text":NaN}', "not_json"),
    (b'{"text":"a","z":01}', "not_json"),
    (b'{"text":"a","z":+1}', "not_json"),
    (b'{"text":"a","z":.5}', "not_json"),
    (b'{"text":"a","z":1.}', "not_json"),
    (b'{"text":"a","z":TRUE}', "not_json"),
    (b'{"text":"a\x01b"}', "not_json"),
    (b'{"text":"a\tb"}', "not_json"),
    (b'{"text":"a\rb"}', "not_json"),
    (b'{"text":"a\x00b"}', "not_json"),
    (b'{"text":"a"}\x00', "not_json"),
    (b'\x00{"text":"a"}', "not_json"),
    (b'{"text":"a"}\x00}', "not_json"),
    (b'{"text":"a\\xb"}', "not_json"),
    (b'{"text":"a\\u12"}', "not_json"),
    (b'{"text":"\\U0041"}', "not_json"),
    (b'{"text":"a"}\x0c', "not_json"),
    (b'{"text":"a"}\xc2\xa0', "not_json"),
    (b"null", "not_object"),
    (b'[{"text":"a"}]', "not_object"),
    (b'"text"', "not_object"),
    (b"12", "not_object"),
    (b"true", "not_object"),
    (b"{}", "missing_field"),
    (b'{"Text":"a"}', "missing_field"),
    (b'{"z":{"text":"a"}}', "missing_field"),
    (b'{"text":null}', "null_text"),
    (b'{"text":"a","text":null}', "null_text"),
    (b'{"text":1}', "not_string"),
    (b'{"text":true}', "not_string"),
    (b'{"text":["a"]}', "not_string"),
    (b'{"text":{"a":1}}', "not_string"),
    (b'{"text":"a","id":true}', "bad_id"),
    (b'{"text":"a","id":["x"]}', "bad_id"),
    (b'{"text":"\xff"}', "invalid_utf8"),
    (b'{"text":"a","z":"\xff"}', "invalid_utf8"),
    (b'{"text":"a","\xff":1}', "invalid_utf8"),
    (b'{"text":"\xed\xa0\x80"}', "invalid_utf8"),
    (b'{"text":"\xc0\x80"}', "invalid_utf8"),
    (b'{"text":"a"}\xff', "invalid_utf8"),
    (b'{"text":"\\ud800"}', "lone_surrogate"),
    (b'{"text":"\\udc00\\ud800"}', "lone_surrogate"),
    (b'{"text":"\\ud800\\ud83d\\ude00"}', "lone_surrogate"),
    (b'{"text":"a","id":"\\ud800"}', "lone_surrogate"),
    (b'{"text":"a","z":[' + NESTED + b"]}", "too_deep"),
    (b'{"text":"a","z":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "too_deep"),
    (b'{"z":' * 256 + b'{"text":"a"}' + b"}" * 256, "too_deep"),
]
SURROUNDINGS = [(b"", b""), (b'{"text":"before","id":"b"}\n', b'\n{"text":"after"}\n'), (b"\n", b"\r\n \n")]


@pytest.mark.parametrize("line, reason", REJECTED, ids=[repr(case[0])[:50] for case in REJECTED])
def test_line_is_rejected(tmp_path, line, reason):
    for before, after in SURROUNDINGS:
        documents, rejects, _ = read(write(tmp_path, before + line + after))
        assert [(row[0], row[2], row[4]) for row in rejects] == [(len(before), reason, line[:1024])]
        assert len(documents) == before.count(b"{") + after.count(b"{")


def test_every_reason_of_a_line_has_an_example():
    of_others = {"bomb", "too_large", "truncated_stream", "corrupt_stream"}
    of_others |= {
        "wrong_cells", "not_extracted", "bad_quotes", "bad_field", "text_timeout", "tokenizer_timeout",
        "unknown_character", "out_of_memory", "unreadable_file",
    }  # fmt: skip
    assert {reason for _, reason in REJECTED} == set(REASONS) - of_others - CONVERSATION_REASONS.keys()


def test_rejects_say_what_was_found(tmp_path):
    lines = [
        b'{"text":"a\xff"}', b'{"text":"a"} 1', b'{"text":NaN}', b'{"text":5}', b"[]", b'{"text":"ab\\udfff"}',
        b'{"text":"a"',
    ]  # fmt: skip
    _, rejects, _ = read(write(tmp_path, b"\n".join(lines)))
    assert [row[3] for row in rejects] == [
        "byte 0xff at byte 10 of the line",
        "more than one value: the first ends at character 12 of the line",
        "NaN is not JSON",
        "field 'text' is a number",
        "the line is an array",
        "U+DFFF at character 2 of field 'text'",
        "not JSON at character 11 of the line",
    ]


def expect(data, name, max_bytes, id_field="id"):
    """The definition, a line at a time: documents, rejects without their details, and skipped bytes."""
    documents, rejects = [], []
    n_skipped = offset = 3 if data.startswith(BOM) else 0
    for line in split_lines(data[offset:]):
        content = line.removesuffix(b"\n").strip(b" \t\r")
        if not content:
            n_skipped += len(line)
        elif len(line) > max_bytes:
            rejects.append((offset, len(line), "too_large"))
        else:
            result = judge(content, id_field)
            if isinstance(result, str):
                rejects.append((offset, len(line), result))
            else:
                documents.append((f"{name}:{offset}" if result[1] is None else result[1], result[0], offset, len(line)))
        offset += len(line)
    return documents, rejects, n_skipped


def split_lines(data):
    *lines, last = data.split(b"\n")
    return [line + b"\n" for line in lines] + ([last] if last else [])


JUDGED = {line.strip(b" \t\r"): (text, document_id) for line, text, document_id in ACCEPTED} | {
    line.strip(b" \t\r"): reason for line, reason in REJECTED
}


def judge(content, id_field):
    if content in JUDGED:
        return JUDGED[content]
    record = json.loads(content)  # What is not in the tables was made by json.dumps.
    return record["text"], record.get(id_field)


hostile = st.sampled_from([case[0] for case in ACCEPTED + REJECTED if len(case[0]) < 2000])
good = st.builds(
    lambda text, record, ascii_: json.dumps({"text": text, **record}, ensure_ascii=ascii_).encode(),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=30),
    st.fixed_dictionaries(
        {},
        optional={
            "id": st.text(st.characters(exclude_categories=["Cs"]), max_size=4),
            "z": st.recursive(
                st.none() | st.floats(allow_nan=False, allow_infinity=False) | st.text('ab\\"[]{}:,\n'),
                lambda inner: st.lists(inner, max_size=2),
                max_leaves=3,
            ),
        },
    ),
    st.booleans(),
)
blank = st.sampled_from([b"", b" ", b"\r", b" \t \r"])
line_end = st.sampled_from([b"\n", b"\n", b"\r\n"])


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    lines=st.lists(st.tuples(st.one_of(good, good, hostile, blank), line_end), max_size=12),
    has_bom=st.booleans(),
    ends_in_line_end=st.booleans(),
    split_bytes=st.integers(1, 300),
    batch_bytes=st.one_of(st.integers(1, 200), st.just(1 << 22)),
    max_bytes=st.one_of(st.integers(1, 80), st.just(1 << 26)),
    chunk_bytes=st.one_of(st.integers(1, 40), st.just(1 << 20)),
)
def test_any_cut_gives_the_same_documents_and_rejects(
    tmp_path, lines, has_bom, ends_in_line_end, split_bytes, batch_bytes, max_bytes, chunk_bytes
):
    data = b"".join(line + end for line, end in lines)
    if not ends_in_line_end:
        data = data.removesuffix(b"\n")
    data = (BOM if has_bom else b"") + data
    path = write(tmp_path, data)
    options = {"split_bytes": split_bytes, "max_document_bytes": max_bytes}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(streams, "CHUNK_BYTES", chunk_bytes)
        documents, rejects, n_skipped = read(path, batch_bytes, **options)
    whole = read(path, max_document_bytes=max_bytes)
    assert (documents, rejects, n_skipped) == whole  # details and samples, too
    assert (documents, [row[:3] for row in rejects], n_skipped) == expect(data, "f.jsonl", max_bytes)


tokens = st.sampled_from(
    [
        b"{", b"}", b"[", b"]", b",", b":", b'"text"', b'"id"', b'"z"', b'"a"', b"null", b"true", b"1", b"-1.5e3",
        b"NaN", b"-Inf", b"Infinity", b" ", b"\t", b"\r", b'"\\ud800"', b'"\\ud83d\\ude00"', b"1e999", b'"', b"\\",
        b"\xc3\xa9",
    ]
)  # fmt: skip
objects = st.one_of(
    st.lists(tokens, max_size=8).map(lambda each: b"{" + b"".join(each) + b"}"),
    st.lists(tokens, max_size=6).map(lambda each: b'{"text":"a","z":' + b"".join(each) + b"}"),
)


def refuse(*_, **__):
    raise pa.ArrowInvalid("not asked")


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lines=st.lists(st.one_of(good, good, hostile, blank, st.binary(max_size=20), objects, objects), max_size=12))
def test_both_paths_agree_on_every_line(tmp_path, lines):
    path = write(tmp_path, b"\n".join(lines))
    try:
        fast = read(path, compression="none")
    except ValueError:
        reject()  # what looks like another encoding is refused
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_columns, "read_objects", refuse)
        assert read(path, compression="none") == fast


def test_bad_lines_take_few_neighbours_off_the_fast_path(tmp_path, monkeypatch):
    seen = []
    parse_line = jsonl._parse_line
    monkeypatch.setattr(jsonl, "_parse_line", lambda line, *fields: (seen.append(line), parse_line(line, *fields))[1])
    alone = [b"garbage", b'{"text":null}', b"{}", b'{"text":"\xff"}', b'{"text":"a","z":NaN}', b"[1]", b'{"text":"a"']
    lines = [b'{"text":"good"}'] * 1000
    documents, rejects, _ = read(write(tmp_path, b"\n".join([*lines, *alone, *lines])))
    assert (len(documents), len(rejects)) == (2000, 7)
    assert seen == alone
    del seen[:]
    documents, rejects, _ = read(write(tmp_path, b"\n".join([*lines, b'{"text":"\\ud800"}', *lines])))
    assert (len(documents), len(rejects)) == (2000, 1)
    assert len(seen) <= 64


@pytest.mark.parametrize("line", [b"\n", b"x\n", b'{"txet":""}\n'], ids=["blank", "not JSON", "another field"])
def test_no_batch_holds_more_rejects_than_its_size_allows(tmp_path, line):
    path = write(tmp_path, line * 300_000)
    config = InputConfig(paths=[str(path)], format="jsonl")
    batches = [batch for split in plan_splits(config, "") for batch in read_split(split, config)]
    assert max(0 if batch.rejects is None else batch.rejects.nbytes for batch in batches) < 16 << 20
    assert sum(batch.n_records for batch in batches) == (0 if line == b"\n" else 300_000)
    assert sum(batch.n_bytes for batch in batches) == path.stat().st_size


def test_byte_order_marks_of_files_that_were_joined_lose_no_record(tmp_path, monkeypatch):
    lines = [b'{"text":"a"}\n', BOM + b'{"text":"b"}\n', BOM + BOM + b' {"text":"\\u0063"}\n', BOM + b"\n", BOM + b"[]"]
    path = write(tmp_path, BOM + b"".join(lines))
    for split_bytes in (1, 20, 1000):
        documents, rejects, n_skipped = read(path, split_bytes=split_bytes)
        assert documents == [("f.jsonl:3", "a", 3, 13), ("f.jsonl:16", "b", 16, 16), ("f.jsonl:32", "c", 32, 25)]
        assert [row[:3] for row in rejects] == [(61, 5, "not_object")]
        assert n_skipped == 3 + 4  # the mark of the file, and a line of nothing but a mark
    monkeypatch.setattr(json_columns, "read_objects", refuse)
    assert read(path) == (documents, rejects, n_skipped)
