# SPDX-License-Identifier: Apache-2.0
"""Shows tokens as text. In: shards, outputs, texts. Out: rows and texts as runs of text, for a terminal, a page, JSON.

`selecting` chooses rows, `inspect` shows them; `viz` shows a text as tokenizers cut it, `difference` what changed
between two outputs.
"""
