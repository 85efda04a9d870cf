# SPDX-License-Identifier: Apache-2.0
"""Tokenizers against one another. In: tokenizer files, and a corpus or word counts. Out: a comparison, data and page.

`measure` makes the comparison, plain JSON. It reads documents by `reading` or takes the words of a counts artifact, and
keeps `sums` by source, language and script, and `words`. `vocabularies` and `probes` look at the tokenizers alone.
`conditions` are what a CI asks of the numbers; `tables` and `page` draw them.
"""
