# SPDX-License-Identifier: Apache-2.0
"""What happens to text before a tokenizer sees it: named steps, column to column, each with a report."""

from tokenizer.text.base import StepReport as StepReport
from tokenizer.text.base import TextStep as TextStep
from tokenizer.text.chain import TextChain as TextChain
from tokenizer.text.chain import parse_steps as parse_steps
