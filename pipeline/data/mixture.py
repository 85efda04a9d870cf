# SPDX-License-Identifier: Apache-2.0
"""Mixtures of sources by tokens, written as an index of a byte for each sample; no token is copied.

    sources, weights --mix--> MixturePlan: tokens and epochs of each --write--> OUT/samples.bin --Mixture--> rows

The k-th sample of a source is the k-th row of an endless reader of it: its order is given by the seed, each epoch has
another one, and stages go on where the stage before stopped. So an index has to say only which source comes next.
"""

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tokenmill.pipeline.data import index
from tokenmill.pipeline.data.dataset import gathered
from tokenmill.pipeline.data.order import Int64s
from tokenmill.pipeline.data.rows import Rows
from tokenmill.pipeline.data.samples import Samples

_FILE = "samples.bin"
_BLOCK = 1024
"""Samples of a block: a byte for each, and 8 for each source, how many of its samples come before."""
_MOST = 255
"""Sources; one byte is left over to fill the last block."""
_AHEAD = 1 << 16
"""Samples of each source whose sizes are in order in memory while an index is written."""
_SHARES = ("weight", "tokens", "epochs")


def mix(
    sources: Mapping[str, Mapping[str, Any]],
    *,
    total_tokens: int | None = None,
    stages: Sequence[Mapping[str, Any]] | None = None,
    temperature: float = 1,
    seed: int | None = 0,
    trained: bool = False,
) -> "MixturePlan":
    """Plans a mixture: how many tokens each source gives, and how often its rows are repeated for that.

    Args:
      sources: for each name `path`, an output folder or an index, or `rows`; and one of `weight`, its share of what is
        left by the others, `tokens`, or `epochs`. Without any, the weight is the number of its tokens.
      total_tokens: tokens of the whole mixture; needed for weights.
      stages: for shares that change, a list of mixtures, each with its `total_tokens`, and `sources` as above, but
        without `path` and `rows`; sources that a stage does not name give nothing there. `sources` and `total_tokens`
        of the mixture then have no shares.
      temperature: weights are raised to the power of 1 / temperature: more than 1 makes them more equal.
      seed: of the order in which rows of a source are read; None for that in which they are stored, in each epoch.
      trained: count those tokens only that a model is trained on, everywhere.

    Raises:
      ValueError: if there is no such mixture; says why.
      OSError: if a source cannot be read.
    """
    if not 0 < len(sources) <= _MOST:
        raise ValueError(f"a mixture has 1 to {_MOST} sources, not {len(sources)}")
    opened = {}
    for name, spec in sources.items():
        if ("path" in spec) == ("rows" in spec) or spec.keys() - {"path", "rows", *_SHARES}:
            raise ValueError(f"{name}: give a path or rows, and one of {', '.join(_SHARES)}; not {', '.join(spec)}")
        opened[name] = spec["rows"] if "rows" in spec else index.open_rows(spec["path"])
    tokenizers = {
        dataset.manifest["tokenizer"]["digest"]: name for name in opened for dataset in index.origins(opened[name])
    }
    if len(tokenizers) > 1:
        raise ValueError(f"{' and '.join(tokenizers.values())} have ids of different tokenizers")
    _check_above_0("temperature", temperature)
    sizes = {
        name: sum(int(part.sum()) for part in rows.sizes(trained=True)) if trained else rows.n_tokens
        for name, rows in opened.items()
    }
    if empty := [name for name, size in sizes.items() if not size]:
        raise ValueError(f"{empty[0]} has no {'trained ' * trained}tokens")
    if stages is None:
        shares = {name: {key: spec[key] for key in _SHARES if key in spec} for name, spec in sources.items()}
        stages = [{"total_tokens": total_tokens, "sources": shares}]
    elif total_tokens is not None or any(spec.keys() & set(_SHARES) for spec in sources.values()):
        raise ValueError("with stages, each of them has its total_tokens and the shares of its sources")
    goals = [_solve(stage, sizes, temperature) for stage in stages]
    if unused := [name for name in opened if not any(stage.get(name) for stage in goals)]:
        raise ValueError(f"{unused[0]} gives no token in any stage: leave it out, or raise its share")
    return MixturePlan(opened, sizes, goals, seed, trained)


