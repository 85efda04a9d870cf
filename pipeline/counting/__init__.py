# SPDX-License-Identifier: Apache-2.0
"""Counts words. In: splits. Out: the counts artifact, a folder of word counts, partitioned by hash and sorted.

    split --count_split--> sorted runs and a ledger entry --merge_partition--> one file --finish_counts--> counts.json

`count.count_split` counts one split, `finishing` merges the splits partition by partition, `counts` reads and writes
the artifact, and `arithmetic` adds, weights and subtracts artifacts.
"""
