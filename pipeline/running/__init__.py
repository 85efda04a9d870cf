# SPDX-License-Identifier: Apache-2.0
"""Where a job runs, and its progress. In: options of the command line. Out: a Beam runner, and progress.

`runners` chooses between local workers and another runner; `workers` serves worker processes to both; `progress` adds
up what workers have done, and `display` shows it; `clock` records times; `runner_jobs` are jobs that outlive their
command; `outlets` survives readers that leave; `terminal` prints tables.
"""
