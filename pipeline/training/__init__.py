# SPDX-License-Identifier: Apache-2.0
"""Vocabularies are trained. In: a counts artifact and the `tokenizer` section. Out: tokenizers.

`train` trains one for every vocabulary size and every source of documents that is asked for; `tokenizers` loads
existing ones.
"""
