# SPDX-License-Identifier: Apache-2.0
"""What flows between steps, and how Beam sends it.

| element | from, to | sent as |
|---|---|---|
| `Split` | the plan, to the workers | a line of JSON |
| `Todo`, `Page` | within one fused stage | never: their coder refuses |
| `Done` | a committed split or shard, to the last step | a line of text |
| `SplitRuns` | sorted documents or word counts of a split, to the merge of shards or counts | a line of JSON |
| `Vocabulary` | a trained tokenizer, to the steps that use it | a line of JSON |

| `pa.RecordBatch` | between steps of a user's own pipeline only | an Arrow IPC stream |

In jobs, Arrow batches and open tokenizers are in pages only, so what a runner shuffles is a few hundred bytes for each
split. Beam has no coder for Arrow and falls back to pickle, and a pickled slice carries the whole buffer that it was
cut from: a batch of 0.4 MB sliced from 100 MB takes 100 MB in every shuffle. Two things prevent that:

- a coder, which Beam picks for a PCollection whose type is declared (`.with_output_types(pa.RecordBatch)`, also inside
  `tuple[int, pa.RecordBatch]`);
- a `copyreg` reducer, for every place where a batch is pickled anyway: undeclared types, closures, side inputs.

Steps for batches call `register_batches` where they are added to a pipeline and where a worker sets them up. It leaves
a coder or reducer that somebody else has registered as it is; importing this module registers neither.
"""

import copyreg
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Self

import pyarrow as pa
from apache_beam.coders import Coder
from apache_beam.coders.typecoders import registry

from tokenmill.pipeline.books.sums import SplitRuns
from tokenmill.pipeline.splits import Split
from tokenmill.pipeline.tokenizing.pages import Page, Work
from tokenmill.pipeline.training.train import Vocabulary


class Todo(NamedTuple):
    """A split that some folder does not have yet."""

    split: Split
    works: tuple[Work, ...]
    """What each folder that does not have the split makes of it."""


@dataclass(frozen=True)
class Done:
    """A split, or a merged shard, that is committed."""

    folder: int
    """The number of the folder among those of the job."""
    index: int
    id: str

    def to_json(self) -> str:
        """Returns one line that `from_json` reads back."""
        return f"{self.folder} {self.index} {self.id}"

    @classmethod
    def from_json(cls, line: str) -> Self:
        """Returns the value that `to_json` turned into `line`."""
        folder, index, name = line.split(" ")
        return cls(int(folder), int(index), name)


class LineCoder(Coder):
    """Sends values as what their `to_json` returns."""

    def __init__(self, kind: type) -> None:
        """Takes the type of the values; it has `from_json`."""
        self._kind = kind

    def encode(self, value: "Split | Done | SplitRuns | Vocabulary") -> bytes:
        """Returns the line of a value."""
        return value.to_json().encode("utf-8", "surrogatepass")  # a folder may have a name that is not UTF-8

    def decode(self, encoded: bytes) -> object:
        """Returns the value of a line."""
        return self._kind.from_json(encoded.decode("utf-8", "surrogatepass"))  # type: ignore[attr-defined]

    @classmethod
    def from_type_hint(cls, kind: type, _: object) -> Self:  # type: ignore[override]
        """Returns the coder of a type."""
        return cls(kind)

    def to_type_hint(self) -> type:
        """Returns the type of the values."""
        return self._kind

    def is_deterministic(self) -> bool:
        """Returns True: equal values have equal lines."""
        return True

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LineCoder) and self._kind is other._kind

    def __hash__(self) -> int:
        return hash(self._kind)


class FusedCoder(Coder):
    """For elements that stay in one fused stage, whose sizes Beam still wants to know: without a coder it pickles them.

    Nothing encodes a page where reading and writing of a split are one stage. A runner that cuts the stage is told so.
    """

    def encode(self, value: "Page | Todo") -> bytes:
        """Raises RuntimeError."""
        raise RuntimeError(
            f"a {type(value).__name__} is sent from one worker to another: this runner does not fuse the steps from "
            "ReadSplits to WriteShards into one stage, and a split is read and written in one"
        )

    def decode(self, encoded: bytes) -> "Page | Todo":
        """Raises RuntimeError."""
        raise RuntimeError("no page is ever encoded")

    def estimate_size(self, value: "Page | Todo") -> int:
        """Returns the bytes of the columns of a page, which cost nothing to know."""
        return value.n_bytes if isinstance(value, Page) else 0

    def is_deterministic(self) -> bool:
        """Returns False: there is no encoding."""
        return False


def encode_batch(batch: pa.RecordBatch) -> bytes:
    """Returns `batch` as one Arrow IPC stream, schema included; a slice costs its own rows only.

    Uncompressed: locally a codec costs more than the bytes it saves.
    """
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


def decode_batch(data: bytes) -> pa.RecordBatch:
    """Returns the batch in `data`; its columns alias `data`."""
    with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
        return reader.read_next_batch()


class RecordBatchCoder(Coder):
    """Beam's view of `encode_batch` and `decode_batch`.

    Not deterministic: equal batches may differ in their padding and validity buffers, so a batch cannot be a key.
    """

    def encode(self, value: pa.RecordBatch) -> bytes:
        """Returns the Arrow IPC stream of `value`."""
        return encode_batch(value)

    def decode(self, encoded: bytes) -> pa.RecordBatch:
        """Returns the batch in an Arrow IPC stream."""
        return decode_batch(encoded)

    def is_deterministic(self) -> bool:
        """Returns False: equal batches may encode differently."""
        return False

    def estimate_size(self, value: pa.RecordBatch) -> int:
        """Returns the bytes of the rows of `value`, whatever buffers it is cut from."""
        return int(value.nbytes)

    def to_type_hint(self) -> type[pa.RecordBatch]:
        """Returns the type this coder is for."""
        return pa.RecordBatch


def _reduce(batch: pa.RecordBatch) -> tuple[Callable[[bytes], pa.RecordBatch], tuple[bytes]]:
    return decode_batch, (encode_batch(batch),)


def register_batches() -> None:
    """Makes Beam and pickle send batches as Arrow IPC streams, in this process, unless they have another way."""
    if pa.RecordBatch not in registry.custom_types:
        registry.register_coder(pa.RecordBatch, RecordBatchCoder)
    if pa.RecordBatch not in copyreg.dispatch_table:
        copyreg.pickle(pa.RecordBatch, _reduce)


for _line in (Split, Done, SplitRuns, Vocabulary):
    registry.register_coder(_line, LineCoder)
for _fused in (Todo, Page):
    registry.register_coder(_fused, FusedCoder)
