# SPDX-License-Identifier: Apache-2.0
"""`Decoder`: ids back to text, a column at a time. The text of every token is computed once; a kernel joins them."""

import dataclasses
import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tokenmill.tokenizer import decoders, recycled
from tokenmill.tokenizer import row_kernels as kernels
from tokenmill.tokenizer.added_tokens import normalized_content
from tokenmill.tokenizer.composition import Composition
from tokenmill.tokenizer.normalizers import SentencePieceNormalizer
from tokenmill.tokenizer.ragged import Ragged, id_rows, null_rows, read_only, string_array
from tokenmill.tokenizer.token_runs import Kind, TokenRun, runs_of


class _TextOf(dict[int, bytes]):
    """The text of each id, empty if it is skipped; KeyError for an id of no token. Each is looked up once."""

    def __init__(self, values: Any, offsets: Any, unknown: Any, skipped: Any) -> None:
        super().__init__()
        self._values, self._offsets, self._unknown, self._skipped = values, offsets, unknown, skipped

    def __missing__(self, i: int) -> bytes:
        if not 0 <= i < self._unknown.size or self._unknown[i]:
            raise KeyError(i)
        text = b"" if self._skipped[i] else self._values[self._offsets[i] : self._offsets[i + 1]].tobytes()
        return self.setdefault(i, text)


