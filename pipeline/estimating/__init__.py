# SPDX-License-Identifier: Apache-2.0
"""Estimates what a job would do, from a sample. In: a plan. Out: a forecast with bounds; nothing is left on disk.

    splits of the plan --sample--> finer splits --trial--> ledger, times --estimates--> Forecast --report--> table

`trial` is the job's own loop in a temporary folder; `rehearsal` runs a job on a page of made-up text.
"""
