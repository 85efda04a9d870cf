# SPDX-License-Identifier: Apache-2.0
"""Compares tokenizers. In: tokenizer files, and a corpus or word counts. Out: a comparison, as data and as a page.

`comparison.compare` does all of it. `from_text` reads documents, `from_counts` the words of a counts artifact. Both
keep `Sums` by source, language and script, and `Words`; `measure` makes the comparison from these, plain JSON. `probes`
tests tokenizers on made-up texts, `loading` also cuts a BPE tokenizer down to smaller sizes. `conditions` are those of
`--fail-if`; `page` makes tables for people, prints and draws them.
"""
