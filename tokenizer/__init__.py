# SPDX-License-Identifier: Apache-2.0
"""TokenMill's tokenizer library. This is the public API; everything else may change."""

import importlib
import typing

from tokenizer.added_tokens import AddedToken as AddedToken
from tokenizer.core import Tokenizer as Tokenizer
from tokenizer.counting import WORD_COUNTS as WORD_COUNTS
from tokenizer.counting import Tally as Tally
from tokenizer.counting import add_word_counts as add_word_counts
from tokenizer.counting import count_characters as count_characters
from tokenizer.encoding import Encoding as Encoding
from tokenizer.errors import TokenizerFileError as TokenizerFileError
from tokenizer.errors import UnknownCharacterError as UnknownCharacterError
from tokenizer.layout import Layout as Layout
from tokenizer.models import BPE as BPE
from tokenizer.models import Unigram as Unigram
from tokenizer.models import WordLevel as WordLevel
from tokenizer.models import WordPiece as WordPiece
from tokenizer.normalizers import BertNormalizer as BertNormalizer
from tokenizer.post_processors import Padding as Padding
from tokenizer.post_processors import TemplateProcessing as TemplateProcessing
from tokenizer.post_processors import Truncation as Truncation
from tokenizer.pre_tokenizers import BertPreTokenizer as BertPreTokenizer
from tokenizer.ragged import check_array as check_array
from tokenizer.ragged import unchecked_text_rows as unchecked_text_rows
from tokenizer.sampling import Sampling as Sampling
from tokenizer.token_runs import TokenRun as TokenRun
from tokenizer.unicode.data import UNICODE_VERSIONS as UNICODE_VERSIONS
from tokenizer.word_counter import ScannedTexts as ScannedTexts
from tokenizer.word_counter import WordCounter as WordCounter

if typing.TYPE_CHECKING:
    from tokenizer.trainers import BPETrainer as BPETrainer
    from tokenizer.trainers import CharacterTrainer as CharacterTrainer
    from tokenizer.trainers import Trainer as Trainer
    from tokenizer.trainers import UnigramTrainer as UnigramTrainer
    from tokenizer.trainers import WordLevelTrainer as WordLevelTrainer
    from tokenizer.trainers import WordPieceTrainer as WordPieceTrainer

_TRAINERS = (
    "BPETrainer", "CharacterTrainer", "Trainer", "UnigramTrainer", "WordLevelTrainer", "WordPieceTrainer",
)  # fmt: skip


def __getattr__(name: str) -> typing.Any:
    # Trainers are imported on first use; code that only encodes need not wait for them.
    if name not in _TRAINERS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module("tokenizer.trainers"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_TRAINERS})
