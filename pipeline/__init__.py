# SPDX-License-Identifier: Apache-2.0
"""The pipeline: files in, token shards, statistics and a manifest out, on Apache Beam.

Only `arrow_coder`, `transforms`, `jobs`, `runners` and what starts workers import Beam:

- `config`, `schemas`: what a job computes, and every Arrow schema on the way;
- `splits`, `storage`, `readers`, `counting`, `tokenizing`, `statistics`, `writers`: the work, as plain functions over
  columns;
- `ledger`, `staging`, `balance`, `totals`, `manifest`, `output_folder`, `finishing`, `verify`: what is kept of it, and
  the proof;
- `planning`, `transforms`, `jobs`: what a job will do, and the same work as Beam graphs;
- `runners`, `worker_pool`, `progress`, `display`, `summary`, `outlets`, `cli`, `commands`: where a job runs and what a
  person sees of it.
"""

VERSION = "0.2.0"
"""TokenMill's, as in pyproject.toml."""
