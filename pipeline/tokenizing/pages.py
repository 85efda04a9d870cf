# SPDX-License-Identifier: Apache-2.0
"""`Page`, a few MiB of one split on its way from reader to shard, and what every step on that way is given."""

import dataclasses
import functools
import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tokenmill.pipeline import schemas
from tokenmill.pipeline.books.counts import LANGUAGE, Accounts, Counts
from tokenmill.pipeline.books.quantities import OTHER_PART
from tokenmill.pipeline.books.sums import hash_texts
from tokenmill.pipeline.config.job import Config
from tokenmill.pipeline.config.kept_fields import decode_fields
from tokenmill.pipeline.input.batches import ReadBatch
from tokenmill.pipeline.input.languages import identify_languages
from tokenmill.pipeline.input.reading import Wanted, read_split
from tokenmill.pipeline.output import arranging
from tokenmill.pipeline.output.writers.base import TokenizerInfo
from tokenmill.pipeline.running.progress import OnBatch
from tokenmill.pipeline.splits import Split
from tokenmill.pipeline.statistics.tally import Statistics
from tokenmill.pipeline.tokenizing.encoders import Encoded, Texts
from tokenmill.tokenizer import Padding, Tokenizer, Truncation

if TYPE_CHECKING:
    from tokenmill.tokenizer.text import StepReport, TextTokenizer

PART = "part"
"""The column that `label` adds: the name of a document's part."""

_PADDED_IDS = 4 << 20
"""A page has at most this many ids of padded rows: padding may turn 4 MiB of short documents into gigabytes."""


@dataclass(frozen=True)
class Work:
    """What one folder makes of one split: all that a step needs to know before the first page."""

    split: Split
    """With the id that it has in the folder."""
    config: Config
    """The config of the folder."""
    tokenizer: Tokenizer
    """Compiled, with the truncation and padding of the config; may be shared by threads."""
    n_splits: int
    """The number of splits of the plan."""
    are_merged: bool = False
    """Whether a job that shuffles has merged all shards, so that a committed split needs no runs."""
    folder: int = 0
    """The number of the folder among those of the job."""

    @functools.cached_property
    def source_config(self) -> Config:
        """The config with the section `input` of the split's source."""
        return self.config.model_copy(update={"input": self.config.input.of(self.split.source)})

    @functools.cached_property
    def layout(self) -> arranging.RowLayout:
        """How the tokens of a document become rows."""
        return arranging.lay_out(self.config, self.tokenizer)

    @functools.cached_property
    def text(self) -> "TextTokenizer | None":
        """The tokenizer with the text steps and spans of the config; None without any."""
        return self.config.text.wrap(self.tokenizer) if self.config.text else None

    @property
    def info(self) -> TokenizerInfo:
        """What shards say about the tokenizer."""
        return tokenizer_info(self.tokenizer)

    @property
    def names(self) -> list[str]:
        """The name of each piece."""
        return [piece.name for piece in self.split.pieces]


class SplitBooks:
    """What one folder counts of one split: the steps add to it, and the writer makes the ledger entry of it."""

    def __init__(self, work: Work) -> None:
        """Starts at zero."""
        fields = decode_fields(work.split.fields)
        self.statistics = Statistics(work.info.vocab_size, work.tokenizer.unk_token_id)
        self.accounts = Accounts(len(work.split.pieces))
        self.chat: Counter[str] | None = None
        """`chat.COUNTS` where documents are conversations."""
        if work.source_config.input.is_chat:  # which needs what renders templates
            from tokenmill.pipeline.tokenizing.chat import COUNTS

            self.chat = Counter(dict.fromkeys(COUNTS, 0))
        self.has_field: Counter[str] = Counter({each.name: 0 for each in fields})
        self.n_records = 0


class Changes(NamedTuple):
    """What text steps and spans have changed in the texts of a page."""

    reports: "Sequence[StepReport]"
    n_spans: Mapping[str, int]
    """Token -> how many spans became it."""
    n_texts: int
    """How many texts these are about. Where a later step leaves some out, `Encode` counts the changes of the others."""


