# SPDX-License-Identifier: Apache-2.0
"""Files become documents. In: patterns and formats. Out: splits, then batches of `schemas.DOCUMENTS` and of rejects.

`splitting` cuts files into splits. `reading.read_split` reads one: bytes are decompressed (`decompressing`), cut into
records (`lines`, `text`, `jsonl`, `parquet`), and gathered into batches (`batches`). A record that cannot be used is a
reject, with a reason of the closed list in `rejects`. `languages` tells the languages of documents.
"""
