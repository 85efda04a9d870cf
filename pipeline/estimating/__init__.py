# SPDX-License-Identifier: Apache-2.0
"""Estimates what a job would do, from a sample. In: a plan. Out: a forecast with bounds; nothing is left on disk.

    splits of the plan --sample--> finer splits --trial--> ledger, moments --estimates--> Forecast --report--> table

`trial` runs the job itself in a temporary folder; `rehearsal` gives it a page of made-up text, to compile kernels.
"""
