# SPDX-License-Identifier: Apache-2.0
"""Compressed files: read to the last member and the last good byte, damage reported once, memory bounded."""

import bz2
import gzip
import io
import lzma
import random
import tracemalloc
import zlib

import pytest
import zstandard

from tests import read_files
from tokenmill.pipeline.input import decompressing

KINDS = ["gzip", "zstd", "zstd-checked", "bz2", "xz"]
# How much of the text "more" its member gives without the last byte, which is text only where no checksum follows.
N_DECODED = {"gzip": 4, "zstd": 3, "zstd-checked": 4, "bz2": 4, "xz": 4}


def make_text(n_lines, seed=0):
    source = random.Random(seed)
    return b"".join(b"%d: %s\n" % (i, bytes(source.choices(b"abcdefgh ", k=30))) for i in range(n_lines))


def compress(kind, data):
    if kind == "gzip":
        return gzip.compress(data, mtime=0)
    if kind == "bz2":
        return bz2.compress(data, 1)
    if kind == "xz":
        return lzma.compress(data, preset=0)
    if kind == "zstd":
        return zstandard.ZstdCompressor().compress(data)
    compressor = zstandard.ZstdCompressor(write_checksum=True, write_content_size=False).compressobj()
    return compressor.compress(data) + compressor.flush()


def decoder(kind):
    if kind == "gzip":
        return zlib.decompressobj(31)
    if kind == "xz":
        return lzma.LZMADecompressor()
    return bz2.BZ2Decompressor() if kind == "bz2" else zstandard.ZstdDecompressor().decompressobj()


def drain(reference, data):
    """Yields what a decoder makes of `data`; that of bz2 may hold some back until it is asked again."""
    yield reference.decompress(data)
    while (
        isinstance(reference, (bz2.BZ2Decompressor, lzma.LZMADecompressor))
        and not reference.eof
        and (more := reference.decompress(b""))
    ):
        yield more


def expand(kind, data):
    """Returns all that `decompressing.decompress` yields, and why it ended early."""
    outputs = []
    try:
        outputs += decompressing.decompress(io.BytesIO(data), kind.split("-")[0])
    except decompressing.StreamError as error:
        return b"".join(outputs), error.damage
    return b"".join(outputs), None


def read(path, **options):
    found = read_files.read(path, **options)
    return found.texts, found.rejects


@pytest.mark.parametrize("kind", KINDS)
def test_output_that_a_decoder_holds_back_is_fetched(kind, monkeypatch):
    monkeypatch.setattr(decompressing, "STEP_BYTES", 1000)
    data = compress(kind, bytes(100_000))
    assert expand(kind, data) == (bytes(100_000), None)
    for cut in range(1, len(data)):
        assert expand(kind, data[:cut])[0] == b"".join(drain(decoder(kind), data[:cut]))


def test_zeros_after_a_member_of_gzip_or_xz_are_padding():
    assert expand("gzip", gzip.compress(b"text\n") + bytes(100_000)) == (b"text\n", None)
    assert expand("xz", lzma.compress(b"text\n") + bytes(8) + lzma.compress(b"more\n")) == (b"text\nmore\n", None)
    output, damage = expand("gzip", bytes(100))
    assert (output, damage.reason) == (b"", "corrupt_stream")


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_cut_short_anywhere_gives_all_that_can_be_decoded(kind):
    text = make_text(3000)
    first = compress(kind, text[:50_000])
    data = first + compress(kind, text[50_000:])
    for cut in [
        1,
        5,
        20,
        len(first) // 2,
        len(first) - 1,
        len(first) + 3,
        len(data) * 3 // 4,
        len(data) - 5,
        len(data) - 1,
    ]:
        reference = decoder(kind)
        expected = b"".join(drain(reference, data[:cut]))
        if cut > len(first):
            assert reference.eof
            expected += b"".join(drain(decoder(kind), data[len(first) : cut]))
        output, damage = expand(kind, data[:cut])
        assert output == expected
        assert text.startswith(output)
        assert (damage.reason, damage.detail) == (
            "truncated_stream",
            f"{kind.split('-')[0]} data ends early, at byte {cut}",
        )
    assert expand(kind, first) == (text[:50_000], None)


@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_file_gives_every_byte_before_the_damage(kind):
    data = compress(kind, make_text(6000))
    source = random.Random(1)
    n_damaged = 0
    for _ in range(6):
        at = source.randrange(20, len(data))
        bad = data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :]
        reference, expected = decoder(kind), b""
        failed_at = None
        for position in range(len(bad)):
            try:
                for output in drain(reference, bad[position : position + 1]):
                    expected += output
            except (zlib.error, OSError, zstandard.ZstdError, lzma.LZMAError):
                failed_at = position
                break
        output, damage = expand(kind, bad)
        assert output == expected
        if failed_at is not None:
            n_damaged += 1
            assert damage.detail == f"{kind.split('-')[0]} data is damaged at byte {failed_at}"
    # Without a checksum a flipped bit of a literal is another text.
    assert n_damaged > 0 or kind == "zstd"


