# SPDX-License-Identifier: Apache-2.0
"""Identifies the languages of documents, and prepares and tokenizes text by its language."""

from tokenizer.languages.identifying import UNKNOWN as UNKNOWN
from tokenizer.languages.identifying import Languages as Languages
from tokenizer.languages.identifying import identify as identify
from tokenizer.languages.identifying import language_codes as language_codes
from tokenizer.languages.routing import LanguageTextTokenizer as LanguageTextTokenizer
from tokenizer.languages.routing import LanguageTokenizers as LanguageTokenizers
from tokenizer.languages.routing import RoutedText as RoutedText
from tokenizer.languages.rules import DEFAULT as DEFAULT
from tokenizer.languages.rules import RULES as RULES
from tokenizer.languages.scripts import SCRIPTS as SCRIPTS
from tokenizer.languages.scripts import main_scripts as main_scripts
from tokenizer.languages.scripts import script_name as script_name
