# SPDX-License-Identifier: Apache-2.0
"""The ways from texts to ids. A job, and each step of `rows` that tokenizes, chooses one of these once.

    Texts --PlainEncoder | SpanEncoder | FimEncoder | ChatEncoder--> Encoded

None adds tokens around a text, cuts or pads it: `Layout` does that with bare ids. An encoder has no state, so encoding
may be tried again with fewer texts, and several threads may share it. What tokenizers count goes into a `Tally`.
"""

import dataclasses
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tokenmill.pipeline import schemas
from tokenmill.pipeline.config.job import Config
from tokenmill.pipeline.input import given_up
from tokenmill.pipeline.output.arranging import RowLayout
from tokenmill.pipeline.tokenizing.fim import FillInMiddle
from tokenmill.tokenizer import Layout, Tally, Tokenizer, unchecked_text_rows
from tokenmill.tokenizer.reference_encoding import TextByText

if TYPE_CHECKING:
    from tokenmill.pipeline.tokenizing.chat import ChatTexts
    from tokenmill.tokenizer.text import PreparedText, TextTokenizer


class Texts(NamedTuple):
    """Documents, and their texts as the tokenizer gets them. `_replace(text=...)` changes these for all encoders."""

    documents: pa.RecordBatch
    """`schemas.DOCUMENTS` and more columns, as they were read."""
    text: "pa.Array | PreparedText"
    """string[n] or large_string[n], valid, no nulls: after text steps; of conversations the records. With
    `spans` of the config: the texts with these."""

    @property
    def column(self) -> pa.Array:
        """The texts, without spans."""
        return self.text if isinstance(self.text, pa.Array) else self.text.documents()

    @property
    def spans(self) -> "PreparedText":
        """The texts with their spans; raises ValueError if a step has put others in their place."""
        if isinstance(self.text, pa.Array):
            raise ValueError("a step has replaced texts in which `spans` of the config were found: it cannot have both")
        return self.text

    @property
    def num_rows(self) -> int:
        """How many texts there are."""
        return self.documents.num_rows

    def slice(self, start: int, n: int) -> Self:
        """Returns the texts from `start` on, at most `n`."""
        numbers = np.arange(self.num_rows)
        return self.filter((numbers >= start) & (numbers < start + n))

    def filter(self, kept: npt.NDArray[np.bool_]) -> Self:
        """Returns some of the texts; `kept` is bool[n]."""
        mask = pa.array(kept)
        text = self.text.filter(mask) if isinstance(self.text, pa.Array) else _some(self.text, kept)
        return self._replace(documents=self.documents.filter(mask), text=text)


def _some(prepared: "PreparedText", kept: npt.NDArray[np.bool_]) -> "PreparedText":
    """Returns some of the texts of `prepared`, with their spans."""
    cut, rows = prepared.cut, prepared.rows
    n_parts = np.ones(kept.size, np.int64) if cut is None else np.diff(cut.documents)
    has_part = np.repeat(kept, n_parts)
    texts = pa.LargeListArray.from_arrays(pa.array(rows.offsets, pa.int64()), pa.array(rows.values))
    texts = texts.filter(pa.array(has_part))
    left = rows._replace(values=texts.flatten().to_numpy(), offsets=texts.offsets.to_numpy() - texts.offsets[0].as_py())
    if cut is not None:
        cut = cut._replace(
            rows=left,
            rules=cut.rules[has_part],
            documents=np.concatenate(([0], np.cumsum(n_parts[kept]))),
            sources=cut.sources[has_part[cut.rules >= 0]],
        )
    return prepared._replace(rows=left, cut=cut, rejected=prepared.rejected[kept])


class Rejected(NamedTuple):
    """Documents that cannot be used."""

    documents: pa.RecordBatch
    reason: str
    details: pa.StringArray | None = None
    """What is wrong with each; None: what the reason says."""


class Encoded(NamedTuple):
    """Texts with their tokens."""

    texts: Texts
    """Those that have tokens."""
    ids: pa.LargeListArray
    """int32: the tokens of each text, without any around it."""
    more: pa.LargeListArray | None = None
    """The sources of spans, or the loss mask of the row that the layout makes of a conversation."""
    rejects: tuple[Rejected, ...] = ()
    too_long: pa.RecordBatch | None = None
    """Documents that a rule leaves out, as their rows would be too long."""
    counts: Counter[str] | None = None
    """`chat.COUNTS`; None where texts are no conversations."""


class Encoder(ABC):
    """Encodes texts."""

    @abstractmethod
    def encode(self, texts: Texts, tally: Tally | None = None) -> Encoded:
        """Returns the tokens of texts.

        Raises:
          TimeoutError, MemoryError, UnknownCharacterError: if the tokenizer gives up on one of them (`given_up`); the
            tally is as it was.
        """

    def encode_by(self, texts: Texts, by: TextByText, rows: npt.NDArray[np.int64]) -> pa.LargeListArray:
        """Returns the bare tokens of some texts of an `Encoded`, by their numbers, as something else encodes them."""
        return by.encode_bare(texts.column.take(pa.array(rows)))


