# SPDX-License-Identifier: Apache-2.0
"""Conversations: each record is rendered by the chat template, tokenized once, and told what of it is trained."""

import dataclasses
import datetime
import functools
import itertools
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tokenmill.pipeline import schemas
from tokenmill.pipeline.books.ledger import LOST
from tokenmill.pipeline.config.job import Config
from tokenmill.pipeline.config.text import ChatConfig
from tokenmill.tokenizer import Layout, Tokenizer, unchecked_text_rows
from tokenmill.tokenizer.chat.check import TOOL, check_masks
from tokenmill.tokenizer.chat.conversations import (
    REASONING,
    ROLES,
    Conversation,
    ConversationError,
    Reading,
    has_text,
    read_conversation,
)
from tokenmill.tokenizer.chat.masks import TokenMask, mask_tokens, weigh_tokens
from tokenmill.tokenizer.chat.spans import Marked, Marker, TrainingRule
from tokenmill.tokenizer.chat.templates import ChatTemplate

_TOKENS_OF = (*(f"{role}_tokens" for role in ROLES), "template_tokens")
COUNTS = (
    *("turns", "trained_tokens", "straddling_tokens", "unrendered_messages", "shared_messages"),
    *("marked_tokens", "cut_tokens", "first_tokens", "text_arguments"),
    *("rejected_tokens", *_TOKENS_OF),
)
"""Counts of conversations, before rows are packed; those of several splits can be added up: `marked_tokens` are to be
trained, `cut_tokens` of them truncation removes, `first_tokens` begin a row, and `trained_tokens` are the others."""
_FIRST = "its only trained token begins the row, where nothing predicts it"
_MOST_LOST, _LONGEST = 100, 100
"""How many names a batch may count, and how many characters of each."""
_SURROGATE = re.compile("[\ud800-\udfff]")

Field = tuple[str, int]
"""A field of a message, as (name, message), or of the record, as (name, -1)."""
_Counts = npt.NDArray[np.int64]
_Reject = tuple[str, int, str]
"""A reason, a row, and details."""
_BAD_MASK = (
    "chat.on_bad_mask: what is trained of made-up conversations is wrong; `tokenmill chat check` shows it; mend the "
    "template or the section chat, or set chat.on_bad_mask: warn to train on it all the same"
)


class Encoded(NamedTuple):
    """The conversations of a batch."""

    texts: pa.StringArray
    """The rendered texts."""
    ids: pa.LargeListArray
    """Their tokens; int32."""
    masks: pa.LargeListArray
    """`schemas.LOSS_MASK` of the rows that the layout makes of them."""
    rows: pa.Array
    """int64[n]: the rows of the batch that these are."""
    rejects: list[tuple[str, pa.Array, pa.StringArray]]
    """For each reason the rows of the batch that are rejected, and details."""
    too_long: pa.Array
    """int64[k]: the rows of the batch that are longer than a row, and so left out, or have no trained token left."""
    counts: Counter[str]
    """`COUNTS`."""
    more: Mapping[str, pa.Array] = MappingProxyType({})
    """Columns of `schemas.MADE`."""

    def complete(self, documents: pa.RecordBatch) -> pa.RecordBatch:
        """Returns the documents of these, from a batch that has all, with `more`."""
        documents = documents.take(self.rows)
        if not self.more:
            return documents
        at, kept = documents.schema.get_field_index(schemas.FIELDS), documents.column(schemas.FIELDS)
        columns = [self.more[f.name].cast(f.type) if f.name in self.more else kept.field(f.name) for f in kept.type]
        made = pa.StructArray.from_arrays(columns, fields=list(kept.type))
        return documents.set_column(at, documents.schema.field(at), made)


class _Good(NamedTuple):
    """A conversation that can be trained on."""

    row: int
    conversation: Conversation
    marked: Marked
    lost: list[Field]
    """Fields of which the text shows nothing."""


