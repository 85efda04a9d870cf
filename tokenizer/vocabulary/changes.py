# SPDX-License-Identifier: Apache-2.0
"""`Change`: a tokenizer with another vocabulary, what changed, and what was proven of it on counted words."""

import dataclasses
import io
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from tokenmill.tokenizer.core import Tokenizer
from tokenmill.tokenizer.models import BPE, WordPiece
from tokenmill.tokenizer.models.byte_alphabet import BYTE_ALPHABET
from tokenmill.tokenizer.pre_tokenizers import is_byte_level
from tokenmill.tokenizer.pre_tokenizers.spelled_bytes import unspell
from tokenmill.tokenizer.token_runs import printable, runs_of
from tokenmill.tokenizer.vocabulary.entries import (
    Entry,
    fixed_ids,
    longest_matches,
    marks_of,
    merged,
    model_of,
    symbols_of,
)
from tokenmill.tokenizer.vocabulary.measuring import Measures
from tokenmill.tokenizer.vocabulary.words import (
    Counts,
    Ints,
    Printed,
    Tally,
    cut_differently,
    cutter,
    model_alone,
    portions,
    token_counts,
)

ID_MAP = pa.schema(
    [
        pa.field("old_id", pa.int32(), nullable=False),
        pa.field("token", pa.string()),
        pa.field("new_id", pa.int32(), nullable=False),
        pa.field("new_ids", pa.list_(pa.int32()), nullable=False),
    ]
)
"""Where each old id went: `new_id` is -1 if its entry was removed, and `new_ids` what its text is cut into now."""

_SHOWN = 20


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Change(Printed):
    """A tokenizer with another vocabulary, and what that changes; printed, it says so."""

    tokenizer: Tokenizer
    report: dict[str, Any]
    """As plain JSON: what was added and removed, what was proven, words and tokens before and after by label."""
    id_map: pa.Table
    """`ID_MAP`."""

    def new_ids(self) -> Ints:
        """Returns int64[n_old_ids]: the new id of each old one, -1 if it was removed."""
        return np.asarray(self.id_map["new_id"].to_numpy(), np.int64)

    def map_bytes(self, name: str) -> bytes:
        """Returns the content of a file for `id_map`, if its name ends in `.npy` for `new_ids` alone."""
        import pyarrow.parquet as pq

        buffer = io.BytesIO()
        if name.endswith(".npy"):
            np.save(buffer, self.new_ids())
        else:
            pq.write_table(self.id_map, buffer, compression="zstd", store_schema=False)
        return buffer.getvalue()

    def lines(self) -> Iterator[str]:
        """Yields what changed, for people."""
        report = self.report
        yield f"{report['ids_before']:,} ids before, {report['ids_after']:,} after"
        for name in ("added", "removed", "left out"):
            if tokens := [each["token"] for each in report.get(name, ())]:
                first = ", ".join(f"'{self._readable(token)}'" for token in tokens[:_SHOWN])
                yield f"{name} {len(tokens):,}: {first}{', ...' if len(tokens) > _SHOWN else ''}"
        for proof, failures in report["proof"].items():
            yield f"proven: {proof}" if failures == 0 else f"NOT TRUE for {failures:,}: {proof}"
        for kind, rows in report["words"].items():
            for row in rows:
                before, after = row["tokens_before"], row["tokens_after"]
                unknown = row["unknown_before"], row["unknown_after"]
                yield (
                    f"{kind if kind == 'all' else kind + ' ' + row['name']}: {before:,} -> {after:,} tokens "
                    f"({(after - before) / max(1, before):+.1%}), {row['changed_words']:,} of {row['words']:,} words "
                    f"cut differently{'; {:,} -> {:,} unknown'.format(*unknown) if any(unknown) else ''}"
                )
        yield from Measures(report.get("measures", ())).lines()

    def _readable(self, token: str) -> str:
        """Returns an entry as people see it: ` ‹e0 b8›` rather than `Ġà¸`, if its characters stand for bytes."""
        is_spelled = is_byte_level(self.tokenizer.pre_tokenizer) and all(c in BYTE_ALPHABET for c in token)
        return runs_of([(0, "ordinary", unspell(token))])[0].text if is_spelled else printable(token)


