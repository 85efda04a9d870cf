# SPDX-License-Identifier: Apache-2.0
"""The global shuffle. In: tokenized documents in the order of the input. Out: shards in the order of a hash.

    documents of a split --spill--> _runs/: sorted runs --passes, if many--> fewer runs --spill--> shards

The hash covers a seed and the place of a document in the input. There are two steps. The first writes the documents of
each split as sorted runs into `_runs/`. In the second (`shards`), each shard is a range of hashes, merged from all runs
(`output.spill`). Where there are very many runs, passes in between (`passes`) merge those of neighbouring splits. So
the order depends only on the seed and the documents, and no process holds more than a stretch of its split, or pieces
of its shard. `proving.shards` and `books.sums.imbalance_of_sums` prove that nothing was lost on the way.
"""
