# SPDX-License-Identifier: Apache-2.0
"""TokenMill's tokenizer library. This is the public API; everything else may change."""

import importlib
import typing

from tokenmill.tokenizer.added_tokens import AddedToken as AddedToken
from tokenmill.tokenizer.composition import PAD_NAMES as PAD_NAMES
from tokenmill.tokenizer.core import Tokenizer as Tokenizer
from tokenmill.tokenizer.counting import WORD_COUNTS as WORD_COUNTS
from tokenmill.tokenizer.counting import Tally as Tally
from tokenmill.tokenizer.counting import add_word_counts as add_word_counts
from tokenmill.tokenizer.counting import count_characters as count_characters
from tokenmill.tokenizer.encoding import Encoding as Encoding
from tokenmill.tokenizer.errors import TokenizerFileError as TokenizerFileError
from tokenmill.tokenizer.errors import UnknownCharacterError as UnknownCharacterError
from tokenmill.tokenizer.layout import Layout as Layout
from tokenmill.tokenizer.models import BPE as BPE
from tokenmill.tokenizer.models import Unigram as Unigram
from tokenmill.tokenizer.models import WordLevel as WordLevel
from tokenmill.tokenizer.models import WordPiece as WordPiece
from tokenmill.tokenizer.normalizers import BertNormalizer as BertNormalizer
from tokenmill.tokenizer.post_processors import Padding as Padding
from tokenmill.tokenizer.post_processors import TemplateProcessing as TemplateProcessing
from tokenmill.tokenizer.post_processors import Truncation as Truncation
from tokenmill.tokenizer.pre_tokenizers import BertPreTokenizer as BertPreTokenizer
from tokenmill.tokenizer.ragged import check_array as check_array
from tokenmill.tokenizer.ragged import unchecked_text_rows as unchecked_text_rows
from tokenmill.tokenizer.sampling import Sampling as Sampling
from tokenmill.tokenizer.token_runs import TokenRun as TokenRun
from tokenmill.tokenizer.unicode.data import UNICODE_VERSIONS as UNICODE_VERSIONS
from tokenmill.tokenizer.word_counter import ScannedTexts as ScannedTexts
from tokenmill.tokenizer.word_counter import WordCounter as WordCounter

if typing.TYPE_CHECKING:
    from tokenmill.tokenizer.trainers import BPETrainer as BPETrainer
    from tokenmill.tokenizer.trainers import CharacterTrainer as CharacterTrainer
    from tokenmill.tokenizer.trainers import Trainer as Trainer
    from tokenmill.tokenizer.trainers import UnigramTrainer as UnigramTrainer
    from tokenmill.tokenizer.trainers import WordLevelTrainer as WordLevelTrainer
    from tokenmill.tokenizer.trainers import WordPieceTrainer as WordPieceTrainer

_TRAINERS = (
    "BPETrainer", "CharacterTrainer", "Trainer", "UnigramTrainer", "WordLevelTrainer", "WordPieceTrainer",
)  # fmt: skip


def __getattr__(name: str) -> typing.Any:
    # Trainers are imported on first use; code that only encodes need not wait for them.
    if name not in _TRAINERS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module("tokenmill.tokenizer.trainers"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_TRAINERS})
