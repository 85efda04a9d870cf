# SPDX-License-Identifier: Apache-2.0
"""Conversations: each record is rendered by the chat template, tokenized once, and told what of it is trained."""

import dataclasses
import datetime
import functools
import itertools
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tokenmill.pipeline import schemas
from tokenmill.pipeline.config.chat import ChatConfig
from tokenmill.pipeline.config.job import Config
from tokenmill.tokenizer import Layout, Tokenizer, unchecked_text_rows
from tokenmill.tokenizer.chat.conversations import ROLES, Conversation, ConversationError, read_conversation
from tokenmill.tokenizer.chat.made_up import check_masks
from tokenmill.tokenizer.chat.masks import mask_tokens
from tokenmill.tokenizer.chat.spans import Marked, Marker, TrainingRule
from tokenmill.tokenizer.chat.templates import ChatTemplate

_TOKENS_OF = (*(f"{role}_tokens" for role in ROLES), "template_tokens")
COUNTS = (
    *("turns", "trained_tokens", "straddling_tokens", "unrendered_messages", "shared_messages"),
    *("marked_tokens", "cut_tokens", "first_tokens", *_TOKENS_OF),
)
"""Counts of conversations, before rows are packed; those of several splits can be added up: `marked_tokens` are to be
trained, `cut_tokens` of them truncation removes, `first_tokens` begin a row, and `trained_tokens` are the others."""

_Counts = npt.NDArray[np.int64]
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


class ChatTexts:
    """Renders and encodes conversations."""

    def __init__(self, tokenizer: Tokenizer, marker: Marker, field: str, arguments: dict[str, Any]) -> None:
        """Takes the parts that `of` makes of a config."""
        self.tokenizer = tokenizer
        self._marker = marker
        self._field = field
        self._arguments = arguments

    @classmethod
    def of(cls, config: Config, tokenizer: Tokenizer) -> Self:
        """Makes one for a config that `load_config` returned, which has the template itself."""
        assert config.chat is not None, "load_config puts it there"
        assert config.input.messages_field is not None
        return cls.of_section(config.chat, config.input.messages_field, tokenizer)

    @classmethod
    def of_section(cls, chat: ChatConfig, field: str, tokenizer: Tokenizer) -> Self:
        """Makes one for a section with the template itself, and records with messages in `field`."""
        assert chat.template is not None
        tokens = tuple(sorted(chat.special_tokens.items()))
        return cls(*_opened(tokenizer, chat.template, tokens, chat.date, rule_of(chat)), field, dict(chat.arguments))

    def check(self, chat: ChatConfig) -> list[str]:
        """Returns warnings of what is trained of made-up conversations.

        Args:
          chat: the section.

        Raises:
          ValueError: if it is wrong, and `chat.on_bad_mask` is `fail`.
        """
        found = check_masks(self._marker, self._arguments, chat.end_tokens or ())
        wrong = [f"chat.template: {each.name}: {each.detail}" for each in found if each.level == "bad"]
        if wrong and chat.on_bad_mask == "fail":
            raise ValueError("\n".join([*wrong, _BAD_MASK]))
        return wrong

    def mark(self, record: str | Mapping[str, Any]) -> tuple[Conversation, Marked]:
        """Returns the conversation of a record, which may be in JSON, and its text with what of it is trained.

        Raises:
          ConversationError: if it cannot be trained on. ValueError: if Python does not read the JSON.
        """
        conversation = self._read(record)
        return conversation, self._marker.mark(conversation)

    def _read(self, record: str | Mapping[str, Any]) -> Conversation:
        record = json.loads(record) if isinstance(record, str) else record
        conversation = read_conversation(record, self._field)
        return conversation._replace(arguments={**self._arguments, **conversation.arguments})

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
        rejects: dict[str, list[tuple[int, str]]] = {}
        rows, marked, roles, shared, others = [], [], [], [], []
        read: list[tuple[int, Conversation]] = []
        for row, record in enumerate(records):
            try:
                read.append((row, self._read(record)))
            except ConversationError as error:
                rejects.setdefault(error.reason, []).append((row, error.detail))
            except ValueError as error:  # a number that the reader takes, and Python does not: it has 4,300 digits
                rejects.setdefault("not_a_conversation", []).append((row, str(error)[:200]))
        made = self._marker.mark_all([conversation for _, conversation in read])
        for (row, conversation), found in zip(read, made, strict=True):
            if isinstance(found, ConversationError):
                rejects.setdefault(found.reason, []).append((row, found.detail))
            elif not _is_encodable(found.text):
                rejects.setdefault("lone_surrogate", []).append((row, "a message holds half of a surrogate pair"))
            else:
                rows.append(row)
                marked.append(found)
                shared.append(conversation.n_shared)
                others.append(conversation.arguments)
                roles.append([ROLES.index(message["role"]) for message in conversation.messages])
        texts = pa.array([each.text for each in marked], pa.string())
        ids = self.tokenizer.encode_bare(unchecked_text_rows(texts), tally)
        sources = [
            [(start, stop, of[i]) for start, stop, i in each.messages] for each, of in zip(marked, roles, strict=True)
        ]
        mask = mask_tokens(self.tokenizer, texts, ids, [each.spans for each in marked], sources, len(ROLES))
        masks, n_marked, n_kept, n_trained = _lay_out(ids.offsets, mask.trained, layout)
        smuggled = self._smuggled(texts, ids, marked, others)
        lengths = np.diff(ids.offsets.to_numpy())
        is_cut = layout.kept(lengths) < lengths
        n_trained[is_cut & whole] = 0
        n_trained[[*smuggled]] = 0
        too_long: list[int] = []
        if lost := np.flatnonzero(n_trained == 0).tolist():
            for i in lost:
                if i in smuggled:
                    rejects.setdefault("special_token_in_content", []).append((rows[i], smuggled[i]))
                elif is_cut[i]:
                    too_long.append(rows[i])
                else:
                    rejects.setdefault("nothing_trained", []).append((rows[i], "only its first token would be trained"))
            kept = pa.array(n_trained > 0)
            texts, ids, masks = texts.filter(kept), ids.filter(kept), masks.filter(kept)
            left = np.flatnonzero(n_trained).tolist()
            rows, marked, sources = [rows[i] for i in left], [marked[i] for i in left], [sources[i] for i in left]
            shared = [shared[i] for i in left]
            mask = mask_tokens(self.tokenizer, texts, ids, [each.spans for each in marked], sources, len(ROLES))
        counts = Counter(
            turns=sum(each.n_turns for each in marked),
            marked_tokens=int(n_marked[n_trained > 0].sum()),
            cut_tokens=int((n_marked - n_kept)[n_trained > 0].sum()),
            first_tokens=int((n_kept - n_trained)[n_trained > 0].sum()),
            trained_tokens=int(n_trained.sum()),
            straddling_tokens=mask.n_straddling,
            unrendered_messages=sum(each.n_unrendered for each in marked),
            shared_messages=sum(shared),
            **dict(zip(_TOKENS_OF, mask.by_source.tolist(), strict=True)),
        )
        details = [
            (reason, pa.array([row for row, _ in each], pa.int64()), pa.array([text for _, text in each], pa.string()))
            for reason, each in sorted((reason, sorted(each)) for reason, each in rejects.items())
        ]
        return Encoded(texts, ids, masks, pa.array(rows, pa.int64()), details, pa.array(too_long, pa.int64()), counts)

    def _smuggled(
        self, texts: pa.StringArray, ids: pa.LargeListArray, marked: Sequence[Marked], others: Sequence[Any]
    ) -> dict[int, str]:
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
            raw = np.frombuffer(marked[row].text.encode(), np.uint8)
            characters = np.append(0, np.cumsum(raw & 0xC0 != 0x80))
            begins, ends = characters[starts[places]], characters[stops[places]]
            first_of, last_of, _ = np.array(marked[row].messages or [(0, 0, 0)]).T
            n_messages = np.searchsorted(np.sort(first_of), ends) - np.searchsorted(np.sort(last_of), begins, "right")
            other = json.dumps(others[row], ensure_ascii=False, default=str)
            for place, begin, end, n in zip(places.tolist(), begins, ends, n_messages, strict=True):
                content, spelled = special[ids.values[place].as_py()], marked[row].text[begin:end]
                if content not in spelled and (n > 0 or (spelled.strip() and spelled.strip() in other)):
                    found[row] = f"the normalizer makes {content!r} of {spelled!r}"
        return found


