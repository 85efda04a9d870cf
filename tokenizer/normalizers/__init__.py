# SPDX-License-Identifier: Apache-2.0
"""Normalizers change text before it is split. They have HF's names, and HF's results on every text."""

from tokenmill.tokenizer.normalizers.base import Normalizer as Normalizer
from tokenmill.tokenizer.normalizers.base import Sequence as Sequence
from tokenmill.tokenizer.normalizers.characters import BertNormalizer as BertNormalizer
from tokenmill.tokenizer.normalizers.characters import ByteLevel as ByteLevel
from tokenmill.tokenizer.normalizers.characters import Lowercase as Lowercase
from tokenmill.tokenizer.normalizers.characters import Nmt as Nmt
from tokenmill.tokenizer.normalizers.characters import StripAccents as StripAccents
from tokenmill.tokenizer.normalizers.edits import Prepend as Prepend
from tokenmill.tokenizer.normalizers.edits import Replace as Replace
from tokenmill.tokenizer.normalizers.edits import Strip as Strip
from tokenmill.tokenizer.normalizers.forms import NFC as NFC
from tokenmill.tokenizer.normalizers.forms import NFD as NFD
from tokenmill.tokenizer.normalizers.forms import NFKC as NFKC
from tokenmill.tokenizer.normalizers.forms import NFKD as NFKD
from tokenmill.tokenizer.normalizers.sentencepiece import Precompiled as Precompiled
from tokenmill.tokenizer.normalizers.sentencepiece import SentencePieceNormalizer as SentencePieceNormalizer
