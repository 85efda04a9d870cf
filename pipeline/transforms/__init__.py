# SPDX-License-Identifier: Apache-2.0
"""The jobs as Beam graphs, thin shells over the packages below. In: a plan. Out: steps that finish an output folder.

    run = CountCorpus > TrainVocabulary > TokenizeCorpus > Publish

    CountCorpus      ReadPlan > CountSplits > MergeCounts                    input -> counts/
    TrainVocabulary  Train                                                   counts/ -> tokenizer.json
    TokenizeCorpus   ReadSplits > Normalize > Encode > Count > WriteShards   input -> committed shards
                     ReadSplits first asks what an earlier run has committed, and reads the rest
                     or, if the job shuffles, ... > Count > SortRuns > MergeShards
    Publish          CountDone > Finish                                      -> manifest

`jobs` combines them, `elements` lists what flows, and `tokenmill plan --graph` prints all steps of a job. For your own
pipelines there is `tokenmill.pipeline.rows`. All transforms are deterministic, make no assumption on the order of
splits or on bundles, and may be retried.
"""
