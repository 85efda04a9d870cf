# SPDX-License-Identifier: Apache-2.0
"""Documents become rows. In: the tokens of documents. Out: rows as they are stored; or from rows, documents again.

`marks` puts ids around a document, `windows` cuts it into overlapping rows, `sequences` packs documents into rows of
one length. `windowed` and `packed` read such rows back, to verify them.
"""