class IdDecoder:
    """A vocabulary and a decoder, lowered to one table of texts if the decoder works token by token."""

    def __init__(self, tokens: Mapping[int, str], special_ids: Iterable[int], decoder: decoders.Decoder | None) -> None:
        """Prepares to decode.

        Args:
          tokens: text of each id.
          special_ids: ids that decoding may skip.
          decoder: None joins tokens with spaces, as HF does.
        """
        self._tokens = tokens
        self._decoder = decoder
        self._n_ids = max(tokens, default=-1) + 1
        self._unknown = np.ones(self._n_ids, np.bool_)
        self._unknown[list(tokens)] = False
        self._skipped = self._unknown.copy()
        self._skipped[list(special_ids)] = True
        texts = (
            decoders.TokenTexts([t.encode() for t in tokens.values()], [f" {t}".encode() for t in tokens.values()])
            if decoder is None
            else decoder.token_texts(list(tokens.values()))
        )
        self._texts = None
        if texts is not None:
            first = self._joined(texts.first)
            self._texts = (*first, *(first if texts.later is texts.first else self._joined(texts.later)))

    def _joined(self, texts: list[bytes]) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
        """Lays out texts by id, uint8[n] and int64[n_ids + 1]."""
        by_id = [b""] * self._n_ids
        for token_id, text in zip(self._tokens, texts, strict=True):
            by_id[token_id] = text
        offsets = np.zeros(self._n_ids + 1, np.int64)
        np.cumsum([len(text) for text in by_id], out=offsets[1:])
        return read_only(np.frombuffer(bytearray().join(by_id), np.uint8)), offsets

    @functools.cached_property
    def _text_of(self) -> tuple[tuple[_TextOf, _TextOf], tuple[_TextOf, _TextOf]]:
        """The texts at the start of a row and elsewhere; first with special tokens, then without."""
        assert self._texts is not None
        both = []
        for skipped in (self._unknown, self._skipped):
            later = _TextOf(*self._texts[2:], self._unknown, skipped)
            is_same = self._texts[0] is self._texts[2]
            both.append((later if is_same else _TextOf(*self._texts[:2], self._unknown, skipped), later))
        return both[0], both[1]

    def decode_row(self, row: list[int], skip_special: bool) -> str:
        """Decodes one row of ids; the reference implementation of columns is this.

        Raises:
          KeyError: if an id belongs to no token.
        """
        skipped = self._skipped if skip_special else self._unknown
        if self._texts is not None:
            first, later = self._text_of[skip_special]
            data = b"".join(map(later.__getitem__, row))
            if first is not later:
                at = next((k for k, i in enumerate(row) if not skipped[i]), len(row))
                data = b"".join([*map(first.__getitem__, row[at : at + 1]), *map(later.__getitem__, row[at + 1 :])])
            try:
                return data.decode()
            except UnicodeDecodeError:
                pass
        known = [(i, self._tokens[i]) for i in row]
        tokens = [token for i, token in known if not skipped[i]]
        return " ".join(tokens) if self._decoder is None else self._decoder.decode(tokens)

    def pieces(self, row: Sequence[int]) -> list[bytes]:
        """Returns the bytes that each token of a row adds to its text; see `decoders.token_pieces`.

        Raises:
          KeyError: if an id belongs to no token.
        """
        if self._texts is None:
            tokens = [self._tokens[i] for i in row]
            if self._decoder is None:
                return [f"{' ' if i else ''}{token}".encode() for i, token in enumerate(tokens)]
            return decoders.token_pieces(self._decoder, tokens)
        first, later = self._text_of[False]
        return [*map(first.__getitem__, row[:1]), *map(later.__getitem__, row[1:])]

    def decode_arrow(self, ids: Any, skip_special: bool) -> pa.LargeStringArray:
        """Decodes a list column of ids; null for null.

        Raises:
          TypeError: if it is not a list column of integers. ValueError: if an id belongs to no token.
        """
        rows = id_rows(ids)
        skipped = self._check(rows, skip_special)
        bounds = np.column_stack([rows.offsets[:-1], rows.offsets[1:]])
        if self._texts is None:
            return pa.array(self._decode_rows(rows.values, bounds, skip_special), pa.large_string(), mask=_mask(ids))
        data, offsets = self._join(rows, skipped)
        texts, is_broken = string_array(data, offsets, null_rows(ids)), _are_broken(data, offsets)
        if not is_broken.any():
            return texts
        others = pa.array(self._decode_rows(rows.values, bounds[is_broken], skip_special), pa.large_string())
        import pyarrow.compute as pc  # takes long to import

        return pc.replace_with_mask(texts, pa.array(is_broken), others)

    def _decode_rows(self, values: npt.NDArray[Any], bounds: npt.NDArray[np.int64], skip_special: bool) -> list[str]:
        return [self.decode_row(values[start:stop].tolist(), skip_special) for start, stop in bounds.tolist()]

    def no_token(self, i: int) -> str:
        """Returns the message of an error."""
        return f"id {i} belongs to no token; ids are 0..{self._n_ids - 1}"

    def _check(self, rows: Ragged, skip_special: bool) -> npt.NDArray[np.bool_]:
        """Returns which ids to leave out, bool[n_ids]; raises ValueError for an id that no token has."""
        ids = rows.values[rows.offsets[0] : rows.offsets[-1]]
        if ids.size:
            outside = (ids < 0) | (ids >= self._n_ids)
            if not outside.any():
                outside = self._unknown[ids]
            if outside.any():
                raise ValueError(self.no_token(ids[np.argmax(outside)]))
        return self._skipped if skip_special else self._unknown

    def _join(
        self, rows: Ragged, skipped: npt.NDArray[np.bool_]
    ) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
        assert self._texts is not None
        first, first_offsets, later, later_offsets = self._texts
        values = read_only(rows.values.astype(np.int32, copy=False))
        offsets = np.zeros(rows.n_rows + 1, np.int64)
        kernels.text_sizes(values, rows.offsets, skipped, first_offsets, later_offsets, offsets)
        out = recycled.empty(int(offsets[-1]), np.uint8)
        kernels.join_texts(values, rows.offsets, skipped, first, first_offsets, later, later_offsets, out)
        return out, offsets


