# SPDX-License-Identifier: Apache-2.0
"""Models: pre-tokens to ids, one algorithm per file."""

from tokenmill.tokenizer.models.bpe import BPE as BPE
from tokenmill.tokenizer.models.unigram import Unigram as Unigram
from tokenmill.tokenizer.models.wordlevel import WordLevel as WordLevel
from tokenmill.tokenizer.models.wordpiece import OOV_POLICIES as OOV_POLICIES
from tokenmill.tokenizer.models.wordpiece import WordPiece as WordPiece
