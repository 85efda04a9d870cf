# SPDX-License-Identifier: Apache-2.0
"""Tokens become files. In: batches of token rows. Out: shards under their final names, and the records of their files.

`shard.Shard` writes all files of one shard: rows in every requested format (`writers`), packed or cut into windows
where the config says so (`packing`), and the table of its documents (`document_tables`). `staging` gives files their
final names; `folders` and `ownership` decide who may write into an output folder.
"""
