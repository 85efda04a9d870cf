# SPDX-License-Identifier: Apache-2.0
"""Where a job runs, and its progress. In: options of the command line. Out: a Beam runner, and progress.

`runners` chooses between local workers (`worker_pool`, `worker_process`) and a runner elsewhere (`external_workers`);
`progress` adds up what workers have done, and `display` draws it.
"""
