# SPDX-License-Identifier: Apache-2.0
"""Counts that show how well a vocabulary fits a corpus. In: batches of texts and their tokens. Out: sums.

    texts, tokens -------------> tally.Statistics, a `Counts` --> numbers in the entry, columns and words beside it
    some of them --> sample --/

`vocabulary` has the table of entries, and measures of it; `reporting.stats` puts all of it together.
"""
