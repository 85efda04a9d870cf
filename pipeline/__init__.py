# SPDX-License-Identifier: Apache-2.0
"""The pipeline: files in, token shards, statistics and a manifest out, on Apache Beam.

Every folder is a package; the docstring of its `__init__.py` says what goes in and what comes out. A package imports
only packages below it. Only `transforms`, `rows` and a few modules of `running` import Beam at once. From the top:

- `cli`, `commands`: the command line;
- `transforms`: the jobs as Beam graphs; `rows`: steps for your own pipelines;
- `proving`: checks of what an output folder claims;
- `data`: finished outputs as training data, which is `tokenmill.data`;
- `looking`: tokens as text; `comparing`: tokenizers against one another;
- `estimating`: what a job would do, estimated from a sample;
- `jobs`: planning before the work, finishing after it; `reporting`: summaries and reports for people;
- `tokenizing`, `counting`, `training`, `shuffling`: the work, as plain functions over columns;
- `output`, `input`: tokens to files, files to documents;
- `running`: where a job runs, and its progress;
- `books`, `statistics`: what is counted, and which counts must be equal;
- `config`, `schemas`, `splits`, `filenames`, `storage`, `columns`, `hashing`: terms and files that all of them share.
"""

VERSION = "0.2.0"
"""The version of TokenMill, as in pyproject.toml."""
