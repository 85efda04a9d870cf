# SPDX-License-Identifier: Apache-2.0
"""The entries of a vocabulary: which must stay, what merges make of them, and a tokenizer with others."""

import dataclasses
import itertools
import re
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tokenmill.tokenizer.core import Tokenizer
from tokenmill.tokenizer.kernels.bpe_symbols import CONTINUES, ENDS
from tokenmill.tokenizer.models import BPE, Unigram, WordPiece
from tokenmill.tokenizer.models.bpe_merges import MergesOfIds, merges_of_pieces
from tokenmill.tokenizer.models.unigram import PieceType
from tokenmill.tokenizer.models.vocabulary import Tokens, Vocabulary
from tokenmill.tokenizer.normalizers import SentencePieceNormalizer
from tokenmill.tokenizer.parts import vocab_of
from tokenmill.tokenizer.post_processors import renumbered
from tokenmill.tokenizer.trainers.base import BYTE_TOKENS
from tokenmill.tokenizer.vocabulary.words import Ints

Model = BPE | WordPiece | Unigram

_RESERVED = re.compile(r"[\[<]\|?(?:unused|reserved)\w*\|?[\]>]", re.IGNORECASE)
"""Names of entries that stand for nothing: `[unused7]`, `<unused7>`, `<|reserved_special_token_7|>`."""


class Entry(NamedTuple):
    """A new entry of a vocabulary."""

    token: str
    left: str = ""
    """The entries that are merged to it; empty for a character."""
    right: str = ""
    occurrences: int = 0
    """How often it occurred in the words that it was chosen from."""
    score: float = 0.0
    """Unigram only."""


def model_of(tokenizer: Tokenizer) -> Model:
    """Returns the model of a tokenizer whose vocabulary can be changed.

    Raises:
      ValueError: for another model, or two entries that are spelled alike.
    """
    model = tokenizer.model
    if not isinstance(model, BPE | WordPiece | Unigram):
        raise ValueError(f"the vocabulary of BPE, WordPiece or Unigram can be changed, not that of {model!r}")
    if isinstance(model, Unigram) and len(model.piece_ids) != len(model.vocab):
        raise ValueError("two pieces of this Unigram are spelled alike; `tokenmill vocab check` lists them")
    return model


def fixed_ids(tokenizer: Tokenizer) -> set[int]:
    """Returns the ids that text does not make by merges: of added, unknown and byte tokens, and what templates name."""
    model, vocab = model_of(tokenizer), vocab_of(tokenizer.model)
    fixed = {token.id for token in tokenizer.added_tokens} | set(vocab.find(BYTE_TOKENS).tolist())
    if tokenizer.post_processor is not None:
        template = tokenizer.post_processor.template(True)
        fixed |= {i for token in template.special_tokens.values() for i in token.ids}
    fixed |= {i for i in (tokenizer.unk_token_id, tokenizer.pad_token_id) if i is not None}
    if isinstance(model, Unigram) and model.piece_types is not None:
        fixed |= set(np.flatnonzero(np.asarray(model.piece_types) != PieceType.NORMAL).tolist())
    return fixed - {-1}


def reserved_ids(tokenizer: Tokenizer) -> list[int]:
    """Returns the ids below the largest one that no entry has, and those of entries reserved by their name."""
    template = None if tokenizer.post_processor is None else tokenizer.post_processor.template(True)
    named = {i for token in template.special_tokens.values() for i in token.ids} if template else set()
    tokens = ((i, tokenizer.id_to_token(i)) for i in range(tokenizer.n_ids))
    return [i for i, token in tokens if token is None or (i not in named and _RESERVED.fullmatch(token))]


def marks_of(model: Model) -> tuple[str, str]:
    """Returns what a model puts in front of what continues a word, and behind what ends one."""
    if isinstance(model, BPE):
        return model.prefix, model.suffix
    return (model.continuing_subword_prefix, "") if isinstance(model, WordPiece) else ("", "")