def _is_encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _lay_out(
    offsets: pa.Int64Array, is_marked: npt.NDArray[np.bool_], layout: Layout
) -> tuple[pa.LargeListArray, _Counts, _Counts, _Counts]:
    """Returns `schemas.LOSS_MASK` of rows, and int64[n] of each: tokens marked, those that are kept, those trained."""
    padding = None if layout.padding is None else dataclasses.replace(layout.padding, pad_id=0)
    marked = pa.LargeListArray.from_arrays(offsets, pa.array(is_marked.astype(np.int32)))
    rows = dataclasses.replace(layout, padding=padding).apply(marked)
    values = rows.values.to_numpy().astype(np.bool_)
    starts, stops = layout.spans(rows, layout.kept(np.diff(offsets.to_numpy())))
    n_kept = _sums(values, rows.offsets)
    values[starts[starts < stops]] = False
    masks = pa.LargeListArray.from_arrays(rows.offsets, pa.array(values), type=schemas.LOSS_MASK.type)
    return masks, _sums(is_marked, offsets), n_kept, _sums(values, rows.offsets)


def _sums(values: npt.NDArray[np.bool_], offsets: pa.Int64Array) -> _Counts:
    return np.diff(np.concatenate(([0], np.cumsum(values, dtype=np.int64)))[offsets.to_numpy()])


@functools.lru_cache(maxsize=16)
def _opened(
    tokenizer: Tokenizer, template: str, tokens: tuple[tuple[str, str], ...], date: str | None, rule: TrainingRule
) -> tuple[Tokenizer, Marker]:
    """Returns a tokenizer that takes the text of special tokens for these, and what renders conversations for it."""
    added = [token.content for token in tokenizer.added_tokens]
    special = [token.content for token in tokenizer.added_tokens if token.special]
    bare = tokenizer.replace(special="split")
    bare.no_truncation()
    bare.no_padding()
    return bare, Marker(_template(template, tokens, date), special, rule, added)


def rule_of(chat: ChatConfig) -> TrainingRule:
    """Returns what a section trains."""
    train = tuple(chat.train) if isinstance(chat.train, list) else chat.train
    return TrainingRule(train, thinking=chat.thinking, tool_calls=chat.tool_calls, stop=chat.stop)


def open_template(chat: ChatConfig) -> ChatTemplate:
    """Returns the template of a section that has it itself."""
    assert chat.template is not None
    return _template(chat.template, tuple(sorted(chat.special_tokens.items())), chat.date)


def _template(source: str, tokens: tuple[tuple[str, str], ...], date: str | None) -> ChatTemplate:
    return ChatTemplate(source, dict(tokens), None if date is None else datetime.date.fromisoformat(date))
