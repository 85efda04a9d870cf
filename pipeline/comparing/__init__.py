# SPDX-License-Identifier: Apache-2.0
"""Tokenizers against one another. In: tokenizer files, and a corpus or word counts. Out: a comparison, data and page.

`comparison.compare` does all of it. `from_text` reads documents by `reading`, `from_counts` the words of a counts
artifact. Both keep `sums` by source, language and script, and `words`; `measure` makes the comparison of them, plain
JSON. `probes` looks at the tokenizers alone, `sweep` cuts one of BPE down to smaller sizes. `conditions` are what a CI
asks of the numbers; `views` are what people see, `page` draws them.
"""