@dataclasses.dataclass(frozen=True)
class PlainEncoder(Encoder):
    """Texts as they are."""

    tokenizer: Tokenizer

    def encode(self, texts: Texts, tally: Tally | None = None) -> Encoded:
        """Returns the tokens of texts."""
        return Encoded(texts, self.tokenizer.encode_bare(unchecked_text_rows(texts.column), tally))


@dataclasses.dataclass(frozen=True)
class SpanEncoder(Encoder):
    """Texts with spans, each of which becomes a token."""

    text: "TextTokenizer"

    def encode(self, texts: Texts, tally: Tally | None = None) -> Encoded:
        """Returns the tokens of texts, and the sources of their spans if the config keeps these."""
        ids, sources = self.text.encode_prepared(texts.spans, tally), self.text.sources(texts.spans)
        return Encoded(texts, ids, sources.cast(schemas.SPAN_SOURCES.type) if sources is not None else None)

    def encode_by(self, texts: Texts, by: TextByText, rows: npt.NDArray[np.int64]) -> pa.LargeListArray:
        """Returns the bare tokens of some texts."""
        is_chosen = np.isin(np.arange(texts.num_rows), rows)
        return by.encode_segments(self.text.segments(_some(texts.spans, is_chosen)))


@dataclasses.dataclass(frozen=True)
class FimEncoder(Encoder):
    """Fill in the middle."""

    fim: FillInMiddle
    names: Sequence[str]
    """Of the pieces of the split."""

    def encode(self, texts: Texts, tally: Tally | None = None) -> Encoded:
        """Returns the tokens of texts."""
        return Encoded(texts, self.fim.encode(texts.documents, texts.column, self.names, tally))

    def encode_by(self, texts: Texts, by: TextByText, rows: npt.NDArray[np.int64]) -> pa.LargeListArray:
        """Returns the bare tokens of some texts."""
        documents, text = texts.documents.take(pa.array(rows)), texts.column.take(pa.array(rows))
        return self.fim.encode(documents, text, self.names, by=by)


@dataclasses.dataclass(frozen=True)
class ChatEncoder(Encoder):
    """Conversations, rendered by their template. Their texts are records in JSON, those of the result are rendered."""

    chat: "ChatTexts"
    layout: Layout
    is_whole: bool
    """Whether conversations that the layout would cut are left out."""

    def encode(self, texts: Texts, tally: Tally | None = None) -> Encoded:
        """Returns the tokens of conversations, their loss masks, and those that cannot be trained on."""
        made = self.chat.encode(texts.column.to_pylist(), self.layout, tally, whole=self.is_whole)
        rejects = [Rejected(texts.documents.take(rows), reason, details) for reason, rows, details in made.rejects]
        left = Texts(made.complete(texts.documents), made.texts)
        return Encoded(left, made.ids, made.masks, tuple(rejects), texts.documents.take(made.too_long), made.counts)


def encoder_of(
    config: Config, tokenizer: Tokenizer, text: "TextTokenizer | None", layout: RowLayout, names: Sequence[str]
) -> Encoder:
    """Returns the encoder that a config asks for.

    Args:
      config: the config of a folder, with the section `input` of one source.
      tokenizer: its tokenizer.
      text: the tokenizer with the text steps and spans of the config; None without any.
      layout: `arranging.lay_out` of config and tokenizer.
      names: the names of the pieces of the split.
    """
    if config.input.is_chat:  # which needs what renders templates
        from tokenmill.pipeline.tokenizing.chat import ChatTexts

        truncation = config.tokenizer.truncation
        is_whole = truncation is not None and truncation.overflow == "leave_out"
        return ChatEncoder(ChatTexts.of(config, tokenizer), layout.document, is_whole)
    if config.output.fim is not None:
        return FimEncoder(FillInMiddle.of(config.output.fim, tokenizer, _room(config, layout)), names)
    return SpanEncoder(text) if text is not None and config.spans else PlainEncoder(tokenizer)


def _room(config: Config, rows: RowLayout) -> int | None:
    """Returns how many tokens of a document fit into a row that does not cut it; None: any number, or it may be cut."""
    around = rows.document.n_around + (rows.window.n_around if rows.window is not None else 0)
    truncation, packing = (rows.window or rows.document).truncation, config.output.packing
    room = [] if truncation is None else [truncation.max_length - around]
    if packing is not None and packing.strategy != "concatenate":
        room.append(packing.length - around - (packing.separator is not None))
    return min(room, default=None)


def encode(encoder: Encoder, texts: Texts, tally: Tally) -> Encoded:
    """Returns what `encoder` makes of texts; those on which the tokenizer gives up are among its rejects."""
    gone: list[Rejected] = []
    while True:
        try:
            encoded = encoder.encode(texts, tally)
        except given_up.GAVE_UP:
            reasons = given_up.find_given_up(encoder.encode, texts)
            if not reasons.any():
                raise
            gone += [Rejected(texts.filter(reasons == reason).documents, reason) for reason in given_up.OF_TOKENIZER]
            texts = texts.filter(reasons == "")
        else:
            return encoded._replace(rejects=(*gone, *encoded.rejects))