def proven(
    what: str,
    old: Tokenizer,
    new: Tokenizer,
    id_of: Ints,
    entries: Mapping[int, Entry],
    words: Counts | None,
    kept: Counts | None = None,
) -> Change:
    """Returns a change with its proof: every counted word is cut by both tokenizers.

    Args:
      what: the name of the change.
      old, new: the tokenizers.
      id_of: int64[n_ids], the new id of each old one, -1 if its entry was removed.
      entries: the new entries, by id.
      words: counted words; None if there are none.
      kept: words none of which may be cut differently; None if there are none such.
    """
    counts, used = np.zeros(old.n_ids, np.int64), np.zeros(new.n_ids, np.int64)
    is_new, tally, n_unsettled = np.isin(np.arange(new.n_ids), list(entries)), Tally(), 0
    cut_old, cut_new = cutter(old), cutter(new)
    for part in portions(words) if words is not None else ():
        before, after = cut_old(part), cut_new(part)
        changed = cut_differently(before.renumbered(id_of), after)
        counts += token_counts(before, part.counts, old.n_ids)
        used += token_counts(after, part.counts, new.n_ids)
        n_unsettled += int((changed & ~before.have(id_of < 0) & ~after.have(is_new)).sum())
        columns = {
            "words": np.ones_like(part.counts), "occurrences": part.counts,
            "tokens_before": before.lengths * part.counts, "tokens_after": after.lengths * part.counts,
            "unknown_before": before.unknown * part.counts, "unknown_after": after.unknown * part.counts,
            "changed_words": changed.astype(np.int64), "changed_occurrences": changed * part.counts,
        }  # fmt: skip
        tally.add(part, columns)
    token_of = {i: token for token, i in old.get_vocab().items()}
    proof = {
        "every other entry has the token that it had": sum(
            new.id_to_token(int(id_of[i])) != token for i, token in token_of.items() if id_of[i] >= 0
        )
    }
    if words is not None:
        proof["words without a removed or a new entry are cut as before"] = n_unsettled
    if (id_of < 0).any():
        proof["every other entry that its own text made is still made of it"] = _lost(old, new, id_of, token_of)
    if entries:
        proof["every new entry is made of its own text"] = _unreachable(new, entries)
    if kept is not None:
        differ = [cut_differently(cut_old(part).renumbered(id_of), cut_new(part)) for part in portions(kept)]
        proof[f"all {sum(map(len, differ)):,} words to keep are cut as before"] = sum(
            int(each.sum()) for each in differ
        )
    report = {
        "change": what, "ids_before": old.n_ids, "ids_after": new.n_ids,
        "added": [
            {
                "id": i, "token": entry.token,
                "count": entry.occurrences or None, "used": None if words is None else int(used[i]),
            }
            for i, entry in entries.items()
        ],
        "removed": [
            {"id": i, "token": token_of.get(i), "count": int(counts[i])}
            for i in np.flatnonzero(id_of < 0).tolist()
            if i in token_of
        ],
        "proof": proof, "words": tally.rows(),
    }  # fmt: skip
    return Change(new, report, id_map(old, new, id_of, token_of))


def _unreachable(tokenizer: Tokenizer, entries: Mapping[int, Entry]) -> int:
    """Returns how many new entries their own text does not become, as a word or as what continues one."""
    found = pieces(tokenizer, [entry.token for entry in entries.values()])
    return sum(ids != [i] for i, ids in zip(entries, found, strict=True))


def _lost(old: Tokenizer, new: Tokenizer, id_of: Ints, token_of: Mapping[int, str]) -> int:
    """Returns how many entries that stay their own text made, and does no longer."""
    fixed = fixed_ids(old)
    ids = [i for i in token_of if id_of[i] >= 0 and i not in fixed]
    before, after = (pieces(each, [token_of[i] for i in ids]) for each in (old, new))
    return sum(was == [i] and now != [id_of[i]] for i, was, now in zip(ids, before, after, strict=True))


def pieces(tokenizer: Tokenizer, tokens: Sequence[str]) -> list[list[int]]:
    """Returns the ids that the model of a tokenizer makes of the texts of entries, spelled as in a vocabulary."""
    model = model_of(tokenizer)
    if isinstance(model, BPE):
        marks = marks_of(model)
        return [
            [i for each in merged(symbols_of(token, marks), model.ranks, marks) for i in _symbol_ids(model, each)]
            for token in tokens
        ]
    if isinstance(model, WordPiece):
        unknown = [part for part in (model.unk_token,) if part in model.vocab]
        return [[model.vocab[part] for part in parts_of(token, model, model.vocab) or unknown] for token in tokens]
    return list(model_alone(tokenizer).encode_bare(tokens).to_pylist())


def parts_of(token: str, model: WordPiece, there: Container[str], without: str = "") -> list[str]:
    """Returns the longest matches of an entry, by itself or as what continues a word; none if they do not cover it."""
    prefix = model.continuing_subword_prefix
    continues = bool(prefix) and token.startswith(prefix) and token != prefix
    text = token[len(prefix) :] if continues else token
    found, end = longest_matches(text, prefix, there, continues=continues, without=without)
    return found if end == len(text) else []


def _symbol_ids(model: BPE, symbol: str) -> list[int]:
    """Returns the id of a symbol, or those of its bytes or of the unknown token."""
    if symbol in model.vocab:
        return [model.vocab[symbol]]
    in_bytes = [model.byte_ids[byte] for byte in symbol.encode()]
    if model.byte_fallback and min(in_bytes) >= 0:
        return in_bytes
    return [model.vocab[token] for token in (model.unk_token,) if token is not None and token in model.vocab]


def id_map(old: Tokenizer, new: Tokenizer, id_of: Ints, token_of: Mapping[int, str]) -> pa.Table:
    """Returns `ID_MAP` for the new id of each old one, int64[n_ids]."""
    removed = [i for i in np.flatnonzero(id_of < 0).tolist() if i in token_of]
    found = dict(zip(removed, pieces(new, [token_of[i] for i in removed]), strict=True))
    columns = (
        range(old.n_ids), map(token_of.get, range(old.n_ids)), id_of.tolist(),
        [[i] if i >= 0 else found.get(old_id, []) for old_id, i in enumerate(id_of.tolist())],
    )  # fmt: skip
    arrays = [pa.array(list(column), field.type) for column, field in zip(columns, ID_MAP, strict=True)]
    return pa.table(arrays, schema=ID_MAP)
