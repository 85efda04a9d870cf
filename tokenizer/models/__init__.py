# SPDX-License-Identifier: Apache-2.0
"""Models: pre-tokens to ids, one algorithm per file."""

from tokenizer.models.wordpiece import OOV_POLICIES as OOV_POLICIES
from tokenizer.models.wordpiece import WordPiece as WordPiece