def spelled(character: str, place: int, marks: tuple[str, str]) -> str:
    """Returns a character as an entry; place: bits CONTINUES | ENDS."""
    return marks[0] * bool(place & CONTINUES) + character + marks[1] * bool(place & ENDS)


def symbols_of(token: str, marks: tuple[str, str]) -> list[str]:
    """Returns the characters, with their marks, that an entry is merged from."""
    prefix, suffix = marks
    continues = bool(prefix) and token.startswith(prefix) and token != prefix
    text = token[len(prefix) :] if continues else token
    ends = bool(suffix) and text.endswith(suffix) and text != suffix
    text = text[: -len(suffix)] if ends else text
    places = [
        CONTINUES * (continues or i > 0) | ENDS * (ends and i == len(text) - 1) for i in range(len(text))
    ]  # fmt: skip
    return [spelled(character, place, marks) for character, place in zip(text, places, strict=True)]


def joined(left: str, right: str, marks: tuple[str, str]) -> str:
    """Returns the entry that two others make."""
    return left + right.removeprefix(marks[0])


def merged(
    symbols: Sequence[str], ranks: Mapping[tuple[str, str], int], marks: tuple[str, str], stop: int = 1
) -> list[str]:
    """Returns what merges make of the symbols of one entry: the lowest rank first, the leftmost among equals.

    With `stop` 2 the last merge is left out: these are the parts of an entry. Its time grows with the square of the
    number of symbols, and entries are short.
    """
    places = list(symbols)
    while len(places) > stop:
        pairs = enumerate(itertools.pairwise(places))
        rank, i = min(((ranks[pair], i) for i, pair in pairs if pair in ranks), default=(-1, -1))
        if rank < 0:
            break
        places[i : i + 2] = [joined(places[i], places[i + 1], marks)]
    return places


def longest_matches(
    text: str, prefix: str, there: Container[str], *, continues: bool = False, without: str = ""
) -> tuple[list[str], int]:
    """Returns WordPiece's longest matches, as far as there are any, and where they end.

    Args:
      text: a word, or the rest of one.
      prefix: what entries that continue a word begin with.
      there: the entries.
      continues: whether the text continues a word.
      without: an entry that is taken for not being there.
    """
    at, found = 0, list[str]()
    while at < len(text):
        mark = prefix if continues or at else ""
        forms = (mark + text[at:stop] for stop in range(len(text), at, -1))
        token = next((form for form in forms if form in there and form != without), None)
        if token is None:
            break
        found.append(token)
        at += len(token) - len(mark)
    return found, at


def rebuilt(tokenizer: Tokenizer, id_of: Ints, entries: Mapping[int, Entry]) -> Tokenizer:
    """Returns a tokenizer with other entries.

    Args:
      tokenizer: the old one.
      id_of: int64[n_ids], the new id of each old one, -1 to remove its entry; what merges with it is not merged.
      entries: the new entries by id, in the order of their merges, which come after all old ones.

    Raises:
      ValueError: if the model of a SentencePiece or Unigram vocabulary would have a gap in its ids.
    """
    vocab = {token: int(id_of[i]) for token, i in vocab_of(tokenizer.model).items() if id_of[i] >= 0}
    vocab |= {entry.token: i for i, entry in entries.items()}
    vocab = dict(sorted(vocab.items(), key=lambda item: item[1]))
    model = model_of(tokenizer)
    new_model: Any
    if isinstance(model, Unigram):
        new_model = _unigram(model, vocab, id_of, entries)
    elif isinstance(model, BPE):
        new_model = _bpe(tokenizer, model, vocab, id_of, entries)
    else:
        new_model = dataclasses.replace(model, vocab=vocab)
    return moved(tokenizer, new_model, lambda token: int(id_of[_id_of(tokenizer, token)]))


