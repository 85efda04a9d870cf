# SPDX-License-Identifier: Apache-2.0
"""Parquet: every Arrow type of text, rows that are rejected one by one, damaged row groups, bounded parts."""

import contextlib
import random
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests import read_files
from tests.strategies import THOROUGH
from tokenmill.pipeline import storage
from tokenmill.pipeline.config.input import InputConfig
from tokenmill.pipeline.input.reading import read_split
from tokenmill.pipeline.input.splitting import plan_splits


def read(path, batch_bytes=1 << 22, **options):
    found = read_files.read(path, batch_bytes, **options)
    assert found.n_skipped == 0
    config = InputConfig(paths=[str(path)], **options)
    batches = [batch for split in plan_splits(config, "salt") for batch in read_split(split, config, batch_bytes)]
    return found.rows("doc_id", "text", "offset", "n_bytes"), found.refused(), batches


def write(path, columns, **options):
    pq.write_table(pa.table(columns), path, **options)
    return path


TEXT_TYPES = [
    pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary(),
    pa.dictionary(pa.int32(), pa.string()), pa.dictionary(pa.int8(), pa.binary()),
]  # fmt: skip


def as_type(values, text_type):
    array = pa.array(values, text_type.value_type if pa.types.is_dictionary(text_type) else text_type)
    return array.dictionary_encode().cast(text_type) if pa.types.is_dictionary(text_type) else array


@pytest.mark.parametrize("text_type", TEXT_TYPES, ids=str)
def test_types_of_text(tmp_path, text_type):
    values = ["é", "", None, "é", "a\0b"]
    if text_type in (pa.binary(), pa.large_binary()) or text_type == TEXT_TYPES[-1]:
        values = [None if value is None else value.encode() for value in values]
    columns = {
        "id": as_type([f"i{i}".encode() if isinstance(values[0], bytes) else f"i{i}" for i in range(5)], text_type)
    }
    path = write(tmp_path / "f.parquet", columns | {"text": as_type(values, text_type)})
    documents, rejects, _ = read(path)
    assert documents == [("i0", "é", 0, 2), ("i1", "", 1, 0), ("i3", "é", 3, 2), ("i4", "a\0b", 4, 3)]
    assert rejects == [(2, 0, "null_text", "column 'text' is null", b"")]


def test_rows_are_rejected_one_by_one(tmp_path):
    # The third and fourth value are valid together, but not each.
    values = [b"good", b"\xff", b"x\xc3", b"\xa9y", b"long" * 500, None, b"good"]
    path = write(
        tmp_path / "f.parquet", {"text": pa.array(values, pa.binary()), "id": pa.array([b"a"] * 6 + [b"\xfe"])}
    )
    documents, rejects, _ = read(path, max_document_bytes=1000)
    assert [row[1] for row in documents] == ["good"]
    assert rejects == [
        (1, 1, "invalid_utf8", "column 'text' is not UTF-8", b"\xff"),
        (2, 2, "invalid_utf8", "column 'text' is not UTF-8", b"x\xc3"),
        (3, 2, "invalid_utf8", "column 'text' is not UTF-8", b"\xa9y"),
        (4, 2000, "too_large", "2000 bytes, at most 1000 are allowed", (b"long" * 500)[:1024]),
        (5, 0, "null_text", "column 'text' is null", b""),
        (6, 4, "invalid_utf8", "column 'id' is not UTF-8", b"good"),
    ]


def test_invalid_utf8_in_a_string_column_is_found(tmp_path):
    unchecked = pa.StringArray.from_buffers(2, pa.py_buffer(b"\0\0\0\0\1\0\0\0\2\0\0\0"), pa.py_buffer(b"a\xff"))
    documents, rejects, _ = read(write(tmp_path / "f.parquet", {"text": unchecked}))
    assert [row[1] for row in documents] == ["a"]
    assert [row[2] for row in rejects] == ["invalid_utf8"]


