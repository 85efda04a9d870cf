# SPDX-License-Identifier: Apache-2.0
"""Trains vocabularies. In: a counts artifact and the `tokenizer` section. Out: tokenizers.

`train` trains one tokenizer for every requested vocabulary size and every source or language; `tokenizers` loads
existing ones.
"""
