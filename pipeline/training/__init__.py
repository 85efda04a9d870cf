# SPDX-License-Identifier: Apache-2.0
"""Vocabularies are trained. In: a counts artifact and the `tokenizer` section. Out: tokenizers.

`train` trains one for every size and source that is asked for; `tokenizers` loads existing ones.
"""
