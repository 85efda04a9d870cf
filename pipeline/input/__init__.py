# SPDX-License-Identifier: Apache-2.0
"""Files become documents. In: patterns and formats. Out: splits, then batches of `schemas.DOCUMENTS` and of rejects.

`splitting` cuts files into splits. `reading.read_split` reads one: `streams` gives its bytes, decompressed
(`decompressing`); what `readers` lists finds the records in them (`lines` cuts them), and `batches` gathers documents.

A record that cannot be used becomes a reject, with a reason from the closed list in `rejects`. `given_up` does the same
for documents on which text steps or the tokenizer give up; `unusable` fails a job that can use no record at all.
`languages` identifies the languages of documents.
"""
