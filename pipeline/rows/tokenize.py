# SPDX-License-Identifier: Apache-2.0
"""`Tokenize` and `Detokenize`: texts to ids, and back."""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from apache_beam.metrics.metric import Metrics

from tokenmill.pipeline import schemas
from tokenmill.pipeline.books.sums_kernels import copy_rows
from tokenmill.pipeline.columns import as_lists, ragged
from tokenmill.pipeline.config.file import section
from tokenmill.pipeline.config.text import ChatConfig
from tokenmill.pipeline.config.tokenizer import TokenizerConfig
from tokenmill.pipeline.output.arranging import place, windows_form
from tokenmill.pipeline.output.placement import Marks, gather_ids, measure, placed_columns
from tokenmill.pipeline.rows.arguments import checked
from tokenmill.pipeline.rows.batching import Compute, Computed, RowTransform, Work
from tokenmill.pipeline.rows.elements import Field
from tokenmill.pipeline.rows.errors import RowsError
from tokenmill.pipeline.rows.texts import FIELD, records_of, section_of
from tokenmill.pipeline.rows.tokenizers import GivenTokenizer, TokenizerSource
from tokenmill.pipeline.tokenizing.chat import ChatTexts
from tokenmill.tokenizer import Layout, Tokenizer
from tokenmill.tokenizer.chat.conversations import ConversationError

IDS = schemas.TOKENS.field("input_ids").type


class Tokenize(RowTransform):
    """Tokenizes texts.

        rows | Tokenize("vocab", max_length=512, add_special_tokens=True)

    Input: rows with a text, or batches. Output: the same with `input_ids` (int32), `n_tokens` (without padding) and
    `n_oov`, how many of the text's tokens are the unknown token. With `overflow="rows"` a text that is too long becomes
    several rows, which `window` numbers from 0. Ids are those of `Tokenizer.encode`.

    Counters: elements-in, elements-failed, tokens-out, tokens-unknown; the distribution tokens-per-row.

    With `messages="messages"` rows have conversations, as `RenderChat` takes them, and also get `loss_mask`: which
    tokens are trained.
    """

    @checked
    def __init__(
        self,
        tokenizer: TokenizerSource,
        *,
        column: str = "text",
        messages: str | None = None,
        chat: Mapping[str, Any] | None = None,
        output: str = "input_ids",
        add_special_tokens: bool = False,
        max_length: int | None = None,
        overflow: Literal["cut", "rows"] = "cut",
        stride: int = 0,
        truncation_side: Literal["right", "left"] = "right",
        pad_to: int | None = None,
        padding_side: Literal["right", "left"] = "right",
        oov: Literal["word", "contain", "char", "byte"] | None = None,
        with_counts: bool = True,
        as_numpy: bool = False,
    ) -> None:
        """Makes the step.

        Args:
          tokenizer: see `TokenizerSource`. Truncation and padding in its file are ignored.
          column: the field with the text.
          messages: the field with the messages, instead of `column`; a conversation that cannot be trained on fails.
          chat: with `messages`: the section `chat` of a config. A template is needed if none is beside the tokenizer.
          output: the field for the ids.
          add_special_tokens: frame every row as the tokenizer's template says.
          max_length: at most this many tokens a row, special tokens included; None: no limit.
          overflow: `cut` drops the tokens beyond `max_length`, `rows` puts them into further rows.
          stride: for `rows`, how many tokens neighbouring rows have in common.
          truncation_side: the end that is cut off.
          pad_to: shorter rows are padded to this many tokens, longer ones cannot be used; None: no padding.
          padding_side: the end that is padded.
          oov: how a word with unknown characters is encoded, as `tokenizer.oov` of a config; WordPiece only.
          with_counts: add `n_tokens` and `n_oov`.
          as_numpy: ids of a row are a NumPy array instead of a list; this halves the time. Beam's schemas have no type
            for arrays: `WriteToParquet` needs a `schema` then, and dicts; without it, it refuses "logical types".

        Raises:
          OSError: if the tokenizer cannot be read.
          ValueError: if it is not a tokenizer, or cannot do what the arguments ask for; the message says which.
        """
        options = _options(oov, max_length, overflow, stride, truncation_side, pad_to, padding_side)
        rows = _Rows(output, with_counts, options.has_windows, messages is not None, as_numpy)
        if messages is not None and (add_special_tokens or options.has_windows):
            raise ValueError("Tokenize: messages take no add_special_tokens, no overflow: a template is whole")
        if messages is None and chat is not None:
            raise ValueError("Tokenize: chat is for conversations; give messages, the field that has them")
        given = GivenTokenizer(tokenizer, options)
        if messages is None:
            prepare = functools.partial(_tokenize, given, rows, add_special_tokens)
            display: dict[str, Any] = {"add_special_tokens": add_special_tokens, "as_numpy": as_numpy}
        else:
            conversations = section_of(chat or {}, tokenizer, "Tokenize")
            prepare = functools.partial(_tokenize_chat, given, rows, conversations)
            display = {"chat": conversations.model_dump_json(exclude_defaults=True)}
        reads = Field(column, pa.string()) if messages is None else Field(messages, None)
        super().__init__(Work([reads], prepare, rows.fields), given.side_input, **given.display_data(), **display)


