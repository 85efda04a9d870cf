# SPDX-License-Identifier: Apache-2.0
"""One split becomes a shard, page by page. In: a split. Out: committed files, or sorted runs of a shuffle.

No Beam here: `transforms` wires the same steps into a graph.

    Split --read_pages--> Page --Normalize--> --Encode--> --Count--> Page --SplitWriter--> shard, rejects, ledger entry
                          ReadBatch           Texts       Encoded    rows

A `Page` is a few MiB of a split, and `steps.STEPS` are the steps between reader and writer: a new one is a class with
the interface of `pages.Step`, and an entry in that tuple. `encoders` are the ways from texts to ids: plain, with spans,
fill in the middle, conversations. `tokenize.tokenize_split` is all of it as a plain loop: for replays, deep
verification and tests.
"""