def _are_broken(data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Returns which rows are not whole characters, bool[n]: byte tokens may be cut anywhere, which is rare."""
    is_broken = np.zeros(offsets.size - 1, np.bool_)
    begins = offsets[:-1][np.diff(offsets) > 0]
    begins = begins[data[begins] & 0xC0 == 0x80]
    # A row that begins in the middle of a character is broken, and so is the one that has the byte before it.
    places = np.concatenate([_bytes_beside(data, offsets), begins, begins[begins > 0] - 1])
    is_broken[np.searchsorted(offsets, places, side="right") - 1] = True
    return is_broken


def _bytes_beside(data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Returns where in rows, taken as one text, the bytes are that are of no character."""
    whole = pa.Array.from_buffers(pa.large_string(), 1, [None, pa.py_buffer(offsets[[0, -1]]), pa.py_buffer(data)])
    try:
        whole.validate(full=True)
    except pa.ArrowInvalid:
        text = data[: offsets[-1]].tobytes().decode(errors="surrogateescape")
        points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")
        is_byte = (points >= 0xDC80) & (points <= 0xDCFF)
        sizes = 1 + (points >= 0x80) + (points >= 0x800) + (points >= 0x10000)
        return (np.cumsum(np.where(is_byte, 1, sizes)) - 1)[is_byte]
    return np.zeros(0, np.int64)


def _mask(ids: Any) -> npt.NDArray[np.bool_] | None:
    nulls = null_rows(ids)
    return None if nulls is None else nulls.to_numpy(zero_copy_only=False)


def _as_sentencepiece(step: decoders.Decoder) -> decoders.Decoder:
    return decoders.ByteFallback(keeps_characters=True) if isinstance(step, decoders.ByteFallback) else step


class Decoder(Composition):
    """The half of a tokenizer that turns ids into text."""

    @functools.cached_property
    def _id_decoder(self) -> IdDecoder:
        decoder = self.decoder
        if isinstance(decoder, decoders.WordPiece) and getattr(self.model, "oov_policy", None) == "byte":
            # The policy "byte" is ours: HF's WordPiece decoder knows no byte tokens.
            decoder = dataclasses.replace(decoder, byte_tokens=True)
        if isinstance(decoder, decoders.Sequence) and isinstance(self.normalizer, SentencePieceNormalizer):
            decoder = dataclasses.replace(decoder, decoders=tuple(map(_as_sentencepiece, decoder.decoders)))
        tokens = self._token_of
        as_text = {t.id: normalized_content(self.normalizer, t.content) for t in self.added_tokens if t.normalized}
        if any(tokens[i] != text for i, text in as_text.items()):
            tokens = {**tokens, **as_text}
        special = {t.content for t in self.added_tokens if t.special}  # by its text, as HF: a piece may have two ids
        return IdDecoder(tokens, [i for i, token in tokens.items() if token in special], decoder)

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """Decodes one row of ids; bytes that are not UTF-8 become U+FFFD.

        Raises:
          TypeError: if it is not a list of integers. ValueError: if an id belongs to no token.
        """
        row: Any = ids
        if type(ids) is not list or not set(map(type, ids)) <= {int}:
            values = np.asarray(ids)
            if values.ndim != 1 or (values.size and values.dtype.kind not in "iu"):
                raise TypeError(f"expected the ids of one row, a list of integers, got {ids!r:.80}")
            row = values.tolist()
        try:
            return self._id_decoder.decode_row(row, skip_special_tokens)
        except KeyError as error:
            if error.args[0].bit_length() > 63:
                raise TypeError(f"expected the ids of one row, a list of integers, got {ids!r:.80}") from None
            raise ValueError(self._id_decoder.no_token(error.args[0])) from None

    def decode_batch(self, batch: Iterable[Sequence[int]], skip_special_tokens: bool = True) -> list[str]:
        """Decodes rows of ids, each as `decode` does."""
        return [self.decode(ids, skip_special_tokens) for ids in batch]

    def decode_arrow(self, ids: Any, skip_special_tokens: bool = True) -> pa.LargeStringArray:
        """Decodes a list column of ids, each row as `decode` does; null for null.

        Raises:
          TypeError: if it is not a list column of integers. ValueError: if an id belongs to no token.
        """
        return self._id_decoder.decode_arrow(ids, skip_special_tokens)

    def token_runs(self, ids: Sequence[int]) -> list[TokenRun]:
        """Returns the tokens of a row as runs of text, special tokens too, for people to look at.

        Joined, the runs are the row as `decode` returns it, to the byte: a space is part of the token that it belongs
        to, and "Ġ", "▁" and "##" do not appear. "a 你" in GPT-2 reads `a`, ` ‹e4›`, `‹bd›`, `‹a0›=你`.
        """
        unknown = self.unk_token_id
        special = {token.id for token in self.added_tokens if token.special}
        around = {i for token in self._templates[True].special_tokens.values() for i in token.ids}
        if unknown in around:
            unknown = None  # CLIP's unknown token ends texts; no character is unknown to it
        known = [i for i in ids if i in self._token_of]
        pieces = iter(self._id_decoder.pieces(known))
        found: list[tuple[int, Kind, bytes]] = []
        for i in ids:
            if i not in self._token_of:
                found.append((i, "missing", b""))
                continue
            kind: Kind = "unknown" if i == unknown else "special" if i in special else "ordinary"
            found.append((i, kind, next(pieces)))
        return runs_of(found)
