# SPDX-License-Identifier: Apache-2.0
"""Decoders turn tokens back into text. They have HF's names, and HF's results on every list of tokens."""

from tokenmill.tokenizer.decoders.base import Decoder as Decoder
from tokenmill.tokenizer.decoders.base import TokenTexts as TokenTexts
from tokenmill.tokenizer.decoders.byte_tokens import ByteFallback as ByteFallback
from tokenmill.tokenizer.decoders.byte_tokens import ByteLevel as ByteLevel
from tokenmill.tokenizer.decoders.byte_tokens import characters_of as characters_of
from tokenmill.tokenizer.decoders.edits import Fuse as Fuse
from tokenmill.tokenizer.decoders.edits import Replace as Replace
from tokenmill.tokenizer.decoders.edits import Strip as Strip
from tokenmill.tokenizer.decoders.sequence import Sequence as Sequence
from tokenmill.tokenizer.decoders.sequence import of_sentencepiece as of_sentencepiece
from tokenmill.tokenizer.decoders.sequence import token_pieces as token_pieces
from tokenmill.tokenizer.decoders.words import CTC as CTC
from tokenmill.tokenizer.decoders.words import BPEDecoder as BPEDecoder
from tokenmill.tokenizer.decoders.words import Metaspace as Metaspace
from tokenmill.tokenizer.decoders.words import WordPiece as WordPiece
