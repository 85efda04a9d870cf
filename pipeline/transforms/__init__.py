# SPDX-License-Identifier: Apache-2.0
"""The jobs as Beam graphs, thin shells over the packages below. In: a plan. Out: steps that finish an output folder.

    run = CountCorpus > TrainVocabulary > TokenizeCorpus > Publish

`jobs` combines them, `elements` lists what flows, and `tokenmill plan --graph` draws all steps of a job, those of `run`
as in `docs/explanation/design.md`. For your own pipelines there is `tokenmill.pipeline.rows`. All transforms are
deterministic, make no assumption on the order of splits or on bundles, and may be retried.
"""
