# SPDX-License-Identifier: Apache-2.0
"""The beginning and the end of a job. In: a checked config. Out: a plan; then, a finished output folder.

    config --> planning --> plan.jsonl ... ledger --> totals.Totals --> finish --> stats.json, manifest.json

`planning` decides what a job will do before it does anything; `same_job` checks whether a folder belongs to it;
`totals` adds up the ledger, in one process or in stretches of many, for `finish` and for `proving.verify`.
"""
