# SPDX-License-Identifier: Apache-2.0
"""Pre-tokenizers split a text into words, before the model cuts these into tokens."""

from tokenizer.pre_tokenizers.byte_level import ByteLevel as ByteLevel
from tokenizer.pre_tokenizers.byte_level import Metaspace as Metaspace
from tokenizer.pre_tokenizers.characters import BertPreTokenizer as BertPreTokenizer
from tokenizer.pre_tokenizers.characters import CharDelimiterSplit as CharDelimiterSplit
from tokenizer.pre_tokenizers.characters import Digits as Digits
from tokenizer.pre_tokenizers.characters import FixedLength as FixedLength
from tokenizer.pre_tokenizers.characters import Punctuation as Punctuation
from tokenizer.pre_tokenizers.characters import UnicodeScripts as UnicodeScripts
from tokenizer.pre_tokenizers.characters import Whitespace as Whitespace
from tokenizer.pre_tokenizers.characters import WhitespaceSplit as WhitespaceSplit
from tokenizer.pre_tokenizers.pieces import PreTokenizer as PreTokenizer
from tokenizer.pre_tokenizers.scanner_patterns import Scanner as Scanner
from tokenizer.pre_tokenizers.sequence import Sequence as Sequence
from tokenizer.pre_tokenizers.sequence import is_byte_level as is_byte_level
from tokenizer.pre_tokenizers.sequence import scanner_of as scanner_of
from tokenizer.pre_tokenizers.split import Split as Split
