# SPDX-License-Identifier: Apache-2.0
"""Text steps, which prepare text before it is tokenized: named, from column to column, each with a report."""

from tokenmill.tokenizer.normalizers.base import TextStep as TextStep
from tokenmill.tokenizer.normalizers.tables import UNICODE_VERSION as UNICODE_VERSION
from tokenmill.tokenizer.text.base import StepReport as StepReport
from tokenmill.tokenizer.text.chain import PRESETS as PRESETS
from tokenmill.tokenizer.text.chain import STEPS as STEPS
from tokenmill.tokenizer.text.chain import TextChain as TextChain
from tokenmill.tokenizer.text.chain import parse_steps as parse_steps
from tokenmill.tokenizer.text.spans import SpanRule as SpanRule
from tokenmill.tokenizer.text.tokenizing import EncodedText as EncodedText
from tokenmill.tokenizer.text.tokenizing import PreparedText as PreparedText
from tokenmill.tokenizer.text.tokenizing import TextTokenizer as TextTokenizer
