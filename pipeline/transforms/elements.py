# SPDX-License-Identifier: Apache-2.0
"""What flows between steps, and how Beam sends it.

| element | from, to | sent as |
|---|---|---|
| `Split` | the plan, to the workers | a line of JSON |
| `Todo`, `Page` | within one fused stage | never: their coder refuses |
| `Done` | a committed split or shard, to the last step | a line of text |
| `SplitRuns` | sorted documents or word counts of a split, to the merge of shards or counts | a line of JSON |
| `Vocabulary` | a trained tokenizer, to the steps that use it | a line of JSON |

Arrow batches and open tokenizers are in pages only, so what a runner shuffles is a few hundred bytes for each split.
"""

from dataclasses import dataclass
from typing import NamedTuple, Self

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


for _line in (Split, Done, SplitRuns, Vocabulary):
    registry.register_coder(_line, LineCoder)
for _fused in (Todo, Page):
    registry.register_coder(_fused, FusedCoder)