@dataclass(frozen=True)
class Page:
    """A few MiB of one split, for one folder. Page n + 1 follows page n; the last one has no documents and closes it.

    Steps add what they make, in a new page: those of several folders begin with the same batch.
    """

    number: int
    batch: ReadBatch | None
    """What was read, for all folders; None: the split ends here."""
    work: Work
    """What the folder of this page makes of the split."""
    books: SplitBooks
    """What the folder counts of the split: one for all of its pages, to which the steps add."""
    texts: Texts | None = None
    """From `Normalize` to `Encode`: the documents that are left, and their texts as the tokenizer gets them."""
    changes: Changes | None = None
    """From `Normalize` to `Encode`, if the config has text steps or spans."""
    encoded: Encoded | None = None
    """From `Encode` to `Count`: the tokens of the texts."""
    rows: pa.RecordBatch | None = None
    """From `Count` on: the rows of the shard with the places of their documents (`schemas.placed`)."""
    documents: pa.RecordBatch | None = None
    """From `Count` on: the documents of the rows."""
    rejects: tuple[pa.RecordBatch, ...] = ()
    """`schemas.REJECTS`: documents that a step could not use; those of the reader are in `batch`."""
    report: OnBatch | None = None
    """Called with the tokens and rejects of each page that is written; None: nobody watches."""

    @property
    def is_last(self) -> bool:
        """Whether the split ends here."""
        return self.batch is None

    @property
    def n_documents(self) -> int:
        """How many documents the page has, after the last of its steps."""
        encoded = self.encoded.texts if self.encoded is not None else None
        made = (each.num_rows for each in (self.rows, encoded, self.texts) if each is not None)
        return next(made, self.batch.documents.num_rows if self.batch is not None else 0)

    @property
    def n_bytes(self) -> int:
        """About the bytes of what the page holds: documents, and their tokens."""
        documents = self.batch.documents if self.batch is not None else None
        ids = self.encoded.ids if self.encoded is not None else None
        return sum(each.nbytes for each in (documents, ids, self.rows) if each is not None)


class Step(Protocol):
    """A step of one folder: made for each split, then called with its pages in order, the last one included."""

    def __init__(self, work: Work) -> None:
        """Prepares for a split."""

    def __call__(self, page: Page) -> Page:
        """Returns the page with what this step makes."""


def read_pages(works: Sequence[Work], wanted: Wanted | None = None) -> Iterator[Page]:
    """Reads a split once into pages for each of its folders, in turn; the last page of each is empty.

    Args:
      works: the same split for each folder, at least one.
      wanted: the documents to read; None: all.
    """
    split, config, number = works[0].split, works[0].config, 0
    books = [SplitBooks(work) for work in works]
    for batch in read_split(split, config.input, wanted=wanted):
        for part in _cut(label(batch, config), config):
            yield from (Page(number, part, work, of) for work, of in zip(works, books, strict=True))
            number += 1
    yield from (Page(number, None, work, of) for work, of in zip(works, books, strict=True))


