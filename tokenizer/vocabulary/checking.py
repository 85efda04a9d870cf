# SPDX-License-Identifier: Apache-2.0
"""`check`: entries that no text becomes, and why; `transfer`: the entries of a vocabulary made of those of another."""

import re
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa

from tokenmill.tokenizer.compositions import parts_for
from tokenmill.tokenizer.core import Tokenizer
from tokenmill.tokenizer.models import Unigram
from tokenmill.tokenizer.models.byte_alphabet import BYTE_ALPHABET
from tokenmill.tokenizer.models.unigram import SPACE
from tokenmill.tokenizer.pre_tokenizers import is_byte_level
from tokenmill.tokenizer.pre_tokenizers.spelled_bytes import unspell
from tokenmill.tokenizer.reach import kinds
from tokenmill.tokenizer.vocabulary.changes import pieces
from tokenmill.tokenizer.vocabulary.entries import fixed_ids, marks_of, model_of
from tokenmill.tokenizer.vocabulary.words import Printed

TRANSFER = pa.schema(
    [
        pa.field("new_id", pa.int32(), nullable=False),
        pa.field("token", pa.string()),
        pa.field("old_ids", pa.list_(pa.int32()), nullable=False),
        pa.field("weights", pa.list_(pa.float64()), nullable=False),
    ]
)
"""Of which old ids each new id is made; the weights add up to 1. An added token that is new is made of none."""

_SHOWN = 20
_BYTE = re.compile("<0x[0-9A-F]{2}>")


class Problem(NamedTuple):
    """An entry with which something is wrong."""

    id: int
    token: str
    problem: str
    """`unmakeable`: the model makes something else of its text, so no word ever becomes it, whatever is around it.
    `unreachable`: the model would, but no text that was tried reaches it through normalizer and pre-tokenizer.
    `duplicate`: another id is spelled alike. `shadowed`: it contains the text of an added token, which is cut out."""


class Problems(Printed, tuple[Problem, ...]):
    """What is wrong with the entries of a vocabulary, in the order of ids; printed, it says so."""

    def lines(self) -> Iterator[str]:
        """Yields what is wrong, for people."""
        counts = Counter(each.problem for each in self)
        yield ", ".join(f"{n:,} {problem}" for problem, n in sorted(counts.items())) or "every entry can be reached"
        for problem in sorted(counts):
            named = [f"{each.token!r} ({each.id})" for each in self if each.problem == problem]
            yield f"{problem}: {', '.join(named[:_SHOWN])}{', ...' if len(named) > _SHOWN else ''}"


def check(tokenizer: Tokenizer) -> Problems:
    """Returns the entries of a vocabulary that no text becomes, each with the first of its problems.

    Raises:
      ValueError: if the model is none of BPE, WordPiece and Unigram.
    """
    names = [tokenizer.id_to_token(i) for i in range(tokenizer.n_ids)]
    problems: dict[int, str] = {}
    if isinstance(tokenizer.model, Unigram):  # of others the ids of two entries would be one
        twice = {token for token, n in Counter(token for token, _ in tokenizer.model.vocab).items() if n > 1}
        problems |= dict.fromkeys((i for i, token in enumerate(names) if token in twice), "duplicate")
    added = {token.content for token in tokenizer.added_tokens}
    lengths = {len(content) for content in added}  # few, where there may be thousands of tokens: Whisper has 1,608
    fixed = {token.id for token in tokenizer.added_tokens}
    if not problems:
        fixed |= fixed_ids(tokenizer)
        texts = [(i, token) for i, token in enumerate(names) if token is not None and i not in fixed]
        for (i, token), ids in zip(texts, pieces(tokenizer, [token for _, token in texts]), strict=True):
            if any(token[at : at + n] in added for n in lengths for at in range(len(token) - n + 1)):
                problems[i] = "shadowed"
            elif ids != [i] and not getattr(tokenizer.model, "ignore_merges", False):
                problems[i] = "unmakeable"
    for i, kind in enumerate(kinds(_decoding(tokenizer)).to_pylist()):
        if kind == "unreachable" and i not in fixed:
            problems.setdefault(i, "unreachable")
    return Problems(Problem(i, names[i] or "", problem) for i, problem in sorted(problems.items()))


def _decoding(tokenizer: Tokenizer) -> Tokenizer:
    """Returns a tokenizer that has a decoder, the one that fits its model if it had none: `##ing` has no text else."""
    if tokenizer.decoder is not None:
        return tokenizer
    fitting = parts_for(tokenizer.model, tokenizer.normalizer, tokenizer.pre_tokenizer, [])
    return tokenizer.replace(decoder=fitting.decoder)


def transfer(old: Tokenizer, new: Tokenizer) -> pa.Table:
    """Returns of which old ids each new id is made, `TRANSFER`, to begin its embedding with the mean of theirs.

    An entry that both have is itself. Any other is cut by the old model as the same text in the same place of a word;
    the weight of an old id is its share of the bytes of the text. An added token that the old one lacks has none.
    """
    known, added = old.get_vocab(), {token.content for token in new.added_tokens}
    names = [new.id_to_token(i) for i in range(new.n_ids)]
    alike = marks_of(model_of(old)) == marks_of(model_of(new)) and space_of(old) == space_of(new)
    own = {name for name in names if name in known and (alike or name in added)}
    others = [name for name in names if name is not None and name not in own and name not in added]
    found = dict(zip(others, pieces(old, [_respelled(each, new, old) for each in others]), strict=True))
    is_spelled = is_byte_level(old.pre_tokenizer)  # then each character of an entry is a byte
    sizes = {i: max(1, len(token if is_spelled else token.encode())) for token, i in known.items()}
    ids = [[known[name]] if name in own else found.get(name or "", []) for name in names]
    weights = [[sizes[i] / sum(sizes[each] for each in row) for i in row] for row in ids]
    columns = [range(new.n_ids), names, ids, weights]
    return pa.table([pa.array(c, field.type) for c, field in zip(columns, TRANSFER, strict=True)], schema=TRANSFER)


def space_of(tokenizer: Tokenizer) -> str:
    """Returns what begins the entries that begin a word: a space as bytes are spelled, "▁", or nothing."""
    if is_byte_level(tokenizer.pre_tokenizer):
        return BYTE_ALPHABET[ord(" ")]
    return SPACE if any(token.startswith(SPACE) for token in tokenizer.get_vocab()) else ""


def _respelled(token: str, new: Tokenizer, old: Tokenizer) -> str:
    """Returns an entry of one vocabulary as another one would spell its text."""
    (prefix, suffix), space = marks_of(model_of(new)), space_of(new)
    begins = token.startswith(space) if space else not (prefix and token.startswith(prefix))
    text = token.removeprefix(space).removesuffix(suffix)
    text = text if begins else text.removeprefix(prefix)
    if _BYTE.fullmatch(token):
        begins, data = False, bytes.fromhex(token[3:5])
    else:
        spelled = space == BYTE_ALPHABET[ord(" ")] and all(c in BYTE_ALPHABET for c in text)
        data = unspell(text) if spelled else text.encode()
    (prefix, suffix), space = marks_of(model_of(old)), space_of(old)
    if space == BYTE_ALPHABET[ord(" ")]:
        text = "".join(BYTE_ALPHABET[byte] for byte in data)
    else:
        text = data.decode(errors="replace")
    return (space if begins else prefix) + text
