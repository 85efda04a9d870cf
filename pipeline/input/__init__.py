# SPDX-License-Identifier: Apache-2.0
"""Files become documents. In: patterns and formats. Out: splits, then batches of `schemas.DOCUMENTS` and of rejects.

::

    patterns --matching--> files --splitting--> splits --reading.read_split--> batches of documents and rejects
                                                              |
      file --decompressing, streams--> bytes --cutting--> records --reader of the format--> parts --batches-->

`matching` lists files, `splitting` cuts them into splits, `reading.read_split` reads one. A stream of bytes (`streams`,
`decompressing`) is cut into records by `cutting`, for all formats alike; the reader that `readers` lists for a format
finds the records and makes documents of them, and `batches` gathers these. Files of rows (`row_files`) have their
documents in columns (`columnar`).

A record that cannot be used becomes a reject, with a reason from the closed list in `rejects`. `given_up` does the same
for documents on which text steps or the tokenizer give up; `unusable` fails a job that can use no record at all.
`languages` identifies the languages of documents.
"""