def test_any_cut_gives_the_same_rows(tmp_path):
    source = random.Random(0)
    texts = ["x" * source.choice([0, 1, 30, 3000]) for _ in range(2000)]
    path = write(tmp_path / "f.parquet", {"text": texts}, row_group_size=300)
    whole, _, batches = read(path)
    assert [row[1:3] for row in whole] == list(zip(texts, range(2000), strict=True))
    assert len(batches) == 1
    for split_bytes, batch_bytes in [(1, 1), (1000, 10_000), (1 << 20, 2000), (300_000, 1 << 22)]:
        documents, rejects, batches = read(path, batch_bytes, split_bytes=split_bytes)
        assert (documents, rejects) == (whole, [])
        for batch in batches:
            assert sum(map(len, batch.documents.column("text").to_pylist())) <= batch_bytes or batch.n_records == 1


@pytest.mark.parametrize("is_dictionary", [True, False])
def test_rows_that_repeat_one_long_text_stay_within_memory(tmp_path, is_dictionary):
    # 8 GB of text in a file of some kB.
    text = pa.DictionaryArray.from_arrays(pa.array([0] * 16_000, pa.int32()), ["x" * 500_000])
    path = write(tmp_path / "f.parquet", {"text": text}, store_schema=is_dictionary)
    assert path.stat().st_size < 1 << 20
    config = InputConfig(paths=[str(path)])
    before = pa.default_memory_pool().bytes_allocated()
    (split,) = plan_splits(config, "")
    assert pq.read_schema(path).field("text").type == (text.type if is_dictionary else pa.string())
    batches = read_split(split, config)
    for _ in range(3):
        assert next(batches).documents.nbytes <= 4 << 20
    assert pa.default_memory_pool().bytes_allocated() - before < 300 << 20


def test_a_damaged_row_group_costs_only_its_rest(tmp_path):
    texts = [f"text {i}" for i in range(3000)]
    path = write(tmp_path / "f.parquet", {"text": texts}, row_group_size=1000, use_dictionary=False, compression="zstd")
    column = pq.ParquetFile(path).metadata.row_group(1).column(0)
    data = bytearray(path.read_bytes())
    data[column.data_page_offset : column.data_page_offset + 40] = bytes(40)
    path.write_bytes(data)
    documents, rejects, _ = read(path)
    assert [row[1] for row in documents] == texts[:1000] + texts[2000:]
    detail = "row group 1 is damaged: rows 1000 to 1999 cannot be read"
    assert rejects == [(row, 0, "corrupt_stream", detail, b"") for row in range(1000, 2000)]


def zigzag(n):
    """Returns a number as thrift's compact protocol writes it."""
    n <<= 1
    data = b""
    while n > 0x7F:
        data += bytes([n & 0x7F | 0x80])
        n >>= 7
    return data + bytes([n])


def change_counts(path, which, n, new):
    """Writes a file of one row group again, with some of the numbers `n` in its footer replaced."""
    data = bytearray(path.read_bytes())
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    old, new = zigzag(n), zigzag(new)
    assert len(old) == len(new)
    places = [i for i in range(footer, len(data) - 8) if data.startswith(old, i)]
    for i in which:
        data[places[i] : places[i] + len(new)] = new
    path.write_bytes(data)


@pytest.mark.parametrize("n", [501, 8000])
def test_rows_that_a_row_group_lacks_are_rejected(tmp_path, n):
    texts = [f"text {i}" for i in range(500)]
    path = write(tmp_path / "f.parquet", {"text": texts}, use_dictionary=False, compression="none")
    change_counts(path, [0, 1, 3], 500, n)  # of the file, of the values of the column, of the row group
    metadata = pq.read_metadata(path)
    assert (metadata.num_rows, metadata.row_group(0).num_rows, metadata.row_group(0).column(0).num_values) == (n, n, n)
    documents, rejects, _ = read(path)
    assert [row[1] for row in documents] == texts
    detail = f"row group 0 is damaged: rows 500 to {n - 1} cannot be read"
    assert rejects == [(row, 0, "corrupt_stream", detail, b"") for row in range(500, n)]


def test_no_bit_of_a_footer_ends_the_process(tmp_path):
    path = write(tmp_path / "f.parquet", {"text": ["a text", None, "b"]}, compression="none", store_schema=False)
    data = path.read_bytes()
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    n_read = 0
    for bit in range(8 * footer, 8 * len(data), 1 if THOROUGH else 5):  # 5 meets each bit of a byte
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        is_refused = True
        with contextlib.suppress(ValueError, OSError):
            plan_splits(InputConfig(paths=[str(path)]), "")
            is_refused = False
        if not is_refused:
            read(path)
            n_read += 1
    assert n_read > 20


