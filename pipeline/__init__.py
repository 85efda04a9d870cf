# SPDX-License-Identifier: Apache-2.0
"""The pipeline: files in, token shards, statistics and a manifest out, on Apache Beam.

Only `arrow_coder`, `transforms`, `jobs`, `runners` and what starts workers import Beam:

- `config`, `schemas`: what a job computes, and every Arrow schema on the way;
- `splits`, `storage`, `readers`, `counting`, `tokenizing`, `statistics`, `writers`, `ledger`, `manifest`: the work,
  as plain functions over columns;
- `planning`, `transforms`, `jobs`: what a job will do, and the same work as Beam graphs;
- `runners`, `worker_pool`, `progress`, `display`, `summary`, `cli`: where a job runs and what a person sees of it.
"""
