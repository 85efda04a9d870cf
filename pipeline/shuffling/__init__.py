# SPDX-License-Identifier: Apache-2.0
"""The global shuffle. In: tokenized documents in the order of the input. Out: shards in the order of a hash.

The hash is of a seed and of where a document stands in the input.

Two steps. The first leaves the documents of each split as sorted runs in `_runs/`. In the second each shard is a range
of hashes, merged from all runs. So the order depends on the seed and on the documents, and on nothing else; and no
process holds more than a stretch of its split or a piece of its shard.
"""
