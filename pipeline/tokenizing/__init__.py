# SPDX-License-Identifier: Apache-2.0
"""Tokenizes documents. In: one split and a tokenizer. Out: the split's committed shard, or its sorted runs.

`tokenize.tokenize_split` is the heart of the job `tokenize`: read, normalize, tokenize, write, commit, all in one
process, so that no document crosses the runner.
"""
