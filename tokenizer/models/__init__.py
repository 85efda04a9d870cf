# SPDX-License-Identifier: Apache-2.0
"""Models: pre-tokens to ids, one algorithm per file."""

from tokenizer.models.bpe import BPE as BPE
from tokenizer.models.unigram import Unigram as Unigram
from tokenizer.models.wordlevel import WordLevel as WordLevel
from tokenizer.models.wordpiece import OOV_POLICIES as OOV_POLICIES
from tokenizer.models.wordpiece import WordPiece as WordPiece
