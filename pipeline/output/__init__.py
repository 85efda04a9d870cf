# SPDX-License-Identifier: Apache-2.0
r"""Tokens become files. In: batches of token rows. Out: shards under their final names, and the records of their files.

    documents -> Shard --arranging--> rows -> writers, one for each format -> staged files -> final names
                   \--placement--> table of documents: which row holds what

`shard.Shard` writes all files of one shard: rows in every requested format (`writers`), and the table of its documents
(`tables`). `placement` knows which part of which document stands where in which row, for those who write rows
and those who read them; `arranging` makes the rows that are windows or packed sequences. `staging` gives files their
final names; `folders` and `ownership` decide who may write into an output folder.
"""