def _cut(batch: ReadBatch, config: Config) -> Iterator[ReadBatch]:
    """Yields a batch in slices whose padded rows are not too many to hold; all else of it goes with the last."""
    padding, n = config.tokenizer.padding, batch.documents.num_rows
    n_rows = n if padding is None or config.tokenizer.has_windows else max(1, _PADDED_IDS // max(1, padding.length))
    starts = range(0, n, max(1, n_rows))
    for start in starts[:-1]:
        documents = batch.documents.slice(start, n_rows)
        yield ReadBatch(documents, rejects=None, n_bytes=0, n_records=0, n_skipped_bytes=0)
    yield dataclasses.replace(batch, documents=batch.documents.slice(starts[-1])) if len(starts) > 1 else batch


def part_of(values: pa.Array, shares: Mapping[str, float]) -> npt.NDArray[np.int64]:
    """Returns int64[n]: the index of the part that has each value, among the sorted names of the parts.

    A part is a range of a hash of the document's id, or of a field, in the order of the names and not of the config: it
    depends on nothing but that value and the shares, not on other documents, the order of files or where they are cut.

    Args:
      values: string[n], no nulls.
      shares: the share of each part, by its name.
    """
    exact = (Fraction(shares[name]) for name in sorted(shares)[:-1])
    # The last one has the rest, whatever the sum of the shares is rounded to.
    limits = np.array([min(int(share * (1 << 64)), (1 << 64) - 1) for share in itertools.accumulate(exact)], np.uint64)
    return np.searchsorted(limits, hash_texts(values), side="right")


def label(batch: ReadBatch, config: Config) -> ReadBatch:
    """Returns the batch with the columns that decide which part has a document; unchanged if it has them.

    They are the same for all folders of a job, and found once.
    """
    if config.text.languages is not None:
        batch = identify_languages(batch, config.text.languages)
    documents, parts = batch.documents, config.output.parts
    if parts is None or PART in documents.schema.names:
        return batch
    if parts.shares:
        values = documents.column("doc_id")
        if parts.by is not None:
            field = documents.column(schemas.FIELDS).field(parts.by)
            values = pc.coalesce(field.cast(pa.string()), values)
        found = pa.array(sorted(parts.shares)).take(pa.array(part_of(values, parts.shares)))
    else:
        first, *others = config.part_names
        codes = documents.column("lang")
        found = pc.if_else(pc.is_in(codes, pa.array(others, pa.string())), codes, first)
    return dataclasses.replace(batch, documents=documents.append_column(PART, found))


def leave_out_others(batch: ReadBatch, config: Config) -> tuple[ReadBatch, Counts]:
    """Leaves out what belongs to other parts than that of a job: documents, and rejects except for the first part.

    Rules come first, so that they leave out the same in every part.

    Args:
      batch: what the rules of `languages` have left.
      config: the config of a job for one part.

    Returns:
      The rest of the batch, and what is left out of each language, if they are identified.
    """
    batch, counts, parts = label(batch, config), Counts(), config.output.parts
    assert parts is not None
    is_other = pc.not_equal(batch.documents.column(PART), parts.only)
    if "lang" in batch.documents.schema.names:
        codes = batch.documents.column("lang").filter(is_other)
        counts.add_by(LANGUAGE, codes, filtered=np.ones(len(codes), np.int64))
    if parts.only != config.part_names[0]:
        batch = batch.leave_out_rejects(OTHER_PART)
    return batch.leave_out({OTHER_PART: is_other.to_numpy(zero_copy_only=False)}), counts


def check_field(fields: pa.Schema, name: str) -> None:
    """Raises ValueError if the kept field that `output.parts.by` names is neither text nor an integer."""
    kind = fields.field(name).type
    if not (pa.types.is_string(kind) or pa.types.is_integer(kind)):
        raise ValueError(f"output.parts.by: {name!r} is {kind} in the input; must be text or an integer")


def tokenizer_info(tokenizer: Tokenizer) -> TokenizerInfo:
    """Returns what shards and the manifest say about a tokenizer."""
    return _tokenizer_info(tokenizer, tokenizer.truncation, tokenizer.padding)


@functools.lru_cache(maxsize=16)
def _tokenizer_info(tokenizer: Tokenizer, truncation: Truncation | None, padding: Padding | None) -> TokenizerInfo:
    # Cached, because every split needs the digest, which takes tens of milliseconds for a large vocabulary.
    return TokenizerInfo(
        digest=tokenizer.digest,
        vocab_size=tokenizer.n_ids,
        special_ids={token.content: token.id for token in tokenizer.added_tokens if token.special},
        padding_side=padding.direction if padding is not None else None,
    )


def schema_of_rows(config: Config, fields: str) -> pa.Schema:
    """Returns the schema of `Page.rows`, and so of sorted runs; `fields` as `Split.fields`."""
    return schemas.placed(schemas.rows(config.columns), decode_fields(fields))
