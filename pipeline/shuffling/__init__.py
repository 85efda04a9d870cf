# SPDX-License-Identifier: Apache-2.0
"""The global shuffle: documents in the order of a hash of a seed and of where they stand in the input. No Beam here.

Two steps. The first leaves the documents of each split as sorted runs in `_runs/`. In the second each shard is a range
of hashes, merged from all runs. So the order depends on the seed and on the documents, and on nothing else; and no
process holds more than a stretch of its split or a piece of its shard.
"""
