# SPDX-License-Identifier: Apache-2.0
"""Text steps, which prepare text before it is tokenized: named, from column to column, each with a report."""

from tokenizer.normalizers.base import TextStep as TextStep
from tokenizer.normalizers.tables import UNICODE_VERSION as UNICODE_VERSION
from tokenizer.text.base import StepReport as StepReport
from tokenizer.text.chain import PRESETS as PRESETS
from tokenizer.text.chain import STEPS as STEPS
from tokenizer.text.chain import TextChain as TextChain
from tokenizer.text.chain import parse_steps as parse_steps
from tokenizer.text.spans import SpanRule as SpanRule
from tokenizer.text.tokenizing import EncodedText as EncodedText
from tokenizer.text.tokenizing import PreparedText as PreparedText
from tokenizer.text.tokenizing import TextTokenizer as TextTokenizer
