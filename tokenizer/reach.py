# SPDX-License-Identifier: Apache-2.0
"""Which entries of a vocabulary texts become, found by encoding the text of each; needs no corpus."""

import dataclasses
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tokenmill.tokenizer.core import Tokenizer
from tokenmill.tokenizer.errors import UnknownCharacterError
from tokenmill.tokenizer.models import BPE, WordLevel, WordPiece

Flags = npt.NDArray[np.bool_]

CONTEXTS = "axQé1!\n\u00ab\u0416\u4e2d\u304b\ud55c\u0627\u0915"
"""Characters of many scripts; each entry is tried after and before each of them, to see whether text becomes it."""

_PROBE = "\u4e2d"
"""A character of three bytes that no normalizer changes."""

KINDS = ("ordinary", "added", "piece", "unreachable")
"""The kinds of entries:

- added: an added token, special or not, or the unknown token: the model does not produce it from its text;
- piece: its bytes are not whole UTF-8 characters, as those of a byte-level token for half of a Chinese character;
- unreachable: no text that was tried has it among its tokens. Added tokens and pieces are not tried, nor are entries
  beyond ASCII if decoding does not turn bytes back into characters, as with CLIP's tokenizer.json.
"""

FAILS = (TimeoutError, MemoryError, UnknownCharacterError)
"""What a tokenizer raises on a text that it cannot encode."""


def kinds(tokenizer: Tokenizer, seen: Flags | None = None) -> pa.StringArray:
    """Returns the kind of each entry of a vocabulary, string[n_ids]: one of `KINDS`, null for an id without a token.

    Each entry's text is encoded: alone, after each of `CONTEXTS`, and before each. So `##ing` is found in `aing`,
    `▁the` in `the`. An entry that was found is reachable; one that was not may still be in a text that was not tried.
    After Land and Bartolo, Fishing for Magikarp, EMNLP 2024, who try each entry alone: `encode(decode(i)) != [i]`.

    Args:
      tokenizer: any; its truncation, padding and template do not matter.
      seen: bool[n_ids], entries that a corpus had, which need no test; None: none are known.
    """
    wanted, tokenizer = tokenizer.n_ids, _with_unknown(tokenizer)
    n_ids = tokenizer.n_ids
    named, added, pieces = np.zeros(n_ids, bool), np.zeros(n_ids, bool), np.zeros(n_ids, bool)
    named[list(tokenizer.get_vocab().values())] = True
    added[[token.id for token in tokenizer.added_tokens]] = True
    if tokenizer.unk_token_id is not None:
        added[tokenizer.unk_token_id] = True
    reached = np.zeros(n_ids, bool)
    reached[:wanted] |= False if seen is None else seen
    tried = np.flatnonzero(named & ~added)
    texts = _texts(tokenizer, tried)
    is_broken = pc.match_substring(texts, "\ufffd")
    broken = tried[np.asarray(is_broken, bool)]
    _reach(tokenizer, texts, reached)
    pieces[broken] = ~_is_one_token(tokenizer, texts.filter(is_broken), broken)
    is_told = named & ~added & ~pieces
    if not _undoes_bytes(tokenizer):
        is_told[tried] &= np.asarray(pc.string_is_ascii(texts), bool)
    for context in CONTEXTS:
        for before, after in ((context, ""), ("", context)):
            pending = np.flatnonzero(is_told & ~reached)
            _reach(tokenizer, _texts(tokenizer, pending, before, after), reached)
    numbers = added + 2 * pieces + 3 * (is_told & ~reached)
    return pa.array(KINDS).take(pa.array(numbers, mask=~named)).slice(0, wanted)


def _with_unknown(tokenizer: Tokenizer) -> Tokenizer:
    """Returns a tokenizer with its unknown token, if only the vocabulary lacks that: else each text would fail alone.

    Of 50,000 entries that takes minutes. The token has its id as an added token, or the first one beyond all others.
    """
    model = tokenizer.model
    if not isinstance(model, BPE | WordLevel | WordPiece) or model.unk_token is None or model.unk_token in model.vocab:
        return tokenizer
    added = {token.content: token.id for token in tokenizer.added_tokens}
    vocab = {**model.vocab, model.unk_token: added.get(model.unk_token, tokenizer.n_ids)}
    return tokenizer.replace(model=dataclasses.replace(model, vocab=vocab))


def _undoes_bytes(tokenizer: Tokenizer) -> bool:
    """Returns whether decoding restores a character of several bytes; also True if the tokenizer does not know it."""
    try:
        ids = tokenizer.encode_bare([_PROBE])
    except FAILS:
        return True
    if tokenizer.unk_token_id in ids.flatten().to_pylist():
        return True
    return _PROBE in (tokenizer.decode_arrow(ids, skip_special_tokens=False)[0].as_py() or _PROBE)


def _texts(tokenizer: Tokenizer, ids: npt.NDArray[np.int64], before: str = "", after: str = "") -> pa.LargeStringArray:
    """Returns the text of each id, decoded after the tokens of `before`, and followed by `after`."""
    try:
        context = tokenizer.encode_bare([before])[0].as_py()
    except FAILS:
        context = []
    rows = np.empty((ids.size, len(context) + 1), np.int32)
    rows[:, :-1] = context
    rows[:, -1] = ids
    ends = np.arange(ids.size + 1, dtype=np.int64) * rows.shape[1]
    texts = tokenizer.decode_arrow(pa.LargeListArray.from_arrays(ends, rows.reshape(-1)), skip_special_tokens=False)
    return pc.binary_join_element_wise(texts, pa.scalar(after, texts.type), pa.scalar("", texts.type))


def _is_one_token(tokenizer: Tokenizer, texts: pa.LargeStringArray, ids: npt.NDArray[np.int64]) -> Flags:
    """Returns for each id whether its text is encoded as this single id; True for an entry that is U+FFFD itself."""
    try:
        rows = tokenizer.encode_bare(texts).to_pylist()
    except FAILS:
        return np.zeros(ids.size, bool)
    return np.array([row == [i] for row, i in zip(rows, ids.tolist(), strict=True)], bool)


def _reach(tokenizer: Tokenizer, texts: pa.LargeStringArray, reached: Flags) -> None:
    """Sets `reached` of every id among the tokens of `texts`. A text that cannot be encoded has none."""
    for ids in encode_parts(tokenizer, texts):
        if ids is not None:
            reached[ids.flatten().to_numpy()] = True


def encode_parts(tokenizer: Tokenizer, texts: pa.Array) -> Iterator[pa.LargeListArray | None]:
    """Yields the ids of some texts after the other; None for a single text on which the tokenizer fails."""
    try:
        yield tokenizer.encode_bare(texts)
    except FAILS:
        half = len(texts) // 2
        for part in (texts[:half], texts[half:]) if half else ():
            yield from encode_parts(tokenizer, part)
        if not half:
            yield None
