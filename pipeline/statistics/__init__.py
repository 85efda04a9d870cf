# SPDX-License-Identifier: Apache-2.0
"""Counts that show how well a vocabulary fits a corpus. In: batches of texts and their tokens. Out: sums.

    texts, tokens -------------> tally.Statistics, a `Counts` --> numbers in the entry, columns and words beside it
    some of them --> sample --/

`texts` and `languages` say what the numbers of steps, spans and languages mean in stats.json, `token_table` and
`vocabulary` those of the entries of a vocabulary; `reporting.stats` puts all of it together.
"""
