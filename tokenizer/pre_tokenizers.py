# SPDX-License-Identifier: Apache-2.0
"""Pre-tokenizers: where a text may be split before the model sees it."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class BertPreTokenizer:
    """Splits at white space, which goes, and around punctuation, which stays as pre-tokens of one character.

    Source: HF tokenizers `pre_tokenizers/bert.rs`.
    """