def moved(tokenizer: Tokenizer, model: Any, id_of: Callable[[str], int]) -> Tokenizer:
    """Returns a tokenizer with another model, in which each of its added tokens has the id of `id_of`, -1 for none."""
    padding, layout, normalizer = tokenizer.padding, tokenizer.post_processor, tokenizer.normalizer
    if isinstance(normalizer, SentencePieceNormalizer):
        symbols = tuple(each for each in normalizer.user_defined_symbols if id_of(each) >= 0)
        normalizer = dataclasses.replace(normalizer, user_defined_symbols=symbols)
    added = [(token, id_of(token.content)) for token in tokenizer.added_tokens]
    return tokenizer.replace(
        normalizer=normalizer,
        model=model,
        added_tokens=[dataclasses.replace(token, id=new_id) for token, new_id in added if new_id >= 0],
        post_processor=layout and renumbered(layout, id_of),
        padding=padding and dataclasses.replace(padding, pad_id=id_of(padding.pad_token)),
    )


def _id_of(tokenizer: Tokenizer, token: str) -> int:
    token_id = tokenizer.token_to_id(token)
    assert token_id is not None, token  # `fixed_ids` keeps what templates name
    return token_id


def _bpe(tokenizer: Tokenizer, model: BPE, vocab: dict[str, int], id_of: Ints, entries: Mapping[int, Entry]) -> BPE:
    ids, pairs = model.merge_ids, list(model.merges)
    kept = np.flatnonzero((id_of[ids.lefts] >= 0) & (id_of[ids.rights] >= 0) & (id_of[ids.products] >= 0))
    if model.merge_ranks is None:
        merges = [pairs[i] for i in kept.tolist()]
        merges += [(entry.left, entry.right) for entry in entries.values() if entry.left]
        return dataclasses.replace(model, vocab=vocab, merges=merges)
    # A file of sentencepiece has only scores, and all ways to make a piece are merges: they are found again.
    names = dict(sorted((vocab | _added(tokenizer, id_of)).items(), key=lambda item: item[1]))
    if list(names.values()) != list(range(len(names))):
        raise ValueError("a SentencePiece vocabulary must have no gap in its ids")
    ranks = np.asarray(model.merge_ranks, np.int64)
    scores = -(len(ranks) + len(entries)) - np.arange(1.0, len(names) + 1)  # of what nothing made so far
    scores[id_of[ids.products[kept]]] = -ranks[kept]
    for place, (i, entry) in enumerate(entries.items()):
        if entry.left:
            scores[i] = -(len(ranks) + place)
    can_merge = np.ones(len(names), np.bool_)
    fixed = id_of[sorted(i for i in fixed_ids(tokenizer) if i < id_of.size)]
    can_merge[fixed[(fixed >= 0)]] = False
    can_merge[list(entries)] = True
    pieces = Vocabulary(Tokens.of(list(names)), np.arange(len(names), dtype=np.int32))
    found = merges_of_pieces(pieces, can_merge, scores)
    of_merge = scores[found.products]
    steps = np.cumsum(np.diff(of_merge, prepend=of_merge[:1]) != 0)
    return dataclasses.replace(model, vocab=pieces, merges=MergesOfIds(found, pieces), merge_ranks=steps)


def _added(tokenizer: Tokenizer, id_of: Ints) -> dict[str, int]:
    return {token.content: int(id_of[token.id]) for token in tokenizer.added_tokens if id_of[token.id] >= 0}


def _unigram(model: Unigram, vocab: dict[str, int], id_of: Ints, entries: Mapping[int, Entry]) -> Unigram:
    if list(vocab.values()) != list(range(len(vocab))):
        raise ValueError(
            "a Unigram vocabulary must have no gap in its ids, and its added tokens no ids beyond it; use reserved ids"
        )
    old = dict(model.vocab)
    types = None
    if model.piece_types is not None:
        types = np.full(len(vocab), PieceType.NORMAL, np.int64)
        kept = np.flatnonzero(id_of[: len(model.vocab)] >= 0)
        types[id_of[kept]] = np.asarray(model.piece_types)[kept]
    scores = {entry.token: entry.score for entry in entries.values()}
    return dataclasses.replace(
        model,
        vocab=[(piece, scores[piece] if piece in scores else old[piece]) for piece in vocab],
        unk_id=None if model.unk_id is None else int(id_of[model.unk_id]),
        piece_types=types,
    )
