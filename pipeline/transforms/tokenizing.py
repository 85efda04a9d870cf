# SPDX-License-Identifier: Apache-2.0
"""Transforms from splits to committed shards; of a shuffle to sorted runs, and from these to shards."""

import dataclasses
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import apache_beam as beam

from tokenmill.pipeline.books.shard_entry import add_digests, runs_digest, runs_of
from tokenmill.pipeline.books.sums import SplitRuns, Sums
from tokenmill.pipeline.config.job import Config
from tokenmill.pipeline.jobs.planning import SHUFFLING_STAGE, TOKENIZING_STAGE, read_plan
from tokenmill.pipeline.running.clock import Stopwatch
from tokenmill.pipeline.shuffling.passes import Pass, deal, merge_runs
from tokenmill.pipeline.shuffling.shards import PlannedShard, load_committed, name_shard, recorded_digest
from tokenmill.pipeline.splits import Split
from tokenmill.pipeline.tokenizing.tokenize import SplitOfPart, merge_planned, schema_of_runs, tokenize_parts
from tokenmill.pipeline.transforms.compiled import TokenizerText, compiled_tokenizer, compiled_tokenizers
from tokenmill.pipeline.transforms.stages import StageReport, call_once, enter_stage


@dataclasses.dataclass
class TokenizeSplits(beam.PTransform):
    """Tokenizes splits into committed shards of one folder, or of several in one reading.

    Input: JSON of a split and of its id in each folder. Output: for each folder its number, the split's index and id,
    and "", once shard and ledger entry are on disk; if the job shuffles, at last `SplitRuns` as JSON. If a split is
    committed already, its files are only read. Memory: one batch, and for each folder its tokens and a row group, or a
    run two to three times, per worker. Counters: bytes-in, documents-in, documents-rejected, documents-filtered,
    tokens-out, splits-done. Bad documents go to `rejected/`.
    """

    output: str
    """`output.path`, above all folders."""
    configs: Sequence[Config]
    """The config of each folder."""
    n_splits: int
    tokenizers: Sequence[TokenizerText]
    """Of each folder, or one for all."""
    merged: Sequence[tuple[Any, int]] = ()
    """If the job shuffles, of each folder: how many shards are merged already, as a side input, and how many it has."""

    def expand(self, splits: Any) -> Any:  # noqa: D102
        fn = _TokenizeSplitsFn(self.output, self.configs, self.n_splits, [n for _, n in self.merged])
        merged = [n_merged for n_merged, _ in self.merged]
        done = beam.ParDo(fn, *merged, *self.tokenizers).with_output_types(tuple[int, int, str, str])
        return splits | "TokenizeSplit" >> done


class _TokenizeSplitsFn(beam.DoFn):
    def __init__(self, output: str, configs: Sequence[Config], n_splits: int, n_shards: Sequence[int]) -> None:
        self._output, self._configs, self._n_splits, self._n_shards = output, configs, n_splits, n_shards
        self._report = StageReport(TokenizeSplits, TOKENIZING_STAGE)

    def process(self, element: str, *merged_and_tokenizers: Any) -> Iterator[tuple[int, int, str, str]]:
        line, ids = json.loads(element)
        split, n = Split.from_json(line), len(self._n_shards)
        merged, texts = merged_and_tokenizers[:n], merged_and_tokenizers[n:]
        tokenizers = compiled_tokenizers(texts, len(ids))
        are_merged = [False] * len(ids)
        if n:
            are_merged = [done == n_shards for done, n_shards in zip(merged, self._n_shards, strict=True)]
        splits = [dataclasses.replace(split, id=each) for each in ids]
        folders = [*map(SplitOfPart, splits, self._configs, tokenizers, are_merged)]
        with self._report.of(split.id, Stopwatch(self._output, split)) as on_batch:
            entries = tokenize_parts(folders, self._n_splits, on_batch)
        for index, entry in enumerate(entries):
            yield index, split.index, entry.split_id, json.dumps(runs_of(entry).to_record()) if n else ""


@dataclasses.dataclass
class FindMergedShards(beam.PTransform):
    """Finds the shards of a shuffle that an earlier run has merged from exactly the runs that the ledger records.

    Input: planned shards. Output: the ids of shards that are on disk as recorded. Memory: small; reads the files.
    """

    config: Config
    plan_path: str
    tokenizer: TokenizerText

    def expand(self, shards: Any) -> Any:  # noqa: D102
        recorded = call_once(shards.pipeline, "ReadRecorded", _recorded_runs, self.plan_path, self.config.output.path)
        find = beam.FlatMap(_find_merged, self.config, beam.pvalue.AsSingleton(recorded), self.tokenizer)
        return shards | "FindMerged" >> find.with_output_types(str)


