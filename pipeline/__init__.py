# SPDX-License-Identifier: Apache-2.0
"""The pipeline: files in, token shards, statistics and a manifest out, on Apache Beam.

Every folder is a room; its first lines say what comes in and what goes out. A room imports only rooms below it, and
only `transforms` and a few modules of `running` import Beam when they are imported. From the top:

- `cli`, `commands`: what a person types;
- `transforms`: the work as Beam graphs, for these jobs and for your own; `proving`: checks of what a folder claims;
- `looking`: tokens as text; `comparing`: tokenizers against one another;
- `estimating`: what a job would do, from a sample;
- `jobs`: planning before, finishing after; `reporting`: what people are told;
- `tokenizing`, `counting`, `training`, `shuffling`: the work, as plain functions over columns;
- `output`, `input`: tokens to files, files to documents;
- `running`: where a job runs, and how far it is;
- `books`, `statistics`: what is counted, and which counts must be equal;
- `config`, `schemas`, `splits`, `filenames`, `storage`, `columns`, `hashing`: the terms and files all of them share.
"""

VERSION = "0.2.0"
"""The version of TokenMill, as in pyproject.toml."""
