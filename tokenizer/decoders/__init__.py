# SPDX-License-Identifier: Apache-2.0
"""Decoders turn tokens back into text. They have HF's names, and HF's results on every list of tokens."""

from tokenizer.decoders.base import Decoder as Decoder
from tokenizer.decoders.base import TokenTexts as TokenTexts
from tokenizer.decoders.byte_tokens import ByteFallback as ByteFallback
from tokenizer.decoders.byte_tokens import ByteLevel as ByteLevel
from tokenizer.decoders.byte_tokens import characters_of as characters_of
from tokenizer.decoders.edits import Fuse as Fuse
from tokenizer.decoders.edits import Replace as Replace
from tokenizer.decoders.edits import Strip as Strip
from tokenizer.decoders.pieces import token_pieces as token_pieces
from tokenizer.decoders.sequence import Sequence as Sequence
from tokenizer.decoders.sequence import of_sentencepiece as of_sentencepiece
from tokenizer.decoders.words import CTC as CTC
from tokenizer.decoders.words import BPEDecoder as BPEDecoder
from tokenizer.decoders.words import Metaspace as Metaspace
from tokenizer.decoders.words import WordPiece as WordPiece