def _recorded_runs(plan_path: str, output: str) -> str:
    return recorded_digest(output, map(Split.from_json, read_plan(plan_path))) or ""


def _find_merged(shard: PlannedShard, config: Config, runs: str, tokenizer_json: str) -> Iterator[str]:
    digest = compiled_tokenizer(tokenizer_json).digest
    if runs and load_committed(shard, runs, config.output, digest) is not None:
        yield shard.id


@dataclasses.dataclass
class MergeRuns(beam.PTransform):
    """One pass of a shuffle: merges the runs of neighbours, and cuts the result by ranges of keys.

    Input and output: `SplitRuns` as JSON. Memory: bounded, see `shuffling.merging`, and a run two to three times; disk:
    the documents of all splits once more.
    """

    config: Config
    into: Pass
    n_merged: Any
    """Side input: how many shards are merged already."""
    n_shards: int

    def expand(self, runs: Any) -> Any:  # noqa: D102
        merge = beam.Map(_merge_runs, self.config, self.into, self.n_merged, self.n_shards)
        return _grouped(runs, self.into) | "MergeRun" >> merge.with_output_types(str)


@dataclasses.dataclass
class MergeShards(beam.PTransform):
    """Merges runs into committed shards, each a range of hashes.

    Input: `SplitRuns` as JSON, of all splits or of the last pass. Output: the index and the id of each shard, once its
    files and its entry are on disk. Memory: bounded, see `shuffling.merging`, and what the writers hold. Counters:
    bytes-in, documents-in, tokens-out, splits-done.
    """

    config: Config
    tokenizer: TokenizerText
    digest: Any
    """Side input: `runs_digest` of all splits."""
    n_shards: int
    n_bytes: int
    salt: str
    """As `name_shards` takes them."""

    def expand(self, runs: Any) -> Any:  # noqa: D102
        merge = beam.ParDo(_MergeShardsFn(self), self.tokenizer, self.digest).with_output_types(tuple[int, str])
        return _grouped(runs, Pass(1 << 62, self.n_shards)) | "MergeShard" >> merge


@beam.ptransform_fn
def DigestRuns(runs: Any) -> Any:  # noqa: N802
    """Returns a PCollection of one element, `runs_digest` of `SplitRuns` in JSON."""
    return runs | "Digest" >> beam.Map(_digest_of).with_output_types(str) | beam.CombineGlobally(add_digests)


def _digest_of(runs: str) -> str:
    return runs_digest([_parsed(runs)])


class _MergeShardsFn(beam.DoFn):
    def __init__(self, parameters: MergeShards) -> None:
        self._config = parameters.config
        self._named = parameters.n_shards, parameters.n_bytes, parameters.salt
        self._report = StageReport(MergeShards, SHUFFLING_STAGE)

    def process(
        self, element: tuple[tuple[int, int], Iterable[str]], tokenizer_json: str, digest: str
    ) -> Iterator[tuple[int, str]]:
        (_, index), runs = element
        planned, tokenizer = name_shard(index, *self._named), compiled_tokenizer(tokenizer_json)
        with self._report.of(planned.id) as on_rows:
            entry = merge_planned(planned, [*map(_parsed, runs)], self._config, tokenizer, on_rows, runs=digest)
        yield index, entry.shard_id


def _grouped(runs: Any, into: Pass) -> Any:
    """Returns for each group and range the runs to merge, as JSON."""
    dealt = runs | "Deal" >> beam.FlatMap(_dealt, into).with_output_types(tuple[tuple[int, int], str])
    return dealt | beam.GroupByKey()


def _dealt(runs: str, into: Pass) -> Iterator[tuple[tuple[int, int], str]]:
    for key, needed in deal(_parsed(runs), into):
        yield key, json.dumps(needed.to_record())


def _merge_runs(
    element: tuple[tuple[int, int], Iterable[str]], config: Config, into: Pass, n_merged: int, n_shards: int
) -> str:
    enter_stage(SHUFFLING_STAGE)
    (group, number), texts = element
    runs, part = [*map(_parsed, texts)], (number, into.n_ranges)
    if n_merged == n_shards:  # the runs may have been removed, and nobody needs them
        merged = SplitRuns("", group, "", (), Sums(), runs[0].fields, part)
    else:
        assert config.output.shuffle is not None
        run_bytes, schema = config.output.shuffle.run_bytes, schema_of_runs(config, runs)
        merged = merge_runs(runs, group, part, config.output.path, run_bytes, schema)
    return json.dumps(merged.to_record())


def _parsed(runs: str) -> SplitRuns:
    return SplitRuns.from_record(json.loads(runs))
