# SPDX-License-Identifier: Apache-2.0
"""Counts that show how well a vocabulary fits a corpus. In: batches of texts and their tokens. Out: sums.

All of them are integers that add up in any order: for a split, for a job (`tally`), for a text step (`texts`), for a
language (`languages`). `tally` also compares them with the ledger; `reporting.stats` turns them into what people read.
"""
