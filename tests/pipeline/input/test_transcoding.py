# SPDX-License-Identifier: Apache-2.0
"""Text in other encodings than UTF-8: read right, or refused by its likely name, or rejected record by record."""

import bz2
import gzip
import json

import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests import read_files
from tokenmill.pipeline.config.input import InputConfig
from tokenmill.pipeline.input import streams, transcoding
from tokenmill.pipeline.input.splitting import plan_splits

TEXTS = {
    "cp1252 or latin-1": ("cp1252", "Les élèves étaient à l’école près de la forêt, où le café était très bon."),
    "cp1250": ("cp1250", "Zażółć gęślą jaźń; święto książki w mieście Łódź, żółw i źrebię."),
    "cp1251": ("cp1251", "Привет, мир: это проверка, как система читает русский текст."),
    "koi8-r": ("koi8-r", "Привет, мир: это проверка, как система читает русский текст."),
    "shift_jis": ("shift_jis", "これは日本語の文章です。東京タワーはとても高いです。"),
    "euc_jp": ("euc_jp", "これは日本語の文章です。東京タワーはとても高いです。"),
    "euc_kr": ("euc_kr", "이것은 한국어 문장입니다. 서울의 봄은 매우 아름답습니다."),
    "gb18030": ("gb18030", "我们在这里学习中文，他是一个很好的人，大家都来了，不要忘了这一点。"),
    "big5": ("big5", "我們在這裡學習中文，他是一個很好的人，大家都來了，不要忘了這一點。"),
    "utf-16-le": ("utf-16-le", "The mill grinds text, one word after the other.\n" * 3),
    "utf-16-be": ("utf-16-be", "The mill grinds text, one word after the other.\n" * 3),
    "utf-32-le": ("utf-32-le", "The mill grinds text.\n" * 3),
    "utf-32-be": ("utf-32-be", "The mill grinds text.\n" * 3),
}
PACKERS = {"": bytes, ".gz": gzip.compress, ".bz2": bz2.compress, ".zst": zstandard.ZstdCompressor().compress}


def read(path, batch_bytes=1 << 22, **options):
    found = read_files.read(path, batch_bytes, **options)
    return found.rows("text", "offset", "n_bytes"), found.rejects


@pytest.mark.parametrize("suffix", PACKERS)
@pytest.mark.parametrize("name", TEXTS)
def test_a_file_in_another_encoding_is_refused_by_its_likely_name_and_read_by_it(tmp_path, name, suffix):
    codec, text = TEXTS[name]
    lines = [f"{i} {line}" for i, line in enumerate(text.splitlines() * 9)]
    path = tmp_path / f"f.txt{suffix}"
    path.write_bytes(PACKERS[suffix]("".join(f"{line}\n" for line in lines).encode(codec)))
    with pytest.raises(
        ValueError, match=f"f.txt{suffix}' looks like {name}, but would be read as utf-8; set input.enc"
    ):
        read(path)
    texts, rejects = read(path, encoding=codec)
    assert ([text for text, _, _ in texts], rejects) == (lines, [])
    # Positions are those in the text as UTF-8.
    sizes = [len(f"{line}\n".encode()) for line in lines]
    assert [row[1:] for row in texts] == [(sum(sizes[:i]), size) for i, size in enumerate(sizes)]


@pytest.mark.parametrize("suffix", PACKERS)
@pytest.mark.parametrize("codec", ["utf-16", "utf-16-be", "utf-32", "utf-8-sig"])
def test_byte_order_marks_are_believed(tmp_path, codec, suffix):
    path = tmp_path / f"f.jsonl{suffix}"
    mark = "\ufeff" if codec == "utf-16-be" else ""
    lines = [json.dumps({"text": f"玫瑰 {i}"}, ensure_ascii=False) for i in range(3)]
    path.write_bytes(PACKERS[suffix]((mark + "\n".join(lines)).encode(codec)))
    encodings = ["auto", "utf-16", "utf-16-be"] if codec == "utf-16-be" else ["auto", codec]
    for encoding in encodings:
        texts, rejects = read(path, encoding=encoding)
        assert ([text for text, _, _ in texts], rejects) == (["玫瑰 0", "玫瑰 1", "玫瑰 2"], [])
        assert texts[0][1] == 3  # the mark is three bytes in UTF-8
    with pytest.raises(ValueError, match="looks like utf-"):
        read(path, encoding="latin-1")
    if codec != "utf-8-sig":
        with pytest.raises(ValueError, match=r"read as utf-8; set input\.encoding to 'utf-.*, or to 'auto'"):
            read(path)


