# SPDX-License-Identifier: Apache-2.0
"""The jobs as Beam graphs. In: PCollections of splits. Out: PCollections of ids and entries; `jobs` combines them.

Transforms are thin shells over the functions of the packages below. They are for the jobs; for your own graphs there is
`tokenmill.pipeline.rows`. Only descriptions of splits and names go through Beam:

- `tokenizing.TokenizeSplits`: a split -> a committed shard, in one fused step;
- `FindMergedShards`, `MergeRuns`, `MergeShards` beside it: from the runs of splits to shards, for jobs that shuffle;
- `counting.CountSplits`, `MergeCounts`: splits -> the counts artifact;
- `TrainVocabularies` beside them: the counts artifact -> tokenizers.

A tokenizer travels as the text of its `tokenizer.json`, as a string or a side input, and each process builds it once.
All transforms are deterministic, make no assumption on order or batching, and may be retried.
"""
