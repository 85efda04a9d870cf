# SPDX-License-Identifier: Apache-2.0
"""The differences of two finished outputs: config keys, versions, vocabulary, totals, documents and their tokens.

Rows are compared by hashes, 16 bytes for each row of each output; the first ones that differ are read again.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tokenmill.pipeline import storage
from tokenmill.pipeline.books import parts as output_parts
from tokenmill.pipeline.books.manifest import read as read_manifest
from tokenmill.pipeline.columns import children
from tokenmill.pipeline.hashing import hash_rows
from tokenmill.pipeline.looking import inspect, selecting
from tokenmill.pipeline.looking.selecting import Shard
from tokenmill.pipeline.statistics.vocabulary import read_token_counts
from tokenmill.tokenizer import Tokenizer
from tokenmill.tokenizer.token_runs import printable

TOP = 10
"""At most this many differing rows and entries are shown."""

_AROUND = 8
"""Tokens that are shown before and after the first one that differs."""

Hashes = npt.NDArray[np.uint64]


def difference(one: str, other: str) -> dict[str, Any]:
    """Returns the differences of two output folders, as plain JSON; a part without differences is empty.

    A row is found in the other output by the id of its document, the number of its window, and how many earlier rows
    have both in common; rows without ids, such as packed sequences, by their number among all rows.

    Returns:
      `outputs`, `is_equal`, and what differs by its kind; of two outputs in the same parts instead `parts`, which has
      this for each folder.

    Raises:
      ValueError: if a folder is no finished output with shards. OSError: if a file cannot be read.
    """
    folders = [[each.rpartition("/")[2] for each in output_parts.folders_of(output)] for output in (one, other)]
    if output_parts.is_in_parts(one) and folders[0] == folders[1]:
        pairs = {name: [storage.join(output, name) for output in (one, other)] for name in folders[0]}
        of_parts = {name: difference(*pair) for name, pair in pairs.items()}
        is_equal = all(found["is_equal"] for found in of_parts.values())
        return {"outputs": [one, other], "is_equal": is_equal, "parts": of_parts}
    manifests = [read_manifest(output) for output in (one, other)]
    shards = [selecting.find_shards(output) for output in (one, other)]
    parts = {
        "config": _changes(*({k: v for k, v in _flat(each["config"]) if k != "output.path"} for each in manifests)),
        "versions": _changes(*(each["versions"] for each in manifests)),
        "totals": _changes(*(dict(_flat(each["totals"])) for each in manifests)),
        "vocabulary": _vocabulary(one, other),
        "rows": _rows(shards, [inspect.find_tokenizer(each[0].path) for each in shards]),
    }
    return {"outputs": [one, other], "is_equal": not any(parts.values()), **parts}


def _flat(tree: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{path}{key}.")
        else:
            yield f"{path}{key}", value


def _changes(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Returns the values of each key that differ, null for a key that one does not have."""
    names = [*one, *(name for name in other if name not in one)]
    return {name: [one.get(name), other.get(name)] for name in names if one.get(name) != other.get(name)}


def _vocabulary(one: str, other: str) -> dict[str, Any]:
    """Returns how many entries only one of two vocabularies has, or has under another id; and the first of each."""
    tables = (read_token_counts(output) for output in (one, other))
    ours, theirs = (dict(zip(table["token"].to_pylist(), table["id"].to_pylist(), strict=True)) for table in tables)
    lists = {
        "only_first": [token for token in ours if token not in theirs],
        "only_second": [token for token in theirs if token not in ours],
        "other_id": [token for token in ours if token in theirs and ours[token] != theirs[token]],
    }
    lists = {name: [token for token in tokens if token is not None] for name, tokens in lists.items()}
    return {name: {"n": len(tokens), "first": tokens[:TOP]} for name, tokens in lists.items() if tokens}


def _rows(shards: Sequence[Sequence[Shard]], tokenizers: Sequence[Tokenizer]) -> dict[str, Any]:
    (our_keys, our_values), (their_keys, their_values) = map(_hashes, shards)
    _, ours, theirs = np.intersect1d(our_keys, their_keys, assume_unique=True, return_indices=True)
    order = np.argsort(ours)
    ours, theirs = ours[order], theirs[order]
    is_changed = our_values[ours] != their_values[theirs]
    found: dict[str, Any] = {}
    for name, side, n, mine in (("only_first", 0, our_keys.size, ours), ("only_second", 1, their_keys.size, theirs)):
        alone = np.setdiff1d(np.arange(n), mine)
        if alone.size:
            names = [_row(shards[side], i).doc_id for i in alone[:TOP].tolist()]
            found[name] = {"n": alone.size, "first": names}
    if is_changed.any():
        pairs = zip(ours[is_changed][:TOP].tolist(), theirs[is_changed][:TOP].tolist(), strict=True)
        first = [_change(_row(shards[0], i), _row(shards[1], j), tokenizers) for i, j in pairs]
        found["changed"] = {"n": int(is_changed.sum()), "of": ours.size, "first": first}
    return found