def test_utf_8_that_would_be_read_as_something_else_is_refused(tmp_path):
    (tmp_path / "f.txt").write_text("déjà vu, très élégant, où est le café\n" * 2, encoding="utf-8")
    for encoding in ("latin-1", "cp1252", "gb18030", "ascii"):
        with pytest.raises(ValueError, match=r"f.txt' looks like utf-8, but would be read as "):
            read(tmp_path / "f.txt", encoding=encoding)


@pytest.mark.parametrize("suffix", PACKERS)
@pytest.mark.parametrize("batch_bytes", [1, 1 << 22])
def test_invalid_sequences_reject_their_records_and_no_others(tmp_path, suffix, batch_bytes):
    good = "東京 is a town\n"
    for codec, bad in (("shift_jis", b"a\x81\xffb\n"), ("gb18030", b"a\xff\xffb\n"), ("ascii", b"a\xe9b\n"),
                       ("utf-16-le", b"a\x00\x00\xd8b\x00\n\x00"), ("cp1252", b"a\x81\x8db\n")):  # fmt: skip
        line = (good if codec not in ("ascii", "cp1252") else "a town\n").encode(codec)
        path = tmp_path / f"f.txt{suffix}"
        path.write_bytes(PACKERS[suffix](line * 20 + bad + line))
        texts, rejects = read(path, batch_bytes, encoding=codec)
        assert [text for text, _, _ in texts] == [line.decode(codec).rstrip()] * 21
        (reject,) = rejects
        n = len(line.decode(codec).encode())
        assert (reject["offset"], reject["reason"]) == (20 * n, "invalid_utf8")
        assert texts[-1][1] == 20 * n + reject["n_bytes"]
        assert reject["detail"].startswith("0x")
        assert reject["detail"].endswith(f"is not {codec}, at byte 1 of the record in UTF-8")


def test_rejects_of_text_that_is_not_utf_8_name_the_likely_encoding(tmp_path):
    lines = ["plain"] * 20 + ["un café", "deux cafés", "naïve"]
    (tmp_path / "f.txt").write_bytes("\n".join(lines).encode("latin-1"))
    for options in ({}, {"split_bytes": 7}):
        texts, rejects = read(tmp_path / "f.txt", **options)
        assert len(texts) == 20
        assert [row["detail"] for row in rejects] == [
            f"byte 0x{byte} at byte {at} of the record; the file looks like cp1252 or latin-1: set input.encoding"
            for byte, at in (("e9", 6), ("e9", 8), ("ef", 2))
        ]
    # Damage in a file of UTF-8 looks like no encoding.
    (tmp_path / "f.txt").write_bytes("玫瑰花朵 déjà vu\n".encode() * 5 + b"caf\xe9\n")
    assert [row["detail"] for row in read(tmp_path / "f.txt")[1]] == ["byte 0xe9 at byte 3 of the record"]


characters = st.characters(exclude_categories=["Cs"])


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    data=st.one_of(st.binary(max_size=60), st.text(characters, max_size=30).map(lambda text: text.encode("utf-16-le"))),
    codec=st.sampled_from("utf-16-le utf-16-be utf-32-le shift_jis gb18030 euc_kr cp1252 utf-7 iso2022_jp".split()),
    chunk_bytes=st.integers(1, 9),
)
def test_any_bytes_are_decoded_the_same_in_any_chunks(data, codec, chunk_bytes):
    chunks = (data[i : i + chunk_bytes] for i in range(0, len(data), chunk_bytes))
    transcoded = b"".join(transcoding.transcode(chunks, codec))
    assert transcoded == b"".join(transcoding.transcode([data], codec))
    try:
        text = data.decode(codec)
    except UnicodeDecodeError:
        with pytest.raises(UnicodeDecodeError):
            transcoded.decode()
    else:
        assert transcoded == text.encode("utf-8", "surrogatepass")


def test_memory_is_bounded_and_a_file_is_read_in_chunks(tmp_path, monkeypatch):
    monkeypatch.setattr(streams, "CHUNK_BYTES", 64)
    lines = [f"line {i} é" for i in range(500)]
    (tmp_path / "f.txt").write_bytes("\r\n".join(lines).encode("utf-16"))
    config = InputConfig(paths=[str(tmp_path / "f.txt")], encoding="utf-16", split_bytes=100)
    (split,) = plan_splits(config, "salt")  # it cannot be cut
    (piece,) = split.pieces
    assert piece.encoding == "utf-16-le"
    with (tmp_path / "f.txt").open("rb") as handle:
        assert max(map(len, streams.Stream(handle, piece).chunks())) <= 192
    assert [text for text, _, _ in read(tmp_path / "f.txt", 50, encoding="auto", split_bytes=100)[0]] == lines
    for document, n in (("blank_line", 1), ("file", 1)):
        assert len(read(tmp_path / "f.txt", encoding="auto", document=document)[0]) == n
