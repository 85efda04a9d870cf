# SPDX-License-Identifier: Apache-2.0
"""What a corpus and a vocabulary do to each other, counted. In: batches of texts and their tokens. Out: sums.

All of it is integers that add up in any order: those of a split, of a job, of a language. `reporting.stats` makes of
them what people read.
"""