def _solve(stage: Mapping[str, Any], sizes: Mapping[str, int], temperature: float) -> dict[str, int]:
    """Returns how many tokens each source of a stage gives; they add up to `total_tokens`, if that is given."""
    goals, weights = {}, {}
    if stage.keys() - {"total_tokens", "sources"} or not stage.get("sources"):
        raise ValueError(f"a stage has total_tokens and sources, not {', '.join(stage) or 'nothing'}")
    for name, share in stage["sources"].items():
        if name not in sizes:
            raise ValueError(f"a stage names {name}, but the sources are {', '.join(sizes)}")
        if len(share) > 1 or share.keys() - set(_SHARES):
            raise ValueError(f"{name}: give one of {', '.join(_SHARES)}, not {' and '.join(share)}")
        kind, value = next(iter(share.items()), ("weight", sizes[name]))
        _check_above_0(f"{name}: {kind}", value)
        if kind == "weight":
            weights[name] = value ** (1 / temperature)
        else:
            goals[name] = round(value * sizes[name] if kind == "epochs" else value)
    total, fixed = stage.get("total_tokens"), sum(goals.values())
    if total is not None:
        _check_above_0("total_tokens", total)
    if total is None and weights:
        raise ValueError(f"total_tokens is needed: the weights of {', '.join(weights)} are shares of it")
    rest = 0 if total is None else total - fixed
    if rest < 0 or (rest > 0) != bool(weights):
        raise ValueError(
            f"total_tokens is {total:,}, but tokens and epochs of {', '.join(goals)} ask for {fixed:,}"
            + (f", which leaves nothing for {', '.join(weights)}" if weights and rest <= 0 else "")
        )
    whole = sum(weights.values()) or 1
    ends = [round(rest * part / whole) for part in accumulate(weights.values(), initial=0)]
    goals |= {name: last - first for name, (first, last) in zip(weights, pairwise(ends), strict=True)}
    return {name: goals[name] for name in sizes if name in goals}


def _check_above_0(name: str, value: Any) -> None:
    if not isinstance(value, int | float) or not 0 < value < 1 << 62:
        raise ValueError(f"{name} must be a number above 0 and below 2**62, not {value!r}")


