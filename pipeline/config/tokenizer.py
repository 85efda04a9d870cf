# SPDX-License-Identifier: Apache-2.0
"""The section `tokenizer` of a config: an existing tokenizer or one to train, and how long rows are."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from tokenmill.pipeline.config.sections import Natural, NonEmpty, PathText, Positive, Section, mistake
from tokenmill.pipeline.config.training import TrainConfig

BYTE_TOKENS = tuple(f"<0x{byte:02X}>" for byte in range(256))
"""The vocabulary entries that the OOV policy `byte` emits."""


class TruncationConfig(Section):
    """Rows have at most `max_length` tokens; what becomes of longer documents, `overflow` says."""

    max_length: Positive
    """At most this many tokens per row, special tokens included."""
    side: Literal["right", "left"] = "right"
    """The end that is cut off."""
    overflow: Literal["cut", "rows", "leave_out"] = "cut"
    """`cut` drops the rest of a longer document. `rows` makes several rows of it, windows of at most `max_length`
    tokens. `leave_out`, for conversations, leaves the longer ones out, whole; they are counted under `too_long`."""
    stride: Natural = 0
    """For `rows`: how many tokens neighbouring windows have in common."""
    warn_above: Annotated[float, Field(ge=0, le=1)] = 0.01
    """The job warns if more than this share of the tokens was cut off; 1: never."""

    @model_validator(mode="after")
    def _check_overflow(self) -> Self:
        if self.overflow != "rows" and self.stride:
            raise mistake("stride", self.stride, "applies to overflow: rows; what is cut off is in no row")
        if self.overflow != "cut" and self.side == "left":
            why = "windows hold all of a document, from its beginning" if self.overflow == "rows" else "nothing is cut"
            raise mistake("side", self.side, f"{why}; remove it")
        if self.stride >= self.max_length:
            raise mistake("stride", self.stride, f"must be less than max_length, which is {self.max_length}")
        return self


class PaddingConfig(Section):
    """Rows shorter than `length` tokens are filled up with the padding token."""

    length: Annotated[int, Field(ge=1, le=1 << 24)]
    """Rows shorter than this are padded up to it; longer rows are an error unless truncation is on."""
    side: Literal["right", "left"] = "right"
    """The end that is filled."""
    pad_token: NonEmpty | None = None
    """The token that fills rows up; null: the tokenizer's padding token."""


class TokenizerConfig(Section):
    """Either `file`, an existing tokenizer, or `train`, one trained on the input."""

    file: PathText | None = None
    """A tokenizer file of any supported format, such as `tokenizer.json` or `vocab.txt`, or a folder with one."""
    pattern: str | None = None
    """For rank files of tiktoken, which do not contain it: the pattern that splits text, or its name."""
    as_class: str | None = None
    """For files of `transformers` without a `tokenizer.json`: the class that reads them, if they do not name it."""
    unicode: Literal["8", "17"] | None = None
    """The version of Unicode that says what BERT's punctuation and accents, and the letters of patterns are. `"8"`: the
    ids of HF tokenizers 0.23, for any tokenizer; `"17"`: those of 1.0. null: what the file says, else `"8"`."""
    train: TrainConfig | None = None
    lowercase: bool | None = None
    """null: what the file says; for `vocab.txt`, true unless its entries have capitals; for `train` with normalizer
    bert, true; for others false."""
    strip_accents: bool | None = None
    """null: what the file says, else as `lowercase`."""
    oov: Literal["word", "contain", "char", "byte"] | None = None
    """WordPiece only: how a word with unknown characters is encoded. `word`: as one unknown token; `contain`: with one
    unknown token for each run of them, keeping the rest; `char`: character by character; `byte`: as `contain`, but with
    byte tokens for unknown characters. null: as the file says; for `train`, `word`."""
    add_special_tokens: bool = False
    """Add the special tokens of the tokenizer's template to every row, for BERT `[CLS] ... [SEP]`."""
    max_unknown_fraction: Annotated[float, Field(ge=0, le=1)] = 0.5
    """The job fails at its end if more than this share of its tokens is unknown; 1: never. You can raise it and resume
    the job. From 1 % on, it warns."""
    truncation: TruncationConfig | None = None
    padding: PaddingConfig | None = None

    @property
    def has_windows(self) -> bool:
        """Whether rows are windows of documents."""
        return self.truncation is not None and self.truncation.overflow == "rows"

    @model_validator(mode="after")
    def _check_lengths(self) -> Self:
        if self.padding and self.truncation and self.padding.length < self.truncation.max_length:
            raise mistake(
                "padding.length",
                self.padding.length,
                f"must be at least truncation.max_length, which is {self.truncation.max_length}",
            )
        return self

    @model_validator(mode="after")
    def _check_folding(self) -> Self:
        if self.train is not None and self.train.normalizer == "sentencepiece":
            for name in ("lowercase", "strip_accents"):
                if getattr(self, name):
                    raise mistake(
                        name,
                        True,
                        f"must be false for train.normalizer sentencepiece, which changes no letters; put {name} into "
                        "normalize, or choose normalizer nmt_nfkc with pre_tokenizer whitespace_metaspace",
                    )
        return self

    @model_validator(mode="after")
    def _check_special_tokens(self) -> Self:
        if self.train is None:
            return self
        tokens, model = self.train.tokens, self.train.model
        for name in ("oov", "add_special_tokens"):
            if getattr(self, name) and model != "wordpiece":
                raise mistake(name, getattr(self, name), f"is for wordpiece, but train.model is {model!r}; remove it")
        needed = {"padding": [self.padding.pad_token or "[PAD]"] if self.padding else []}
        needed["add_special_tokens"] = ["[CLS]", "[SEP]"] if self.add_special_tokens else []
        needed["oov: byte"] = list(BYTE_TOKENS) if self.oov == "byte" else []
        for why, names in needed.items():
            if missing := [name for name in names if name not in tokens]:
                more = f" and {len(missing) - 2} more" if len(missing) > 2 else ""
                listed = ", ".join(missing[:2]) + more
                raise mistake("train.special_tokens", tokens, f"must contain {listed} because `{why}` needs them")
        return self