def _options(
    oov: Any, max_length: int | None, overflow: Any, stride: int, side: Any, pad_to: int | None, padding_side: Any
) -> TokenizerConfig:
    """Returns the options of a tokenizer; raises ValueError for arguments that have no effect, or none in a step."""
    limits: dict[str, Any] | None = None
    padding: dict[str, Any] | None = None
    if max_length is not None:
        limits = {"max_length": max_length, "side": side, "overflow": overflow, "stride": stride}
    elif (overflow, stride, side) != ("cut", 0, "right"):
        raise ValueError("Tokenize: overflow, stride and truncation_side are for rows that max_length limits; give it")
    if pad_to is not None:
        padding = {"length": pad_to, "side": padding_side}
    elif padding_side != "right":
        raise ValueError("Tokenize: padding_side is for rows that are padded; give pad_to")
    return section(TokenizerConfig, "tokenizer", {"oov": oov, "truncation": limits, "padding": padding}, "Tokenize")


@dataclasses.dataclass(frozen=True)
class _Rows:
    """What `Tokenize` makes of tokens."""

    output: str
    with_counts: bool
    has_windows: bool
    has_masks: bool
    as_numpy: bool

    def __post_init__(self) -> None:
        others = [name for name in dataclasses.replace(self, output="").fields if name] if self.output else []
        if self.output in others:
            raise ValueError(
                f"Tokenize: output {self.output!r} is the name of another field that it makes; choose another"
            )

    @property
    def fields(self) -> dict[str, Any]:
        """The new fields and their types; the first is that of the ids."""
        ids, mask = (np.ndarray, np.ndarray) if self.as_numpy else (Sequence[np.int32], Sequence[bool])
        masks = {"loss_mask": mask} if self.has_masks else {}
        counts = {"n_tokens": np.int32, "n_oov": np.int32} if self.with_counts else {}
        return {self.output: ids, **masks, **counts, **({"window": np.int32} if self.has_windows else {})}

    def prepare(self, tokenizer: Tokenizer, layout: Layout) -> Callable[..., Computed]:
        """Returns the function that lays out bare tokens of texts, large_list<int32>, which may have loss masks."""
        _check_fits(layout, has_windows=self.has_windows)
        # One Python int per id, made in advance: looking one up takes a third of the time of making it.
        objects = np.array(range(tokenizer.n_ids), dtype=object)

        def compute(bare: pa.LargeListArray, masks: pa.LargeListArray | None = None) -> Computed:
            ids, counts, sources = _lay_out(tokenizer, layout, bare, has_windows=self.has_windows)
            columns = {self.output: ids, **({"loss_mask": masks} if masks is not None else {})}
            columns |= {name: pa.array(each) for name, each in counts.items() if name in self.fields}

            def values(name: str) -> Sequence[Any]:
                if name != self.output and name != "loss_mask":
                    return counts[name].tolist()
                flat, offsets = columns[name].values, columns[name].offsets.to_numpy().tolist()
                numbers = flat.to_numpy(zero_copy_only=False)
                if not self.as_numpy:
                    numbers = (objects[numbers] if name == self.output else numbers).tolist()
                return [numbers[start:stop] for start, stop in itertools.pairwise(offsets)]

            return Computed(columns, values, sources, functools.partial(_report, counts))

        return compute


def _tokenize(of: GivenTokenizer, rows: _Rows, add_special_tokens: bool, given: Any) -> Compute:
    tokenizer = of.tokenizer(given)
    lay_out = rows.prepare(tokenizer, tokenizer.layout(add_special_tokens))
    return lambda texts: lay_out(tokenizer.encode_bare(texts))


def _tokenize_chat(of: GivenTokenizer, rows: _Rows, chat: ChatConfig, given: Any) -> Compute:
    tokenizer = of.tokenizer(given)
    layout = tokenizer.layout(False)
    texts, lay_out = ChatTexts.of_section(chat, FIELD, tokenizer), rows.prepare(tokenizer, layout)
    texts.check()

    def compute(column: Any) -> Computed:
        made = texts.encode(records_of(column), layout)
        cut = "none of its trained tokens is left once the row is cut to max_length"
        failed: dict[int, Exception] = {
            row: ConversationError("nothing_trained", cut) for row in made.too_long.to_pylist()
        }
        for reason, its, details in made.rejects:
            pairs = zip(its.to_pylist(), details.to_pylist(), strict=True)
            failed |= {row: ConversationError(reason, detail) for row, detail in pairs}
        if failed:
            raise RowsError(failed)
        return lay_out(made.ids, made.masks)

    return compute


