# SPDX-License-Identifier: Apache-2.0
"""`merge`: the union of two vocabularies; `balance`: other merges for the same words, which treat languages alike."""

import dataclasses
from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tokenmill.tokenizer.core import Tokenizer
from tokenmill.tokenizer.models import BPE, Unigram
from tokenmill.tokenizer.trainers.parity import ParityBPETrainer
from tokenmill.tokenizer.vocabulary.changes import Change, id_map, proven
from tokenmill.tokenizer.vocabulary.checking import space_of
from tokenmill.tokenizer.vocabulary.entries import (
    Entry,
    fixed_ids,
    joined,
    marks_of,
    merged,
    model_of,
    moved,
    rebuilt,
    symbols_of,
)
from tokenmill.tokenizer.vocabulary.extending import scores_of_parts
from tokenmill.tokenizer.vocabulary.measuring import measure
from tokenmill.tokenizer.vocabulary.pruning import best_path
from tokenmill.tokenizer.vocabulary.words import Counts, portions


def merge(
    first: Tokenizer, second: Tokenizer, word_counts: Counts | None = None, *, keep: Counts | None = None
) -> Change:
    """Returns the first tokenizer with the entries of the second that it lacks, in the order in which these are made.

    The first has priority: its ids and merges stay, and an entry of the second is made of what the first makes of its
    text, by one more merge. Entries that take more than one are left out, as are added and byte tokens of the second.

    Args:
      first, second: of the same kind of model, which spell the same text alike.
      word_counts: as for `extend`, to report what changes; None reports nothing.
      keep: as for `extend`, but only proven.

    Raises:
      TypeError, ValueError: as `extend`; if the models spell differently, or nothing is to be added.
    """
    model, other = model_of(first), model_of(second)
    marks, known = marks_of(model), set(first.get_vocab())
    alike = type(model) is type(other) and marks == marks_of(other) and space_of(first) == space_of(second)
    if not alike:
        raise ValueError(f"two vocabularies can be merged that spell text alike, got {model!r:.200} and {other!r:.200}")
    rank_of: dict[str, int] = {}
    for rank, (left, right) in enumerate(other.merges if isinstance(other, BPE) else ()):
        rank_of.setdefault(joined(left, right, marks), rank)
    names = [(rank_of.get(token, -1), i, token) for token, i in second.get_vocab().items() if token not in known]
    fixed, left_out, entries = fixed_ids(second), list[str](), list[Entry]()
    ranks = dict(model.ranks) if isinstance(model, BPE) else {}
    scores = dict(model.vocab) if isinstance(model, Unigram) else {}
    score_of = scores_of_parts(model)
    for _, token_id, token in sorted(names):
        parts = list[str]()
        if isinstance(model, BPE) and len(symbols := symbols_of(token, marks)) > 1:
            parts = merged(symbols, ranks, marks)
            if len(parts) != 2 or not known >= {*parts}:
                fixed.add(token_id)
        elif isinstance(model, Unigram):
            parts = best_path(token, scores, known)
        if token_id in fixed:
            left_out.append(token)
            continue
        if isinstance(model, BPE) and parts:
            ranks[parts[0], parts[1]] = len(model.ranks) + len(entries)
            entries.append(Entry(token, parts[0], parts[1]))
        else:
            scores[token] = score_of(token, *parts)
            entries.append(Entry(token, score=scores[token]))
        known.add(token)
    if not entries:
        raise ValueError(f"nothing is to be merged: the first tokenizer has all entries but {left_out[:20]!r}")
    placed, same = dict(enumerate(entries, first.n_ids)), np.arange(first.n_ids)
    change = proven("merge", first, rebuilt(first, same, placed), same, placed, word_counts, keep)
    return dataclasses.replace(change, report=change.report | {"left out": [{"token": each} for each in left_out]})


def balance(
    tokenizer: Tokenizer,
    word_counts: Counts,
    *,
    by: str = "lang",
    size: int | None = None,
    dev: Counts | None = None,
    ratio: Mapping[str, float] | None = None,
    min_count: int = 2,
    global_merges: int = 0,
    window: int = 0,
    alpha: float = 2.0,
) -> Change:
    """Returns a tokenizer with other merges, learned from counts so that languages are treated alike.

    Normalizer, pre-tokenizer and special tokens stay; ids do not. What the words cost, or those of `dev`, is reported
    as by `measure`.

    Args:
      tokenizer: BPE.
      word_counts: as for `extend`, with a column of labels.
      by: its name.
      size: entries of the vocabulary; None for as many as there are.
      dev, ratio: see `ParityBPETrainer.train_languages`; with neither, a byte or character is to cost as many tokens in
        each language.
      min_count: pairs that occur less often are not merged.
      global_merges, window, alpha: see `ParityBPETrainer`.

    Raises:
      TypeError, ValueError: as `ParityBPETrainer`; if the model is not BPE or there are no such labels.
    """
    model = tokenizer.model
    if not isinstance(model, BPE):
        raise ValueError(f"parity-aware training is one of BPE, got {model!r:.200}")
    special = sorted(fixed_ids(tokenizer))
    names = [str(tokenizer.id_to_token(i)) for i in special]
    in_bytes = {f"<0x{byte:02X}>" for byte in range(256)} if model.byte_fallback else set()
    trainer = ParityBPETrainer(
        vocab_size=size or tokenizer.n_ids, min_frequency=min_count, unk_token=model.unk_token,
        special_tokens=tuple(name for name in names if name not in in_bytes),
        byte_level=model.byte_level, byte_fallback=model.byte_fallback, end_of_word_suffix=model.suffix or None,
        continuing_subword_prefix=model.prefix or None, global_merges=global_merges, window=window, alpha=alpha,
    )  # fmt: skip
    held = None if dev is None else _by_label(dev, by)
    trained = trainer.train_languages(_by_label(word_counts, by), dev=held, ratio=ratio or {})
    new = moved(tokenizer, trained, lambda token: trained.vocab[token])
    token_of = {i: token for token, i in tokenizer.get_vocab().items()}
    id_of = np.array([new.get_vocab().get(token_of.get(i, ""), -1) for i in range(tokenizer.n_ids)])
    report = {
        "change": "balance", "ids_before": tokenizer.n_ids, "ids_after": new.n_ids, "proof": {}, "words": {},
        "measures": list(
            measure({"before": tokenizer, "after": new}, word_counts if dev is None else dev, parallel=dev is not None)
        ),
    }  # fmt: skip
    return Change(new, report, id_map(tokenizer, new, id_of, token_of))


def _by_label(counts: Counts, by: str) -> dict[str, pa.Table]:
    tables: dict[str, list[pa.Table]] = {}
    for part in portions(counts):
        if by not in part.labels:
            raise ValueError(f"word_counts has no column {by!r}, only {', '.join(part.labels) or 'word and count'}")
        table = part.table()
        for label in part.labels[by].dictionary.to_pylist():
            tables.setdefault(label, []).append(table.filter(pc.equal(part.labels[by], label)))
    return {label: pa.concat_tables(tables[label]) for label in sorted(tables)}
