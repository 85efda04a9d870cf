# SPDX-License-Identifier: Apache-2.0
"""Tokens become files. In: batches of token rows. Out: shards under their final names, on disk as recorded.

`shard.Shard` writes all files of one shard: rows in every format asked for (`writers`), packed or cut into windows
where the config says so (`packing`), and the table of its documents (`document_tables`). `staging` brings files to
their names; `folders` and `ownership` say whose an output folder is.
"""
