# SPDX-License-Identifier: Apache-2.0
"""Shows tokens as text. In: shards, outputs, texts. Out: rows and texts as runs of text, for a terminal, a page, JSON.

`selecting` chooses rows; `inspect` shows them, and texts as tokenizers cut them; `difference` compares two outputs.
"""
