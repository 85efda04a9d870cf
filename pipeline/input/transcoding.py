# SPDX-License-Identifier: Apache-2.0
"""Files in other encodings than UTF-8: decoded while they are read, or refused with the name of their likely encoding.

Positions in such a file are those in the decoded text, as they are in a compressed file, so it is never cut.
"""

import codecs
import functools
import itertools
import re
from collections.abc import Callable, Iterable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tokenmill.pipeline.input.rejects import joined

_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # begins as that of utf-16-le does
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
    (codecs.BOM_UTF8, "utf-8"),
)
_BESIDE_ASCII = "(?<=[\0-\x7f])[{0}]|[{0}](?=[\0-\x7f])"
_KANA, _CYRILLIC = "[ぁ-んァ-ヶ]", "[а-яё]{2,}"
_COMMON_HANZI = (
    ("gb2312", range(0xB0, 0xD8), range(0xA1, 0xFF)),
    ("big5", range(0xA4, 0xC7), (*range(0x40, 0x7F), *range(0xA1, 0xFF))),
)
"""First and second bytes of the more frequent characters, which both standards list first."""


@functools.cache
def _typical() -> tuple[tuple[str, str, str, float], ...]:
    """Returns names for users, codecs, and characters that are frequent in text of this encoding, with a weight."""
    pairs = ((bytes(pair), codec) for codec, *both in _COMMON_HANZI for pair in itertools.product(*both))
    hanzi = f"[{''.join(pair.decode(codec, 'ignore') for pair, codec in pairs)}]"
    return (
        ("cp1252 or latin-1", "cp1252", _BESIDE_ASCII.format("À-ÖØ-öø-ü’“”–—…«»€"), 1),
        ("cp1250", "cp1250", _BESIDE_ASCII.format("ąćęłńóśźżčďěňřšťůžáéíýúőűăşţ"), 1),
        ("cp1251", "cp1251", _CYRILLIC, 1),
        ("koi8-r", "koi8-r", _CYRILLIC, 1),
        ("shift_jis", "cp932", _KANA, 2),  # half of a text
        ("euc_jp", "euc_jp", _KANA, 2),
        ("euc_kr", "cp949", "[가-힣]", 1),
        ("gb18030", "gb18030", hanzi, 1),
        ("big5", "cp950", hanzi, 1),
    )


_MARGIN = 0.1
"""A later encoding must be so much better: the bytes of Korean are common Chinese characters, too."""
_LEAST_SCORE = 0.6
_LEAST_INVALID, _LEAST_KINDS, _LEAST_VALID = 16, 3, 8
"""So many invalid bytes, so many different ones, show that text is not UTF-8; so many valid characters, that it is."""
_BROKEN = re.compile(rb"(?:\xed[\xb0-\xb3][\x80-\xbf])+")  # surrogates of `_mark_broken`
_MARK_BROKEN = "tokenmill-mark-broken"
_SURROGATES = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]")
"""Matches halves of surrogate pairs, written as if they were characters of UTF-8."""


def settle_encoding(head: bytes, encoding: str) -> str:
    """Returns the codec of a file: with the byte order of its mark, if `encoding` leaves that open.

    Args:
      head: the first bytes of the file, decompressed.
      encoding: `input.encoding`, or a codec that was settled before.

    Raises:
      ValueError: when a byte order mark, or NULs in every second byte, show another encoding.
    """
    marked = _find_mark(head)
    found = marked or _find_wide(head)
    codec = (marked or "utf-8") if encoding == "auto" else codecs.lookup(encoding).name.removesuffix("-sig")
    if codec in ("utf-16", "utf-32"):  # Python takes the order of the machine where there is no mark
        codec = found if found.startswith(codec) else f"{codec}-le"
    if found and found != codec:
        either = ", or to 'auto' where files differ" if marked else ""
        raise ValueError(f"looks like {found}, but would be read as {codec}; set input.encoding to {found!r}{either}")
    return codec


def check_valid(head: bytes, codec: str) -> None:
    """Raises a ValueError when the non-ASCII text of a file's first bytes is mostly invalid in `codec`."""
    head = _SURROGATES.sub(b"", head)  # wrong, but no sign of another encoding
    if codec.startswith("utf") and _is_utf8(head):
        return
    text = codecs.getincrementaldecoder("utf-8")("surrogateescape").decode(head)
    n_invalid = len(re.findall("[\udc80-\udcff]", text))
    n_valid = len(re.findall("[^\0-\x7f\udc80-\udcff]", text))
    if codec == "utf-8" and n_invalid >= _LEAST_INVALID and n_invalid > 2 * n_valid:
        n_kinds = sum(byte >= 0x80 for byte in {*head})
        if (
            name := find_likely(head)
        ) and n_kinds >= _LEAST_KINDS:  # what looks like none is rejected, record by record
            what = f"{n_invalid} of its first {len(head)} bytes are not UTF-8"
            raise ValueError(f"looks like {name}, but would be read as utf-8; set input.encoding: {what}")
    if not codec.startswith("utf") and n_invalid == 0 and n_valid >= _LEAST_VALID:
        raise ValueError(f"looks like utf-8, but would be read as {codec}; set input.encoding to 'utf-8'")