class ChatTexts:
    """Renders and encodes conversations."""

    def __init__(
        self, tokenizer: Tokenizer, markers: Sequence[Marker], field: str, chat: ChatConfig, reading: Reading
    ) -> None:
        """Takes the parts that `of` makes of a config; the last marker is for records with tools."""
        self.tokenizer = tokenizer
        self._marker, self._tool_marker = markers[0], markers[-1]
        self._field = field
        self._chat = chat
        self._reading = reading

    @classmethod
    def of(cls, config: Config, tokenizer: Tokenizer) -> Self:
        """Makes one for a config that `load_config` returned, which has the template itself."""
        assert config.chat is not None, "load_config puts it there"
        assert config.input.messages_field is not None
        used = [config.input.id_field or "", *config.input.keep_fields]
        known = frozenset(part for name in used for part in (name, name.split(".")[0]))
        reading = Reading(config.input.chat_fields, config.input.chat_roles, known)
        return cls.of_section(config.chat, config.input.messages_field, tokenizer, reading)

    @classmethod
    def of_section(cls, chat: ChatConfig, field: str, tokenizer: Tokenizer, reading: Reading = Reading()) -> Self:  # noqa: B008 - immutable
        """Makes one for a section with the template itself, and records with messages in `field`."""
        reading = reading._replace(parse_arguments=chat.parse_arguments, has_weights=chat.weights)
        tokens = tuple(sorted(chat.special_tokens.items()))
        sources = _sources(chat).values()
        opened = [_opened(tokenizer, source, tokens, chat.date, rule_of(chat)) for source in sources]
        return cls(opened[0][0], [marker for _, marker in opened], field, chat, reading)

    def check(self) -> list[str]:
        """Returns warnings of what is trained of made-up conversations.

        Raises:
          ValueError: if it is wrong, and `chat.on_bad_mask` is `fail`.
        """
        chat, wrong = self._chat, []
        for (key, _, given), marker in zip(templates_of(chat), (self._marker, self._tool_marker), strict=False):
            found = check_masks(marker, given, chat.end_tokens or ())
            wrong += [f"chat.{key}: {each.name}: {each.detail}" for each in found if each.level == "bad"]
        if wrong and chat.on_bad_mask == "fail":
            raise ValueError("\n".join([*wrong, _BAD_MASK]))
        return wrong

    def mark(self, record: str | Mapping[str, Any]) -> tuple[Conversation, Marked]:
        """Returns the conversation of a record, which may be in JSON, and its text with what of it is trained.

        Raises:
          ConversationError: if it cannot be trained on.
        """
        conversation = self._read(record, self._field)
        return conversation, self._marker_of(conversation).mark(conversation)

    def _read(self, record: str | Mapping[str, Any], field: str) -> Conversation:
        try:
            record = json.loads(record) if isinstance(record, str) else record
        except ValueError as error:  # a number that the reader takes, and Python does not: it has 4,300 digits
            raise ConversationError("not_a_conversation", str(error)[:200]) from None
        conversation = read_conversation(record, field, self._reading)
        return conversation._replace(arguments={**self._chat.arguments, **conversation.arguments})

    def _marker_of(self, conversation: Conversation) -> Marker:
        return self._marker if conversation.arguments.get("tools") is None else self._tool_marker

    def encode(
        self, records: Iterable[str | Mapping[str, Any]], layout: Layout, tally: Any = None, *, whole: bool = False
    ) -> Encoded:
        """Renders and encodes records, and finds their trained tokens.

        Args:
          records: objects, or JSON of them.
          layout: how tokens become rows; a conversation of whose row no token is trained gives none.
          tally: as for `Tokenizer.encode_bare`.
          whole: whether conversations that the layout would cut are left out.
        """
        if not self._chat.pairs:
            return self._encode(records, layout, self._field, tally, whole=whole)
        records = list(records)
        other = self._encode(records, layout, "rejected", whole=whole)
        made = self._encode([records[i] for i in other.rows.to_pylist()], layout, self._field, tally, whole=whole)
        ids, masks = (column.take(made.rows) for column in (layout.apply(other.ids), other.masks))
        return made._replace(
            rows=other.rows.take(made.rows),
            rejects=[*other.rejects, *((why, other.rows.take(its), said) for why, its, said in made.rejects)],
            too_long=pa.concat_arrays([other.too_long, other.rows.take(made.too_long)]),
            counts=made.counts + Counter(rejected_tokens=len(ids.flatten())),
            more={**made.more, "rejected_ids": ids, "rejected_mask": masks},
        )

    def _encode(
        self, records: Iterable[str | Mapping[str, Any]], layout: Layout, field: str, tally: Any = None, *, whole: bool
    ) -> Encoded:
        good, rejects = self._render(records, field)
        texts = pa.array([each.marked.text for each in good], pa.string())
        ids = self.tokenizer.encode_bare(unchecked_text_rows(texts), tally)
        mask = self._mask(texts, ids, good)
        masks, n_marked, n_kept, n_trained = _lay_out(ids.offsets, mask.trained, layout)
        smuggled = self._smuggled(texts, ids, good)
        lengths = np.diff(ids.offsets.to_numpy())
        is_cut = layout.kept(lengths) < lengths
        n_trained[is_cut & whole] = 0
        n_trained[[*smuggled]] = 0
        is_kept = n_trained > 0
        too_long: list[int] = []
        for i in np.flatnonzero(~is_kept).tolist():
            if i not in smuggled and is_cut[i]:
                too_long.append(good[i].row)
            else:
                why = ("special_token_in_content", smuggled[i]) if i in smuggled else ("nothing_trained", _FIRST)
                rejects.append((why[0], good[i].row, why[1]))
        if not is_kept.all():
            texts, ids, masks = (column.filter(pa.array(is_kept)) for column in (texts, ids, masks))
            good = [good[i] for i in np.flatnonzero(is_kept)]
            mask = self._mask(texts, ids, good)
        lost = Counter(LOST + _shortened(name) for each in good for name, _ in each.lost)
        counts = Counter(
            turns=sum(each.marked.n_turns for each in good),
            marked_tokens=int(n_marked[is_kept].sum()),
            cut_tokens=int((n_marked - n_kept)[is_kept].sum()),
            first_tokens=int((n_kept - n_trained)[is_kept].sum()),
            trained_tokens=int(n_trained.sum()),
            straddling_tokens=mask.n_straddling,
            unrendered_messages=sum(each.marked.n_unrendered for each in good),
            shared_messages=sum(each.conversation.n_shared for each in good),
            text_arguments=sum(each.conversation.n_text_arguments for each in good),
            **dict(zip(_TOKENS_OF, mask.by_source.tolist(), strict=True)),
            **dict(lost.most_common(_MOST_LOST)),
        )
        details = []
        for reason, group in itertools.groupby(sorted(rejects), key=lambda reject: reject[0]):
            _, its, said = zip(*group, strict=True)
            details.append((reason, pa.array(its, pa.int64()), pa.array(said, pa.string())))
        rows = pa.array([each.row for each in good], pa.int64())
        more = {"loss_weights": self._weights(texts, ids, masks, good, layout)} if self._chat.weights else {}
        return Encoded(texts, ids, masks, rows, details, pa.array(too_long, pa.int64()), counts, more)

    def _render(self, records: Iterable[str | Mapping[str, Any]], field: str) -> tuple[list[_Good], list[_Reject]]:
        """Returns the conversations of records that can be trained on, in order, and the other records."""
        rejects: list[_Reject] = []
        read: dict[Marker, list[tuple[int, Conversation]]] = {self._marker: [], self._tool_marker: []}
        for row, record in enumerate(records):
            try:
                conversation = self._read(record, field)
                read[self._marker_of(conversation)].append((row, conversation))
            except ConversationError as error:
                rejects.append((error.reason, row, error.detail))
        good: list[_Good] = []
        for marker, its in read.items():
            made: list[_Good] = []
            for (row, conversation), marked in zip(its, marker.mark_all([each for _, each in its]), strict=True):
                if isinstance(marked, ConversationError):
                    rejects.append((marked.reason, row, marked.detail))
                else:
                    made.append(_Good(row, conversation, marked, []))
            for each, lost in zip(made, self._find_lost(marker.template, made), strict=True):
                lost += [(name, -1) for name in each.conversation.unused]
                missed = next((place for place in lost if place[0] in self._chat.must_show), None)
                if missed is not None:
                    where = f"message {missed[1]}" if missed[1] >= 0 else "the record"
                    detail = f"the template shows nothing of {missed[0]} of {where}"
                    rejects.append(("turn_not_shown", each.row, detail))
                elif _SURROGATE.search(each.marked.text):
                    rejects.append(("lone_surrogate", each.row, "a message holds half of a surrogate pair"))
                else:
                    good.append(each._replace(lost=lost))
        return sorted(good, key=lambda each: each.row), rejects

    @staticmethod
    def _find_lost(template: ChatTemplate, good: Sequence[_Good]) -> list[list[Field]]:
        """Returns for each conversation the fields without which its text is the same."""
        lost: list[list[Field]] = [[] for _ in good]
        left = [(k, fields) for k, each in enumerate(good) if (fields := _doubtful(each))]
        while left:  # at first all of a conversation, then halves of those that its text depends on
            texts = template.render_all([_without(good[k].conversation, fields) for k, fields in left])
            halves = []
            for (k, fields), text in zip(left, texts, strict=True):
                if text == good[k].marked.text:
                    lost[k] += fields
                elif len(fields) > 1:
                    halves += [(k, fields[: len(fields) // 2]), (k, fields[len(fields) // 2 :])]
            left = halves
        return lost

    def _weights(
        self, texts: pa.Array, ids: pa.LargeListArray, masks: pa.LargeListArray, good: Sequence[_Good], layout: Layout
    ) -> pa.LargeListArray:
        """Returns `loss_weights` of `schemas.MADE` for the rows that the layout makes of texts."""
        weights = weigh_tokens(self.tokenizer, texts, ids, [_steps(each) for each in good])
        as_ids = pa.LargeListArray.from_arrays(ids.offsets, pa.array(weights.view(np.int32)))
        laid = _plain_layout(layout).apply(as_ids)
        values = np.where(masks.values.to_numpy(zero_copy_only=False), laid.values.to_numpy().view(np.float32), 0)
        return pa.LargeListArray.from_arrays(masks.offsets, pa.array(values, pa.float32()))

    def _mask(self, texts: pa.Array, ids: pa.LargeListArray, good: Sequence[_Good]) -> TokenMask:
        sources = [
            [(a, b, ROLES.index(each.conversation.messages[i]["role"])) for a, b, i in each.marked.messages]
            for each in good
        ]
        return mask_tokens(self.tokenizer, texts, ids, [each.marked.spans for each in good], sources, len(ROLES))

    def _smuggled(self, texts: pa.StringArray, ids: pa.LargeListArray, good: Sequence[_Good]) -> dict[int, str]:
        """Returns details of the rows in which the normalizer makes a special token of a text of the record.

        The marker looks for special tokens before texts are normalized, when `<|ｉm_end|>` is none yet. A token that is
        in no message, and not in `others`, the tools and documents of the record, is the template's own.
        """
        special = {
            token.id: token.content
            for token in self.tokenizer.added_tokens
            if token.normalized and token.content in self._marker.special_tokens
        }
        if self.tokenizer.normalizer is None or not special:
            return {}
        is_special = np.isin(ids.values.to_numpy(), [*special])
        starts, stops = self.tokenizer.token_offsets(texts, ids)
        found = {}
        for row, (first, last) in enumerate(itertools.pairwise(ids.offsets.to_numpy())):
            places = first + np.flatnonzero(is_special[first:last])
            marked = good[row].marked
            raw = np.frombuffer(marked.text.encode(), np.uint8)
            characters = np.append(0, np.cumsum(raw & 0xC0 != 0x80))
            begins, ends = characters[starts[places]], characters[stops[places]]
            first_of, last_of, _ = np.array(marked.messages or [(0, 0, 0)]).T
            n_messages = np.searchsorted(np.sort(first_of), ends) - np.searchsorted(np.sort(last_of), begins, "right")
            other = json.dumps(good[row].conversation.arguments, ensure_ascii=False, default=str)
            for place, begin, end, n in zip(places.tolist(), begins, ends, n_messages, strict=True):
                content, spelled = special[ids.values[place].as_py()], marked.text[begin:end]
                if content not in spelled and (n > 0 or (spelled.strip() and spelled.strip() in other)):
                    found[row] = f"the normalizer makes {content!r} of {spelled!r}"
        return found


def _lay_out(
    offsets: pa.Int64Array, is_marked: npt.NDArray[np.bool_], layout: Layout
) -> tuple[pa.LargeListArray, _Counts, _Counts, _Counts]:
    """Returns `schemas.LOSS_MASK` of rows, and int64[n] of each: tokens marked, those that are kept, those trained."""
    marked = pa.LargeListArray.from_arrays(offsets, pa.array(is_marked.astype(np.int32)))
    rows = _plain_layout(layout).apply(marked)
    values = rows.values.to_numpy().astype(np.bool_)
    starts, stops = layout.spans(rows, layout.kept(np.diff(offsets.to_numpy())))
    n_kept = _sums(values, rows.offsets)
    values[starts[starts < stops]] = False
    masks = pa.LargeListArray.from_arrays(rows.offsets, pa.array(values), type=schemas.LOSS_MASK.type)
    return masks, _sums(is_marked, offsets), n_kept, _sums(values, rows.offsets)


def _plain_layout(layout: Layout) -> Layout:
    """Returns a layout that pads with zeros."""
    padding = None if layout.padding is None else dataclasses.replace(layout.padding, pad_id=0)
    return dataclasses.replace(layout, padding=padding)


def _doubtful(good: _Good) -> list[Field]:
    """Returns the fields of which the text has left no trace, in order; it may depend on them all the same."""
    conversation, shown = good.conversation, good.marked.shown
    found = [
        (name, i)
        for i, message in enumerate(conversation.messages)
        for name, value in message.items()
        if (has_text(value) if name == "content" else value and name != "role")
        and (i, "reasoning" if name in REASONING else name) not in shown
    ]
    return sorted([*found, *((name, -1) for name in ("tools", "documents") if conversation.arguments.get(name))])


def _without(conversation: Conversation, fields: Iterable[Field]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Returns the messages and arguments of a conversation without fields."""
    gone = {*fields}
    left = [{k: v for k, v in each.items() if (k, i) not in gone} for i, each in enumerate(conversation.messages)]
    left = [message if "content" in message else {**message, "content": ""} for message in left]
    return left, {k: v for k, v in conversation.arguments.items() if (k, -1) not in gone}


def _steps(good: _Good) -> list[tuple[int, float]]:
    """Returns the weights of a text, as (character, weight): in each span that of the message that is last begun."""
    weights = good.conversation.weights
    if not weights:
        return []
    steps, messages = [], good.marked.messages
    for start, stop in good.marked.spans:
        its = [(at, message) for at, _, message in messages if start <= at < stop]
        before = [message for at, end, message in messages if at < start < end]
        first = [message for _, message in its[:1]] if not before else before[-1:]
        steps += [(start, weights.get(message, 1.0)) for message in first]
        steps += [(at, weights.get(message, 1.0)) for at, message in its]
    return steps


def _shortened(name: str) -> str:
    """Returns the name of a field as it is counted: a record may have any."""
    return name[:_LONGEST].encode("utf-8", "backslashreplace").decode()


def with_made(fields: pa.Schema, chat: ChatConfig) -> pa.Schema:
    """Returns the fields that go with documents: kept ones, and those of `schemas.MADE` that a config asks for."""
    names = [*(["loss_weights"] if chat.weights else []), *(["rejected_ids", "rejected_mask"] if chat.pairs else [])]
    return pa.schema([*fields, *(schemas.MADE.field(name) for name in names)])


def _sums(values: npt.NDArray[np.bool_], offsets: pa.Int64Array) -> _Counts:
    return np.diff(np.concatenate(([0], np.cumsum(values, dtype=np.int64)))[offsets.to_numpy()])


@functools.lru_cache(maxsize=16)
def _opened(
    tokenizer: Tokenizer, source: str, tokens: tuple[tuple[str, str], ...], date: str | None, rule: TrainingRule
) -> tuple[Tokenizer, Marker]:
    """Returns a tokenizer that takes the text of special tokens for these, and what renders conversations for it."""
    added = [token.content for token in tokenizer.added_tokens]
    special = [token.content for token in tokenizer.added_tokens if token.special]
    bare = tokenizer.replace(special="split")
    bare.no_truncation()
    bare.no_padding()
    return bare, Marker(_template(source, tokens, date), special, rule, added)


def rule_of(chat: ChatConfig) -> TrainingRule:
    """Returns what a section trains."""
    train = tuple(chat.train) if isinstance(chat.train, list) else chat.train
    return TrainingRule(train, thinking=chat.thinking, tool_calls=chat.tool_calls, stop=chat.stop)


def _sources(chat: ChatConfig) -> dict[str, str]:
    """Returns the templates of a section that has them itself, by their keys."""
    assert chat.template is not None
    is_one = chat.tool_template in (None, chat.template)
    return {"template": chat.template, **({} if is_one else {"tool_template": str(chat.tool_template)})}


def open_template(chat: ChatConfig, *, has_tools: bool = False) -> ChatTemplate:
    """Returns the template of a section that has it itself: that for records with tools, if there is one."""
    source = [*_sources(chat).values()][-has_tools]
    return _template(source, chat.special_tokens.items(), chat.date)


def templates_of(chat: ChatConfig) -> Iterator[tuple[str, ChatTemplate, Mapping[str, Any]]]:
    """Yields for each template of a section that has them itself its key, it, and what it is checked with."""
    for key in _sources(chat):
        has_tools = key == "tool_template"
        more = {"tools": [TOOL]} if has_tools else {}
        yield key, open_template(chat, has_tools=has_tools), {**chat.arguments, **more}


def _template(source: str, tokens: Iterable[tuple[str, str]], date: str | None) -> ChatTemplate:
    return ChatTemplate(source, dict(tokens), None if date is None else datetime.date.fromisoformat(date))
