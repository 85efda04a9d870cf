# SPDX-License-Identifier: Apache-2.0
"""Normalizers change text before it is split. They have HF's names, and HF's results on every text."""

from tokenizer.normalizers.base import Normalizer as Normalizer
from tokenizer.normalizers.bert import BertNormalizer as BertNormalizer
from tokenizer.normalizers.characters import ByteLevel as ByteLevel
from tokenizer.normalizers.characters import Lowercase as Lowercase
from tokenizer.normalizers.characters import Nmt as Nmt
from tokenizer.normalizers.characters import StripAccents as StripAccents
from tokenizer.normalizers.edits import Prepend as Prepend
from tokenizer.normalizers.edits import Replace as Replace
from tokenizer.normalizers.edits import Strip as Strip
from tokenizer.normalizers.forms import NFC as NFC
from tokenizer.normalizers.forms import NFD as NFD
from tokenizer.normalizers.forms import NFKC as NFKC
from tokenizer.normalizers.forms import NFKD as NFKD
from tokenizer.normalizers.precompiled import Precompiled as Precompiled
from tokenizer.normalizers.sentencepiece import SentencePieceNormalizer as SentencePieceNormalizer
from tokenizer.normalizers.sequence import Sequence as Sequence
