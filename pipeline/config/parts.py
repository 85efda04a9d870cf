# SPDX-License-Identifier: Apache-2.0
"""The section `output.parts` of a config: several folders from one pass over the input."""

import math
import re
from typing import Annotated, Self

from pydantic import Field, model_validator

from tokenmill.pipeline.config.languages import DEFAULT, check_codes
from tokenmill.pipeline.config.sections import NonEmpty, PathText, Section, mistake

MAX_PARTS = 32
"""Most parts of an output: a worker has a shard and a table of documents of each open at a time."""

TAKEN_NAMES = ("all", "counts", "documents", "rejected", "replay", "vocab")
"""Names that shares cannot have: readers of data sets take the first for all parts, and a job has folders of the
others, which a config does not import; a test compares them."""


class PartsConfig(Section):
    """Each document goes into one of several parts. A part is an output folder of its own."""

    by: NonEmpty | None = None
    """What decides: `lang`, the language of a document. With `shares` one of `input.keep_fields`, so that all documents
    with one value of it are in one part; null: the id. For the job `train` also `source`."""
    tokenizers: dict[NonEmpty, PathText] = {}
    """With `lang`: one for each language, instead of `tokenizer.file`; `default` is for all others and for rejects.
    Several may have the same file. The folders are `tokenizer=<language>/`."""
    train: bool = False
    """`tokenizer.train` trains a vocabulary for each part: for each of `counts.languages`, and for `default`. The job
    `train` writes one for each language, or source, of its counts."""
    shares: Annotated[dict[str, Annotated[float, Field(gt=0, lt=1)]], Field(max_length=MAX_PARTS)] = {}
    """`{train: 0.98, validation: 0.01, test: 0.01}`: the share of the documents in each part, which a hash decides. The
    folders have these names; the largest has all rejects."""
    only: NonEmpty | None = None
    """The one part to write, into `output.path` itself; null: all. A job writes this key for each of its folders."""

    @model_validator(mode="after")
    def _check_shares(self) -> Self:
        for name in self.shares:
            if not re.fullmatch("[a-z][a-z0-9_]{0,39}", name) or name in TAKEN_NAMES:
                allowed = "a name of at most 40 characters of a-z, 0-9 and _, the first a letter, as it names a folder"
                raise mistake("shares", name, f"must be {allowed}, and not {', '.join(TAKEN_NAMES)}")
        total = math.fsum(self.shares.values())
        if self.shares and not math.isclose(total, 1, abs_tol=1e-9):
            raise mistake("shares", self.shares, f"the shares must add up to 1, but their sum is {total:.10g}")
        return self

    @model_validator(mode="after")
    def _check_by(self) -> Self:
        for key in ("tokenizers", "train"):
            if getattr(self, key) and self.shares:
                raise mistake(key, getattr(self, key), "parts with shares have one tokenizer; remove one")
        if not self.shares and self.by not in (("lang", "source") if self.train else ("lang",)):
            raise mistake("by", self.by, "must be lang, unless there are shares")
        if self.tokenizers and self.train:
            raise mistake("tokenizers", self.tokenizers, "`train` makes the tokenizers; remove one")
        if self.tokenizers:  # else the library that knows languages is not imported
            check_codes("tokenizers", self.tokenizers, or_default=True)
            if DEFAULT not in self.tokenizers:
                raise mistake("tokenizers", self.tokenizers, f"must have one for {DEFAULT!r}: other languages, rejects")
        return self

    @property
    def share(self) -> float:
        """The share of all documents that the folder is for."""
        return self.shares.get(self.only or "", 1.0)
