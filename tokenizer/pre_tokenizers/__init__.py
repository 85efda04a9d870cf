# SPDX-License-Identifier: Apache-2.0
"""Pre-tokenizers split a text into words, before the model cuts these into tokens."""

from tokenmill.tokenizer.pre_tokenizers.characters import BertPreTokenizer as BertPreTokenizer
from tokenmill.tokenizer.pre_tokenizers.characters import CharDelimiterSplit as CharDelimiterSplit
from tokenmill.tokenizer.pre_tokenizers.characters import Digits as Digits
from tokenmill.tokenizer.pre_tokenizers.characters import FixedLength as FixedLength
from tokenmill.tokenizer.pre_tokenizers.characters import Punctuation as Punctuation
from tokenmill.tokenizer.pre_tokenizers.characters import UnicodeScripts as UnicodeScripts
from tokenmill.tokenizer.pre_tokenizers.characters import Whitespace as Whitespace
from tokenmill.tokenizer.pre_tokenizers.characters import WhitespaceSplit as WhitespaceSplit
from tokenmill.tokenizer.pre_tokenizers.pieces import PreTokenizer as PreTokenizer
from tokenmill.tokenizer.pre_tokenizers.scanners import Scanner as Scanner
from tokenmill.tokenizer.pre_tokenizers.sequence import ByteLevel as ByteLevel
from tokenmill.tokenizer.pre_tokenizers.sequence import Metaspace as Metaspace
from tokenmill.tokenizer.pre_tokenizers.sequence import Sequence as Sequence
from tokenmill.tokenizer.pre_tokenizers.sequence import is_byte_level as is_byte_level
from tokenmill.tokenizer.pre_tokenizers.sequence import scanner_of as scanner_of
from tokenmill.tokenizer.pre_tokenizers.split import Split as Split