@pytest.mark.parametrize("n", [300, 600])
def test_a_footer_that_contradicts_itself_is_refused(tmp_path, n):
    path = write(tmp_path / "f.parquet", {"text": ["a text"] * 500}, use_dictionary=False, compression="none")
    change_counts(path, [3], 500, n)
    with pytest.raises(ValueError, match=rf"f.parquet' is damaged: the footer says that row group 0 has {n} rows, and"):
        plan_splits(InputConfig(paths=[str(path)]), "")


def test_page_checksums_are_verified(tmp_path):
    path = write(
        tmp_path / "f.parquet",
        {"text": ["abcdefgh" * 100]},
        compression="none",
        use_dictionary=False,
        write_page_checksum=True,
    )
    data = path.read_bytes()
    path.write_bytes(data.replace(b"abcdefgh" * 100, b"abcdefgh" * 99 + b"abcdefgX"))
    documents, rejects, _ = read(path)
    assert (documents, rejects[0][2]) == ([], "corrupt_stream")


def test_a_failing_store_is_an_error_not_damage(tmp_path, monkeypatch):
    path = write(tmp_path / "f.parquet", {"text": ["x" * 100] * 1000}, use_dictionary=False)
    config = InputConfig(paths=[str(path)])
    (split,) = plan_splits(config, "")

    class Failing:
        closed = False

        def __init__(self):
            self._file = path.open("rb")

        def read(self, n_bytes=-1):
            if self._file.tell() < 1000:
                raise OSError(5, "the disk is gone")
            return self._file.read(n_bytes)

        def __getattr__(self, name):
            return getattr(self._file, name)

    monkeypatch.setattr(storage, "open_read", lambda _: Failing())
    with pytest.raises(OSError, match="the disk is gone"):
        list(read_split(split, config))


def test_a_file_that_lost_row_groups_since_the_plan_is_an_error(tmp_path):
    path = write(tmp_path / "f.parquet", {"text": ["a"] * 10}, row_group_size=2)
    config = InputConfig(paths=[str(path)])
    (split,) = plan_splits(config, "")
    write(path, {"text": ["a"] * 10})
    with pytest.raises(OSError, match="has changed since the job was planned; go on with --resume"):
        list(read_split(split, config))
    split = replace(split, pieces=(replace(split.pieces[0], version=""),))  # as on a store, which is not asked
    with pytest.raises(OSError, match="has 1 row groups, but had 5 or more when the job was planned"):
        list(read_split(split, config))


@pytest.mark.parametrize(
    "columns, message",
    [
        ({"body": ["a"]}, r"has no column 'text' for input\.text_field; it has 'body'"),
        ({"text": [1]}, r"column 'text' is int64; a text column is a string or binary"),
        ({"text": [["a"]]}, r"column 'text' is list<"),
        ({"text": ["a"], "id": [1.5]}, r"column 'id' is double; an id column is a string, binary or an integer"),
    ],
)
def test_a_file_without_usable_columns_is_refused_before_work(tmp_path, columns, message):
    path = write(tmp_path / "f.parquet", columns)
    with pytest.raises(ValueError, match=r"f\.parquet' " + message):
        plan_splits(InputConfig(paths=[str(path)]), "")


def test_a_column_of_two_of_a_name_is_refused(tmp_path):
    path = tmp_path / "f.parquet"
    pq.write_table(pa.Table.from_arrays([pa.array(["a"]), pa.array(["b"])], ["text", "text"]), path)
    with pytest.raises(ValueError, match="has 2 columns 'text'"):
        plan_splits(InputConfig(paths=[str(path)]), "")


def test_a_file_may_lack_some_of_several_text_columns(tmp_path):
    path = write(tmp_path / "a.parquet", {"title": ["A", None], "body": ["b", "c"], "meta": [{"x": "m"}, {"x": None}]})
    found = read(path, text_fields=["subtitle", "meta.x", "meta.y", "body", "title"], join="|")[0]
    assert [row[1] for row in found] == ["m|b|A", "c"]
    with pytest.raises(
        ValueError, match=r"has no column 'subtitle' or 'meta\.y' for input\.text_fields; it has 'title'"
    ):
        read(path, text_fields=["subtitle", "meta.y"])
