# SPDX-License-Identifier: Apache-2.0
"""The work as Beam graphs. In: PCollections of splits or of columns. Out: PCollections; `jobs` puts them together.

Transforms are thin shells over the functions of the rooms below. They are for the jobs; for graphs of your own there is
`pipeline.rows`. Only split descriptors and names cross the runner:

- `tokenizing.TokenizeSplits`: a split -> a committed shard, in one fused step;
- `shuffling.SortSplits`, `FindMergedShards`, `MergeShards`: the same in two steps, for jobs that shuffle;
- `counting.CountSplits`, `MergeCounts`: splits -> the counts artifact;
- `training.TrainVocabularies`: the counts artifact -> tokenizers.

A tokenizer travels as the text of its `tokenizer.json`: a string, or a side input with one, and is compiled once per
process. All transforms are deterministic, make no assumption on order or batching, and may be retried.
"""
