# SPDX-License-Identifier: Apache-2.0
"""Measures what is lost on the way from text to ids and back: in each step, in the whole chain, to the unknown token.

It is not a step of a job: it looks at every edit of the text steps in Python, and is meant for a sample.
"""

import dataclasses
import heapq
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tokenmill.tokenizer.core import Tokenizer
from tokenmill.tokenizer.errors import check_list, check_strings
from tokenmill.tokenizer.languages import script_name
from tokenmill.tokenizer.models.wordpiece import OOV_POLICIES, WordPiece
from tokenmill.tokenizer.normalizers.base import Edit, replaced
from tokenmill.tokenizer.ragged import Ragged, string_array, text_column, text_rows
from tokenmill.tokenizer.text import TextChain, TextStep, TextTokenizer

MAX_EXAMPLES = 5
"""The most examples of a group that a report keeps."""

_CONTEXT = 30
"""The most characters that an example shows on either side of the first difference."""


@dataclasses.dataclass(frozen=True)
class StepLoss:
    """What a step did to the characters of documents."""

    step: str
    n_chars: int
    """Characters before the step."""
    n_changed: int
    """Of these, characters that the step replaced or removed."""
    n_dropped: int
    """Of the changed ones, characters that the step removed without a replacement."""
    n_inserted: int
    """Characters that the step inserted, replacing nothing."""
    n_merged: int
    """Of the changed ones, characters that now look like something else in the text, so that nothing tells them apart:
    for example "é" become "e" in documents that also have an "e"."""
    merged: tuple[tuple[str, str, int], ...]
    """The most frequent of the merged: (text before, text after, how often)."""


def step_losses(chain: TextChain, texts: Iterable[str]) -> list[StepLoss]:
    """Measures each step of a chain on documents, each on the output of the step before.

    Memory: the documents and the distinct changes.
    """
    check_list("texts", texts)
    documents = list(texts)
    check_strings("texts", documents)
    losses = []
    for step, name in zip(chain.steps, chain.names(), strict=True):
        losses.append(_step_loss(step, name, documents))
        documents = [_replaced(step, text) for text in documents]
    return losses


def _replaced(step: TextStep, text: str) -> str:
    try:
        return replaced(text, step.edits(text))
    except TimeoutError:
        return ""


def _step_loss(step: TextStep, name: str, documents: Sequence[str]) -> StepLoss:
    pairs: Counter[tuple[str, str]] = Counter()
    kept: Counter[str] = Counter()
    n_inserted = 0
    for text in documents:
        try:
            edits = step.edits(text)
        except TimeoutError:
            edits = [Edit(0, len(text), "")]
        at = 0
        for start, stop, new in edits:
            kept.update(text[at:start])
            at = stop
            if start == stop:
                n_inserted += len(new)
            else:
                pairs[text[start:stop], new] += 1
        kept.update(text[at:])
    n_chars = sum(map(len, documents))
    became: dict[str, int] = {}
    for _, new in pairs:
        became[new] = became.get(new, 0) + 1
    # Two texts became one: another text became the same, or its characters were in the documents already.
    merged = {
        (old, new): n
        for (old, new), n in pairs.items()
        if new and (became[new] > 1 or (len(new) == 1 and kept[new]) or (len(new) > 1 and all(kept[c] for c in new)))
    }
    top = heapq.nsmallest(20, merged.items(), key=lambda item: (-item[1], item[0]))
    return StepLoss(
        name,
        n_chars,
        n_changed=sum(len(old) * n for (old, _), n in pairs.items()),
        n_dropped=sum(len(old) * n for (old, new), n in pairs.items() if not new),
        n_inserted=n_inserted,
        n_merged=sum(len(old) * n for (old, _), n in merged.items()),
        merged=tuple((old, new, n) for (old, new), n in top),
    )


@dataclasses.dataclass(frozen=True)
class RoundTrip:
    """How many documents of a group come back unchanged from their ids."""

    group: str
    n_documents: int = 0
    n_same: int = 0
    """Documents with decode(encode(x)) == x."""
    n_same_but_spaces: int = 0
    """Documents that come back unchanged but for white space; includes `n_same`."""
    examples: tuple[tuple[str, str], ...] = ()
    """The first documents that do not come back: input and output around the first difference."""

    @property
    def rate(self) -> float | None:
        """Share of the documents that come back unchanged; None without documents."""
        return self.n_same / self.n_documents if self.n_documents else None


def round_trips(
    tokenizer: Tokenizer | TextTokenizer, texts: Any, groups: Sequence[str], max_examples: int = MAX_EXAMPLES
) -> list[RoundTrip]:
    """Encodes a text column, decodes it, and compares; returns one result per group, in alphabetical order.

    Args:
      tokenizer: alone, or with text steps and spans; kept sources of spans go back into the text.
      texts: the column; null and rejected rows are left out.
      groups: the group of each row, for example its language or its source.
      max_examples: the most examples of each group.

    Raises:
      TypeError: if `texts` is not a text column.
      ValueError: if it is not valid, or the number of groups is not the number of rows.
    """
    check_list("groups", groups)
    rows, nulls = text_column(texts)
    column = string_array(rows.values[rows.offsets[0] :], rows.offsets - rows.offsets[0], nulls)
    if len(groups) != len(column):
        raise ValueError(f"groups must have one entry for each of {len(column)} rows, got {len(groups)}")
    found: dict[str, RoundTrip] = {}
    for text, back, group in zip(column.to_pylist(), _decoded(tokenizer, column), groups, strict=True):
        if text is None or back is None:
            continue
        trip = found.setdefault(group, RoundTrip(group))
        same = text == back
        examples = trip.examples
        if not same and len(examples) < max_examples:
            examples = (*examples, _difference(text, back))
        found[group] = RoundTrip(
            group,
            trip.n_documents + 1,
            trip.n_same + same,
            trip.n_same_but_spaces + ("".join(text.split()) == "".join(back.split())),
            examples,
        )
    return [found[group] for group in sorted(found)]


