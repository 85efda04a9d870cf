# SPDX-License-Identifier: Apache-2.0
"""What a job would do, found out from a sample. In: a plan. Out: a forecast with bounds; nothing else is written.

`places` chooses what to read, `trial` does the job's own work on it in a temporary folder, `estimates` scales the
counts up, `costs` says what time and memory the whole takes, `forecast` puts it together, `advice` says what to change,
`comparison` sets it beside what a finished job did.
"""
