# SPDX-License-Identifier: Apache-2.0
"""Estimates what a job would do, from a sample. In: a plan. Out: a forecast with bounds; nothing is left on disk.

`places` chooses what to read, `trial` does the job's own work on it in a temporary folder, `estimates` scales the
counts up, `costs` estimates time and memory, `forecast` puts these together, `advice` says which settings to change,
`report` shows all of it, beside a finished job. `rehearsal` runs a job on a page of made-up text.
"""
