# SPDX-License-Identifier: Apache-2.0
"""What a job is asked to do. In: a YAML file and overrides. Out: a checked `job.Config`, or every mistake at once.

`job.Config` is a whole file; each of its sections has a module of its own. Settings are checked in themselves, then
against each other, before anything is read or written.
"""