def _report(counts: Mapping[str, np.ndarray]) -> None:
    """Adds the counts of rows, int32[n] each, to the metrics of `Tokenize`."""
    Metrics.counter(Tokenize, "tokens-out").inc(int(counts["n_tokens"].sum()))
    Metrics.counter(Tokenize, "tokens-unknown").inc(int(counts["n_oov"].sum()))
    lengths = Metrics.distribution(Tokenize, "tokens-per-row")
    for n in counts["n_tokens"].tolist():
        lengths.update(n)


def _lay_out(
    tokenizer: Tokenizer, layout: Layout, bare: pa.LargeListArray, *, has_windows: bool
) -> tuple[pa.LargeListArray, dict[str, np.ndarray], np.ndarray | None]:
    """Returns the ids of rows, the counts by name, each int32[n_rows], and the index of the text of each row.

    The last is int64[n_rows] where a text may have several rows (`has_windows`), else None.
    """
    lengths = np.diff(bare.offsets.to_numpy())
    sources, counts = None, {}
    if has_windows:
        form = windows_form(layout, Marks(tuple(layout.before.tolist()), after=tuple(layout.after.tolist())))
        placement = place(lengths, form)
        at = measure(placement, form)
        ids, offsets = ragged(bare)
        rows = as_lists(gather_ids(ids, offsets, placement, at, form, copy_rows), at.offsets)
        kept, sources = placement.sizes, placement.documents
        counts["window"] = placed_columns(["window"], placement, at, form)["window"].to_numpy()
    else:
        kept = layout.kept(lengths)
        if layout.padding is not None:
            _check_padded(kept + layout.n_around, layout.padding.target(0))
        rows = layout.apply(bare)
    starts, stops = layout.spans(rows, kept)
    unknown = -1 if tokenizer.unk_token_id is None else tokenizer.unk_token_id
    n_before = np.concatenate(([0], np.cumsum(rows.values.to_numpy() == unknown)))
    n_oov = n_before[stops] - n_before[starts]
    n_oov -= np.count_nonzero(layout.before == unknown) + np.count_nonzero(layout.after == unknown)
    counts = {"n_tokens": stops - starts, "n_oov": n_oov, **counts}
    return rows, {name: numbers.astype(np.int32) for name, numbers in counts.items()}, sources


def _check_fits(layout: Layout, *, has_windows: bool) -> None:
    """Raises ValueError if not even a text without a token fits between the tokens around it."""
    nothing = np.zeros(1, np.int64)
    if has_windows:
        layout.windows(nothing)
    elif layout.padding is not None:
        _check_padded(layout.kept(nothing) + layout.n_around, layout.padding.target(0))
    layout.kept(nothing)


def _check_padded(n_tokens: np.ndarray, target: int) -> None:
    """Raises RowsError for rows that are longer than rows are padded to."""
    too_long = np.flatnonzero(n_tokens > target)
    if too_long.size:
        message = "a row has {} tokens, more than pad_to {}; raise it, or give max_length"
        pairs = zip(too_long.tolist(), n_tokens[too_long].tolist(), strict=True)
        raise RowsError({row: ValueError(message.format(n, target)) for row, n in pairs})


class Detokenize(RowTransform):
    """Turns ids into texts.

    Input: rows with a list of ids, or batches. Output: the same with `output`. The text is that of `Tokenizer.decode`.
    """

    @checked
    def __init__(
        self,
        tokenizer: TokenizerSource,
        *,
        column: str = "input_ids",
        output: str = "text",
        skip_special_tokens: bool = True,
    ) -> None:
        """Makes the step.

        Args:
          tokenizer: see `TokenizerSource`.
          column: the field with the ids.
          output: the field for the text.
          skip_special_tokens: leave special tokens, padding among them, out of the text.

        Raises:
          OSError, ValueError: as `Tokenize`.
        """
        given = GivenTokenizer(tokenizer)
        prepare = functools.partial(_detokenize, given, output, skip_special_tokens)
        display = {**given.display_data(), "skip_special_tokens": skip_special_tokens}
        super().__init__(Work([Field(column, IDS)], prepare, {output: str}), given.side_input, **display)


def _detokenize(of: GivenTokenizer, output: str, skip_special_tokens: bool, given: Any) -> Compute:
    tokenizer = of.tokenizer(given)

    def compute(ids: pa.Array) -> Computed:
        of.check_ids(given, ids)
        return Computed({output: tokenizer.decode_arrow(ids, skip_special_tokens)})

    return compute