@dataclass(frozen=True)
class MixturePlan:
    """What a mixture will be; printed, it says what each source has, gives, and how often it is repeated."""

    sources: Mapping[str, Rows]
    sizes: Mapping[str, int]
    """The tokens that each source has."""
    stages: Sequence[Mapping[str, int]]
    """The tokens that each source gives in each stage."""
    seed: int | None
    trained: bool

    @property
    def tokens(self) -> dict[str, int]:
        """The tokens that each source gives; what it will really give is less than a sample more."""
        return {name: sum(stage.get(name, 0) for stage in self.stages) for name in self.sources}

    @property
    def epochs(self) -> dict[str, float]:
        """How often each source is read."""
        return {name: tokens / self.sizes[name] for name, tokens in self.tokens.items()}

    def __str__(self) -> str:
        """Returns a table of the sources, and a line for each of several stages."""
        total, unit = sum(self.tokens.values()), "trained tokens" if self.trained else "tokens"
        lines = [f"{'source':<20}{'has ' + unit:>24}{'gives':>20}{'share':>9}{'epochs':>9}"]
        for name, tokens in self.tokens.items():
            share, epochs = tokens / total, self.epochs[name]
            lines.append(f"{name:<20}{self.sizes[name]:>24,}{tokens:>20,}{share:>9.2%}{epochs:>9.2f}")
        for number, stage in enumerate(self.stages if len(self.stages) > 1 else (), 1):
            its = sum(stage.values())
            shares = ", ".join(f"{name} {tokens / its:.2%}" for name, tokens in stage.items())
            lines.append(f"stage {number}: {its:,} {unit}: {shares}")
        return "\n".join(lines)

    def write(self, folder: str | os.PathLike[str]) -> "Mixture":
        """Writes the index into a new folder, or over another mixture, and returns its rows.

        Memory: 4 bytes for each row of all sources, 1.1 for each sample, and 0.5 MB for each source.

        Raises:
          ValueError: if the folder holds something else.
          OSError: if a source cannot be read or the index not be written.
        """
        folder = os.fspath(folder)
        chosen, given = self._choose()
        n_blocks = -(-chosen.size // _BLOCK)
        blocks = np.zeros(n_blocks, _dtype(len(self.sources)))
        filled = np.append(chosen, np.full(n_blocks * _BLOCK - chosen.size, 0xFF, np.uint8))
        blocks["sources"] = filled.reshape(n_blocks, _BLOCK)
        for i in range(len(self.sources)):
            counts = np.count_nonzero(blocks["sources"] == i, axis=1)
            blocks["before"][:, i] = np.cumsum(counts) - counts
        record = {
            "samples": int(chosen.size),
            "seed": self.seed,
            "trained": self.trained,
            "stages": [dict(stage) for stage in self.stages],
            "given": {
                name: {"rows": int(np.count_nonzero(chosen == i)), "tokens": int(given[i])}
                for i, name in enumerate(self.sources)
            },
        }
        index.write(folder, Mixture.kind, record, self.sources, {_FILE: blocks})
        return Mixture(folder, self.sources)

    def _choose(self) -> tuple[npt.NDArray[np.uint8], Int64s]:
        """Returns the source of each sample, and the tokens that all of them give."""
        from tokenmill.pipeline.data import mixture_kernels  # needs numba

        n, names = len(self.sources), list(self.sources)
        readers = _readers(self.sources, self.seed)
        sizes = [
            np.concatenate([*rows.sizes(trained=self.trained)]).astype(np.uint32) for rows in self.sources.values()
        ]
        goals = np.array([[stage.get(name, 0) for name in names] for stage in self.stages], np.int64)
        asked = np.concatenate([np.zeros((1, n), np.int64), np.cumsum(goals, axis=0)])
        # Each epoch has an order, which is made anew: of few rows, few epochs are read ahead.
        n_ahead = np.array([min(_AHEAD, 8 * each.size) for each in sizes])
        ahead, at, given = np.zeros((n, _AHEAD), np.int64), n_ahead.copy(), np.zeros(n, np.int64)
        first, ending, bounds = np.zeros(n, np.int64), np.zeros(n, np.int64), asked.sum(axis=1)
        out, chosen = np.empty(_AHEAD, np.uint8), []
        while (given < asked[-1]).any():
            for i in np.flatnonzero(at == n_ahead):
                ahead[i, : n_ahead[i]] = sizes[i][readers[i].rows_at(first[i] + np.arange(n_ahead[i]))]
                first[i], at[i] = first[i] + n_ahead[i], 0
            chosen.append(out[: mixture_kernels.choose(ahead, n_ahead, at, given, ending, asked, bounds, out)].copy())
        return np.concatenate(chosen), given


def _dtype(n_sources: int) -> np.dtype:
    return np.dtype([("before", "<i8", (n_sources,)), ("sources", "u1", (_BLOCK,))])


def _readers(sources: Mapping[str, Rows], seed: int | None) -> list[Samples]:
    """Returns the endless reader of each source; one more source changes the order of no other."""
    readers = []
    for name, rows in sources.items():
        own = hashlib.sha256(f"{seed} {name}".encode()).digest()[:8]
        readers.append(Samples(rows, 1, seed=None if seed is None else int.from_bytes(own, "little")))
    return readers


class Mixture(index.Indexed):
    """The samples of a mixture, in its order: reading it once is one epoch, and the shares hold from its beginning."""

    kind = "mixture"

    def __init__(self, *arguments: Any, **options: Any) -> None:
        """See `index.Indexed`."""
        super().__init__(*arguments, **options)
        self._blocks = self.array(_FILE, _dtype(len(self.sources)))
        self._readers = _readers({name: self._read(rows) for name, rows in self.sources.items()}, self.record["seed"])

    def _read(self, rows: Rows) -> Rows:
        return rows if self._columns is None else rows.with_columns(self._columns)

    def _schema(self, columns: Sequence[str] | None) -> pa.Schema:
        schemas = {name: self._read(rows).schema for name, rows in self.sources.items()}
        first = next(iter(schemas.values()))
        fields = [first.field(each) for each in columns or first.names]
        for name, schema in schemas.items():
            fields = [field for field in fields if field.name in schema.names]
            for field in fields:
                if not (own := schema.field(field.name)).equals(field):
                    raise ValueError(
                        f"{self.name!r}: {field.name} is {field.type} in {next(iter(schemas))}, but {own.type} in "
                        f"{name}{', where it may be null' * own.nullable}: choose other columns"
                    )
        return pa.schema(fields)

    def __len__(self) -> int:
        """Returns the number of samples."""
        return int(self.record["samples"])

    def __repr__(self) -> str:
        """Returns what each source gives."""
        given = ", ".join(
            f"{name} {counts['tokens']:,} tokens in {counts['rows']:,}" for name, counts in self.record["given"].items()
        )
        return f"<Mixture {self.name}: {len(self):,} samples: {given}; digest {self.digest[:12]}>"

    def samples(self, batch_size: int, *, seed: int | None = None, **options: Any) -> Samples:
        """Returns the batches of one rank, in the order of the mixture unless a seed shuffles it; see `Samples`."""
        return super().samples(batch_size, seed=seed, **options)

    def places(self, samples: npt.ArrayLike) -> tuple[Int64s, Int64s]:
        """Returns for each sample the number of its source, and its row there; int64[n] each."""
        numbers = self.checked(samples)
        sources, rows = np.zeros(numbers.size, np.int64), np.zeros(numbers.size, np.int64)
        blocks, within = np.divmod(numbers, _BLOCK)
        every = np.arange(len(self.sources))
        for block in np.unique(blocks):
            which = np.flatnonzero(blocks == block)
            its = self._blocks["sources"][block]
            up_to = np.cumsum(its[:, None] == every, axis=0, dtype=np.int32)
            sources[which] = chosen = its[within[which]]
            rows[which] = self._blocks["before"][block][chosen] + up_to[within[which], chosen] - 1
        for i in np.unique(sources):
            rows[sources == i] = self._readers[i].rows_at(rows[sources == i])
        return sources, rows

    def problems(self) -> Iterator[str]:
        """Yields sources that do not give as many rows and tokens as the record says.

        Memory: 4 bytes for each row of all sources.
        """
        trained = self.record["trained"]
        sizes = [np.concatenate([*rows.sizes(trained=trained)]).astype(np.uint32) for rows in self.sources.values()]
        given = np.zeros((len(sizes), 2), np.int64)
        for first in range(0, len(self), _AHEAD):
            sources, numbers = self.places(np.arange(first, min(first + _AHEAD, len(self))))
            for i in np.unique(sources).tolist():
                its = numbers[sources == i]
                given[i] += its.size, sizes[i][its].sum(dtype=np.int64)
        for (name, recorded), counted in zip(self.record["given"].items(), given.tolist(), strict=True):
            if [recorded["rows"], recorded["tokens"]] != counted:
                yield f"{self.name}: {name} gives {counted[1]} tokens in {counted[0]} rows, the record says {recorded}"

    def take(self, rows: npt.ArrayLike) -> pa.RecordBatch:
        """Returns samples by number; see `Rows.take`."""
        sources, numbers = self.places(rows)
        batches, parts = [], []
        for i in np.unique(sources):
            places = np.flatnonzero(sources == i)
            batches.append(self._readers[i].rows.take(numbers[places]))
            parts.append((np.arange(places.size), places))
        return gathered(batches, parts, self.schema)