def test_damage_in_a_later_member_far_into_a_file(monkeypatch):
    first, second = make_text(20_000), make_text(20_000, seed=1)
    for kind in KINDS:
        data = compress(kind, first) + compress(kind, second)[:-9] + bytes(9)
        output, damage = expand(kind, data)
        assert output.startswith(first)
        assert damage is not None
        # The size of what is read at once must not show.
        with monkeypatch.context() as patch:
            patch.setattr(decompressing, "_COMPRESSED_BYTES", 100)
            assert expand(kind, data) == (output, damage)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("document", ["line", "blank_line", "file"])
def test_the_partial_last_record_is_one_reject(tmp_path, kind, document):
    text = b"one\n\ntwo\nthr" + b"e" * 2000
    path = tmp_path / "a.txt"
    whole = compress(kind, text)
    # A member that lacks its last byte.
    path.write_bytes(whole + compress(kind, b"more")[:-1])
    texts, rejects = read(path, document=document)
    (reject,) = rejects
    start, expected = {"line": (9, ["one", "two"]), "blank_line": (5, ["one"]), "file": (0, [])}[document]
    assert texts == expected
    n_decoded = len(text) + N_DECODED[kind]
    assert (reject["reason"], reject["offset"], reject["n_bytes"]) == ("truncated_stream", start, n_decoded - start)
    assert reject["sample"] == text[start : start + 1024]


@pytest.mark.parametrize("kind", KINDS)
def test_compression_is_told_by_the_bytes_not_the_name(tmp_path, kind):
    path = tmp_path / "a.txt"
    path.write_bytes(compress(kind, b"\xef\xbb\xbfone\ntwo"))
    assert read(path) == (["one", "two"], [])
    named = tmp_path / "b.txt.gz"
    named.write_bytes(b"BZh9 is how a bz2 file begins\n")
    assert read(named) == (["BZh9 is how a bz2 file begins"], [])


def test_damage_that_a_decoder_sees_in_one_piece_but_not_byte_by_byte(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(bytes.fromhex("28b52ffd2005010000"))  # an empty last block where five bytes were promised
    texts, rejects = read(path)
    assert texts == []
    assert [(row["reason"], row["detail"]) for row in rejects] == [("corrupt_stream", "zstd data is damaged at byte 9")]


def test_an_explicit_compression_that_is_wrong_is_reported(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"plain\n")
    texts, rejects = read(path, compression="gzip")
    assert texts == []
    assert [(row["reason"], row["detail"]) for row in rejects] == [("corrupt_stream", "gzip data is damaged at byte 1")]


@pytest.mark.parametrize("kind", KINDS)
def test_a_bomb_is_just_too_large(tmp_path, kind):
    n_bytes = 200_000_000
    path = tmp_path / "a.txt"
    path.write_bytes(compress(kind, b"a\n" + bytes(n_bytes) + b"\nb\n"))
    assert path.stat().st_size < n_bytes // 500
    tracemalloc.start()
    texts, rejects = read(path, max_document_bytes=1 << 20)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert texts == ["a", "b"]
    assert [(row["reason"], row["n_bytes"]) for row in rejects] == [("too_large", n_bytes + 1)]
    assert peak < 100 << 20


@pytest.mark.parametrize("kind", ["zstd", "bz2", "xz"])  # gzip cannot give more than 1032 times
def test_a_bomb_is_left_where_it_has_given_too_much(tmp_path, kind, monkeypatch):
    monkeypatch.setattr(decompressing, "FREE_BYTES", 1 << 22)
    path = tmp_path / "a.txt"
    path.write_bytes(compress(kind, b"a\n" + bytes(80_000_000)))
    texts, rejects = read(path)
    assert texts == ["a"]
    (row,) = rejects
    assert row["reason"] == "bomb"
    assert row["n_bytes"] < 70_000_000
    assert row["detail"].startswith(f"{min(path.stat().st_size, 1 << 16)} bytes of {kind} give more than ")
    monkeypatch.setattr(decompressing, "FREE_BYTES", 1 << 27)
    assert [row["reason"] for row in read(path)[1]] == ["too_large"]


def test_a_zstd_file_that_needs_too_much_memory_is_refused_before_work(tmp_path):
    parameters = zstandard.ZstdCompressionParameters(window_log=28, compression_level=1)
    compressor = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    (tmp_path / "a.txt").write_bytes(compressor.compress(b"text\n") + compressor.flush())
    with pytest.raises(ValueError, match=r"a\.txt' needs a zstd window of 268435456 bytes, at most 134217728"):
        read(tmp_path / "a.txt")


def test_an_xz_file_that_needs_too_much_memory_is_refused_before_work(tmp_path):
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 1 << 28}]
    (tmp_path / "a.txt").write_bytes(lzma.compress(b"text\n", filters=filters))
    with pytest.raises(ValueError, match=r"a\.txt' needs an xz dictionary of more than 129 MiB; compress it again"):
        read(tmp_path / "a.txt")
