# SPDX-License-Identifier: Apache-2.0
"""The work as Beam graphs. In: PCollections of splits or of columns. Out: PCollections; `jobs` puts them together.

Transforms are thin shells over the functions of the rooms below, for these jobs and for graphs of your own.

There are two families. The jobs use the first, in which only split descriptors and names cross the runner:

- `tokenizing.TokenizeSplits`: a split -> a committed shard, in one fused step;
- `shuffling.SortSplits`, `FindMergedShards`, `MergeShards`: the same in two steps, for jobs that shuffle;
- `counting.CountSplits`, `MergeCounts`: splits -> the counts artifact;
- `training.TrainVocabulary`: the counts artifact -> tokenizers.

The second exchanges columns, `pa.RecordBatch` of a few megabytes, and can be combined freely. Beam fuses
neighbours, so batches between them cost nothing; a shuffle in between pays for every byte:

- `documents.ReadDocuments`, `NormalizeDocuments`, `TokenizeDocuments`, `CountWords`.

A tokenizer travels as the text of its `tokenizer.json`: a string, or a side input with one, and is compiled once per
process. All transforms are deterministic, make no assumption on order or batching, and may be retried.
"""
