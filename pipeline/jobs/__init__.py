# SPDX-License-Identifier: Apache-2.0
"""What surrounds the work of a job. In: a checked config. Out: a plan; at the end, a finished output folder.

`planning` finds out what a job will do before it does anything, `same_job` whether a folder is its own, `finish`
writes statistics and the manifest. `rehearsal` and `warming` compile ahead what the job will run.
"""
