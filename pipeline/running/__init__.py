# SPDX-License-Identifier: Apache-2.0
"""Where a job runs, and its progress. In: options of the command line. Out: a Beam runner, and progress.

    --mode, --workers, -- --runner -> runners -> the calling thread | threads of Beam's | any other runner of Beam's
                                              -> workers: a service -> processes (worker_process), here or elsewhere
    batches, files of finished splits -> progress -> display: bars or lines; clock: times of a finished job

`runner_jobs` are jobs that outlive their command; `messages` tells an error once; `outlets` survives readers that
leave; `terminal` prints tables.
"""