def _decoded(tokenizer: Tokenizer | TextTokenizer, column: Any) -> list[str | None]:
    if isinstance(tokenizer, Tokenizer):
        decoded: list[str | None] = tokenizer.decode_arrow(tokenizer.encode_arrow(column), False).to_pylist()
        return decoded
    encoded = tokenizer.encode_arrow(column)
    sources = encoded.sources.to_pylist() if encoded.sources is not None else [None] * len(encoded.ids)
    return [
        None if ids is None else tokenizer.decode(ids, kept or (), skip_special_tokens=False)
        for ids, kept in zip(encoded.ids.to_pylist(), sources, strict=True)
    ]


def _difference(text: str, back: str) -> tuple[str, str]:
    shorter = min(len(text), len(back))
    at = next((i for i in range(shorter) if text[i] != back[i]), shorter)
    first = max(0, at - _CONTEXT)
    return text[first : at + _CONTEXT], back[first : at + _CONTEXT]


@dataclasses.dataclass(frozen=True)
class OovCost:
    """What an OOV policy of WordPiece costs."""

    policy: str
    n_words: int
    n_chars: int
    """Characters of all words, after normalization."""
    n_words_touched: int
    """Words with an unknown token, every occurrence."""
    n_chars_swallowed: int
    n_chars_unknown: int
    """Characters that alone are no entry of the vocabulary, neither at the beginning of a word nor inside one:
    `contain` and `char` swallow at most these, and fewer if longer entries hold some of them."""
    n_chars_nowhere: int
    """Characters that occur in no entry of any length: no policy but `byte` can swallow fewer."""
    swallowed: Mapping[str, int]
    """Script -> how many of `n_chars_swallowed`."""
    unknown: Mapping[str, int]
    """Script -> how many of `n_chars_unknown`."""
    known_but_swallowed: Mapping[str, int]
    """Characters that were swallowed though they are an entry, at the beginning of a word or inside one; the 20 most
    frequent, in this order."""


def oov_costs(tokenizer: Tokenizer, texts: Any, policies: Sequence[str] | None = None) -> list[OovCost]:
    """Measures what each OOV policy of a WordPiece tokenizer would cost on a text column.

    Args:
      tokenizer: with a WordPiece model; its own policy does not matter.
      texts: the column, after spans and text steps.
      policies: the policies to measure; None for all that the vocabulary allows.

    Raises:
      TypeError: if `texts` is not a text column.
      ValueError: if it is not valid, the model is of another kind, or the vocabulary does not allow a policy.
    """
    model = tokenizer.model
    if not isinstance(model, WordPiece):
        raise ValueError(f"OOV policies are WordPiece's; the model is {type(model).__name__}")
    has_bytes = any(f"<0x{byte:02X}>" in model.vocab for byte in range(256))
    names = policies or [name for name in OOV_POLICIES if name != "byte" or has_bytes]
    check_list("policies", policies)
    rows = text_rows(texts)
    counted = _count_characters(tokenizer, rows)
    prefix = model.continuing_subword_prefix
    special = {token.content for token in tokenizer.added_tokens}
    anywhere = {c for entry in model.vocab.keys() - special for c in entry.removeprefix(prefix)}
    entries = {c for c in anywhere if c in model.vocab or prefix + c in model.vocab}
    unknown = {c: n for c, n in counted.items() if chr(c) not in entries}
    costs = []
    for name in names:
        other = tokenizer.replace(model=dataclasses.replace(model, oov_policy=name))
        tally = other.new_tally()
        other.encode_arrow(rows, tally=tally)
        code_points, counts = tally.oov_characters()
        swallowed = dict(zip(code_points.tolist(), counts.tolist(), strict=True))
        known = {chr(c): n for c, n in swallowed.items() if chr(c) in entries}
        n_listed = int(np.sum(tally.oov_words()["count"].to_numpy())) if tally.oov_words().num_rows else 0
        costs.append(
            OovCost(
                name,
                n_words=tally.n_words,
                n_chars=sum(counted.values()),
                n_words_touched=n_listed + tally.n_oov_words_untracked,
                n_chars_swallowed=sum(swallowed.values()),
                n_chars_unknown=sum(unknown.values()),
                n_chars_nowhere=sum(n for c, n in counted.items() if chr(c) not in anywhere),
                swallowed=_by_script(swallowed),
                unknown=_by_script(unknown),
                known_but_swallowed=dict(sorted(known.items(), key=lambda item: (-item[1], item[0]))[:20]),
            )
        )
    return costs


def _count_characters(tokenizer: Tokenizer, texts: Ragged) -> dict[int, int]:
    """Returns how often each character occurs in words, after normalization."""
    counter = tokenizer.new_word_counter()
    counter.update(texts)
    counts: npt.NDArray[np.int64] = np.zeros(0x110000, np.int64)
    table = counter.to_table()
    for word, n in zip(table["word"].to_pylist(), table["count"].to_numpy(), strict=True):
        np.add.at(counts, np.frombuffer(word.decode().encode("utf-32-le"), np.uint32), n)
    return {c: int(counts[c]) for c in np.flatnonzero(counts).tolist()}


def _by_script(characters: Mapping[int, int]) -> dict[str, int]:
    scripts: Counter[str] = Counter()
    for code_point, n in characters.items():
        scripts[script_name(code_point)] += n
    return dict(sorted(scripts.items(), key=lambda item: (-item[1], item[0])))
