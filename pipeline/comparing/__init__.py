# SPDX-License-Identifier: Apache-2.0
"""Compares tokenizers. In: tokenizer files, and a corpus or word counts. Out: a comparison, as data and as a page.

    tokenizer files --load--> Candidate ---+
    documents, counts ------------------ corpora --> Sums --measure--> plain JSON --page--> tables, a page

`comparison.compare` does all of it, and loads tokenizers. `Sums` are by source, language and script, with the words and
the counts of ids.
"""