def _find_mark(head: bytes) -> str:
    """Returns the codec of the byte order mark; "" if there is none, or only bytes like one before text in UTF-8."""
    mark, name = next(((mark, name) for mark, name in _MARKS if head.startswith(mark)), (b"", ""))
    rest = head[len(mark) :]
    return "" if name not in ("", "utf-8") and rest and b"\0" not in rest and _is_utf8(rest) else name


def _find_wide(head: bytes) -> str:
    """Returns the encoding of 2 or 4 bytes a character in which so many bytes are NUL; "" if there is none."""
    if b"\0" not in head:
        return ""
    n = len(head) // 4
    first, second, third, fourth = (head[i : 4 * n : 4].count(0) for i in range(4))
    if n < 2:
        return ""
    if n > 3 and min(third, fourth) > 0.95 * n and first < n / 2:
        return "utf-32-le"
    if n > 3 and min(first, second) > 0.95 * n and fourth < n / 2:
        return "utf-32-be"
    for odd, name in enumerate(["utf-16-be", "utf-16-le"]):
        nulls, others = ((second, fourth), (first, third)) if odd else ((first, third), (second, fourth))
        if min(nulls) > 0.03 * n and sum(others) < 0.01 * n and _could_be_wide(head, head[odd::2]):
            return name
    return ""


def _could_be_wide(head: bytes, high: bytes) -> bool:
    """Returns whether a file may be UTF-16 whose characters have these high bytes, rather than UTF-8 with some NULs."""
    # Alphabets are in the first 32 blocks of 256 characters.
    return not _is_utf8(head) or sum(byte < 0x20 for byte in high) > len(high) / 2


def _is_utf8(head: bytes) -> bool:
    """Returns whether these first bytes of a text are UTF-8; the last character may be cut."""
    try:
        codecs.utf_8_decode(head)
    except UnicodeDecodeError:
        return False
    return True


def find_likely(sample: bytes) -> str:
    """Returns the name of the encoding that text which is not UTF-8 is likely to be in; "" if none is likely."""
    if wide := _find_wide(sample):
        return wide
    best, likely = _LEAST_SCORE - _MARGIN, ""
    for name, codec, typical, weight in _typical():
        try:
            text = codecs.getincrementaldecoder(codec)().decode(sample)
        except UnicodeDecodeError:
            continue
        n_typical = sum(map(len, re.findall(typical, text)))
        score = weight * n_typical / max(1, len(re.findall("[^\0-\x7f]", text)))
        if score > best + _MARGIN:
            best, likely = score, name
    return likely


def transcode(chunks: Iterable[bytes], codec: str) -> Iterator[bytes]:
    """Yields text in UTF-8, chunk by chunk; what is invalid becomes bytes that are not UTF-8, so it is rejected."""
    decoder = codecs.getincrementaldecoder(codec)(_MARK_BROKEN)
    for chunk in chunks:
        if data := decoder.decode(chunk).encode("utf-8", "surrogatepass"):
            yield data
    if data := decoder.decode(b"", final=True).encode("utf-8", "surrogatepass"):
        yield data


def _mark_broken(error: UnicodeError) -> tuple[str, int]:
    """Replaces each invalid byte by a surrogate, from U+DC00 on, which no valid text has."""
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return "".join(chr(0xDC00 + byte) for byte in error.object[error.start : error.end]), error.end


codecs.register_error(_MARK_BROKEN, _mark_broken)


class InvalidText:
    """Says what is wrong with invalid records of a file, and which encoding the file is likely to be in."""

    def __init__(self, codec: str, read_head: Callable[[], bytes]) -> None:
        """Takes how the file is read.

        Args:
          codec: the codec of the file.
          read_head: returns its first bytes; called once, for the first record. What they show does not depend on how
            the file is cut into splits.
        """
        self._codec = codec
        self._find_likely = functools.cache(lambda: find_likely(read_head()))

    def explain(self, record: bytes, detail: str) -> str:
        """Returns the detail of a reject; `detail` says where `record` is not UTF-8."""
        if self._codec == "utf-8":
            likely = self._find_likely()
            return f"{detail}; the file looks like {likely}: set input.encoding" if likely else detail
        broken = _BROKEN.search(record)
        if broken is None:
            return detail
        data = bytes(ord(each) & 0xFF for each in broken[0].decode("utf-8", "surrogatepass")[:8])
        return f"0x{data.hex()} is not {self._codec}, at byte {broken.start()} of the record in UTF-8"

    def explain_all(
        self, data: bytes, starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64], details: pa.StringArray
    ) -> pa.StringArray:
        """Returns the details, string[n], of the records from `starts` to `ends` in `data`, int64[n] each."""
        if self._codec == "utf-8":
            likely = self._find_likely()
            return joined(details, f"; the file looks like {likely}: set input.encoding") if likely else details
        records = (data[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True))
        return pa.array(map(self.explain, records, details.to_pylist()), pa.string())
