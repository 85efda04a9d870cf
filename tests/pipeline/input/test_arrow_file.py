# SPDX-License-Identifier: Apache-2.0
"""Arrow files and streams: the rows of Parquet, damaged batches, and hostile buffers."""

import io

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from tests.read_files import read

TABLE = pa.table(
    {
        "text": ["é", None, "", "b" * 60, "a\0b", "c"] * 5,
        "id": [f"i{i}" for i in range(30)],
        "meta": [{"url": f"u{i}", "parts": [{"text": "p"}, {"text": f"{i}"}]} for i in range(30)],
        "lang": pa.array(["de", "en", None] * 10).dictionary_encode(),
    }
)


def write(path, table=TABLE, stream=False, rows=7, **options):
    out = io.BytesIO()
    make = pa.ipc.new_stream if stream else pa.ipc.new_file
    with make(out, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table, max_chunksize=rows)
    path.write_bytes(out.getvalue())
    return path


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
def test_rows_are_those_of_parquet(tmp_path, stream, compression):
    path = write(tmp_path / "a.arrow", stream=stream, compression=compression)
    pq.write_table(TABLE, tmp_path / "a.parquet")
    for options in (
        {"max_document_bytes": 50, "keep_fields": ["meta.url", "lang"]},
        {"text_field": "meta.parts.text", "join": "+", "id_field": None},
        {"text_fields": ["text", "id"], "keep_fields": ["meta"]},
    ):
        found, expected = read(path, 100, **options), read(tmp_path / "a.parquet", **options)
        for row in (*expected.documents, *expected.rejects):
            for name in {"doc_id", "source"} & row.keys():
                row[name] = row[name].replace("a.parquet", "a.arrow")
        assert found == expected


def test_types_of_text_and_feather(tmp_path):
    for kind in (pa.large_string(), pa.string_view(), pa.binary(), pa.dictionary(pa.int8(), pa.string())):
        values = [b"a", b"b"] if kind == pa.binary() else ["a", "b"]
        array = pa.array(values, pa.string() if pa.types.is_dictionary(kind) else kind)
        array = array.dictionary_encode().cast(kind) if pa.types.is_dictionary(kind) else array
        assert read(write(tmp_path / "a.ipc", pa.table({"text": array}))).texts == ["a", "b"]
    pyarrow.feather.write_feather(TABLE.select(["text"]), tmp_path / "b.feather")
    assert len(read(tmp_path / "b.feather").texts) == 25
    (tmp_path / "c.feather").write_bytes(b"FEA1 and more")
    with pytest.raises(ValueError, match="Feather of version 1"):
        read(tmp_path / "c.feather")


def test_files_without_the_columns_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"has no column 'body' for input\.text_field"):
        read(write(tmp_path / "a.arrow"), text_field="body")
    (tmp_path / "b.arrow").write_bytes(b"no arrow at all, but long enough")
    with pytest.raises(ValueError, match="is not a readable Arrow file"):
        read(tmp_path / "b.arrow")
    whole = write(tmp_path / "c.arrow").read_bytes()
    (tmp_path / "c.arrow").write_bytes(whole[:-9])
    with pytest.raises(ValueError, match="is cut short"):
        read(tmp_path / "c.arrow")
    assert read(write(tmp_path / "d.arrow", TABLE.slice(0, 0))) == ([], [], 0, 0)


def test_a_stream_that_is_cut_short_gives_what_is_before(tmp_path):
    whole = write(tmp_path / "a.arrows", stream=True).read_bytes()
    (tmp_path / "a.arrows").write_bytes(whole[: len(whole) * 2 // 3])
    found = read(tmp_path / "a.arrows")
    assert 0 < len(found.documents) < 25
    assert found.reasons[-1] == "corrupt_stream"
    assert "and what follows it, is damaged" in found.rejects[-1]["detail"]


def test_offsets_that_lead_out_of_the_buffer_are_damage(tmp_path):
    path = write(tmp_path / "a.arrow", pa.table({"text": ["aaaa", "bbbb"]}), rows=1)
    data = path.read_bytes()
    offsets = np.array([0, 4], np.int32).tobytes()
    assert data.count(offsets + b"\0" * 8) or data.count(offsets)
    at = data.index(offsets, 200)
    path.write_bytes(data[:at] + np.array([0, 1 << 30], np.int32).tobytes() + data[at + 8 :])
    found = read(path)
    assert found.texts in (["bbbb"], ["aaaa"])
    assert found.reasons == ["corrupt_stream"]


def test_damage_anywhere_is_a_reject_or_a_refusal_and_never_a_crash(tmp_path):
    whole = write(tmp_path / "a.arrow", compression="zstd", stream=True).read_bytes()
    rng = np.random.default_rng(1)
    n_refused = 0
    for _ in range(300):
        data = bytearray(whole)
        for at in rng.integers(0, len(data), 3):
            data[at] ^= int(rng.integers(1, 256))
        (tmp_path / "b.arrow").write_bytes(data)
        try:
            read(tmp_path / "b.arrow", id_field=None)
        except (ValueError, OSError):
            n_refused += 1
    assert n_refused < 300
