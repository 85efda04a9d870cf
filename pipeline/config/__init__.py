# SPDX-License-Identifier: Apache-2.0
"""What a job is asked to do. In: a YAML file and overrides. Out: a checked `job.Config`, or every mistake at once.

`job.Config` is a whole file; each section has its own module. Every section is checked first, then the sections against
each other, before anything is read or written.
"""