def _hashes(shards: Sequence[Shard]) -> tuple[Hashes, Hashes]:
    """Returns for each row of an output a unique key and a hash of its ids: uint64[n] each."""
    keys, values = [], []
    for shard in shards:
        for batch in inspect.batches(shard.path):
            rows = batch.column("input_ids")
            values.append(hash_rows(rows.values.to_numpy(), rows.offsets.to_numpy()))
            keys.append(_names(batch))
    if not keys:
        return np.zeros(0, np.uint64), np.zeros(0, np.uint64)
    names = np.concatenate(keys)
    order = np.argsort(names, kind="stable")
    starts = np.flatnonzero(np.concatenate([[True], np.diff(names[order]) != 0]))
    before = np.empty(names.size, np.int64)
    before[order] = np.arange(names.size) - np.repeat(starts, np.diff([*starts, names.size]))
    pairs = np.stack([names, before.astype(np.uint64)], axis=1)
    return hash_rows(pairs.reshape(-1), np.arange(names.size + 1) * 2), np.concatenate(values)


def _names(batch: pa.RecordBatch) -> Hashes:
    """Returns a hash of the name of each row; rows without names have the same."""
    if "doc_id" not in batch.schema.names:
        return np.zeros(batch.num_rows, np.uint64)
    ends, data = children(batch.column("doc_id"))
    names = hash_rows(data.to_numpy(), ends)
    if "window" in batch.schema.names:
        names = names ^ hash_rows(batch.column("window").to_numpy(), np.arange(batch.num_rows + 1))
    return names


def _row(shards: Sequence[Shard], number: int) -> inspect.Row:
    """Returns a row by its number among all rows of an output."""
    for shard in shards:
        n_rows = int(shard.record["rows"]) if shard.record is not None else 0
        if number < n_rows:
            (row,) = inspect.rows(shard.path, number, 1)
            return shard.described(row)
        number -= n_rows
    raise IndexError(number)


def _change(one: inspect.Row, other: inspect.Row, tokenizers: Sequence[Tokenizer]) -> dict[str, Any]:
    """Returns where two rows begin to differ, and the tokens around that place as text.

    They differ from the first token that is spelled differently: two vocabularies may give one token different ids.
    """
    names = [
        [tokenizer.id_to_token(i) for i in row.ids] for row, tokenizer in zip((one, other), tokenizers, strict=True)
    ]
    pairs = enumerate(itertools.zip_longest(*names))
    at = next((i for i, (ours, theirs) in pairs if ours != theirs), None)
    start = max(0, (at or 0) - _AROUND)
    shown = [
        [run.text for run in tokenizer.token_runs(row.ids[start : (at or 0) + _AROUND])]
        for row, tokenizer in zip((one, other), tokenizers, strict=True)
    ]
    return {
        "row": one.doc_id,
        "window": one.window,
        "n_tokens": [one.n_tokens, other.n_tokens],
        "token": at,  # null: only the ids differ
        "shown_from": start,
        "shown": shown,
    }


def lines(found: Mapping[str, Any]) -> Iterator[str]:
    """Yields the result of `difference` as lines for a terminal; none if the outputs are equal."""
    if "parts" in found:
        yield from (f"{name}: {line}" for name, part in found["parts"].items() for line in lines(part))
        return
    for name in ("config", "versions", "totals"):
        for key, (ours, theirs) in found[name].items():
            yield f"{name:<11} {key}: {ours} -> {theirs}"
    for name, listed in found["vocabulary"].items():
        tokens = " ".join(printable(token) for token in listed["first"])
        yield f"vocabulary  {_WORDS[name]}: {listed['n']:,} entries: {tokens}{_more(listed)}"
    for name in ("only_first", "only_second"):
        if listed := found["rows"].get(name):
            yield f"rows        {_WORDS[name]}: {listed['n']:,}: {', '.join(listed['first'])}{_more(listed)}"
    if changed := found["rows"].get("changed"):
        yield f"rows        with other tokens: {changed['n']:,} of {changed['of']:,}"
        for each in changed["first"]:
            before, after = each["n_tokens"]
            window = "" if each["window"] is None else f", window {each['window']}"
            if each["token"] is None:
                yield f"  {each['row']}{window}: the same {before:,} tokens under other ids"
                continue
            yield f"  {each['row']}{window}: {before:,} -> {after:,} tokens, from token {each['token']:,}"
            for sign, texts in zip("-+", each["shown"], strict=True):
                yield f"    {sign} {inspect.BOUNDARY.join(map(inspect.shown, texts))}"


_WORDS = {"only_first": "only in the first", "only_second": "only in the second", "other_id": "under another id"}


def _more(listed: Mapping[str, Any]) -> str:
    n = listed["n"] - len(listed["first"])
    return f" and {n:,} more" if n else ""
