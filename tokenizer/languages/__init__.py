# SPDX-License-Identifier: Apache-2.0
"""Identifies the languages of documents, and prepares and tokenizes text by its language."""

from tokenmill.tokenizer.languages.identifying import UNKNOWN as UNKNOWN
from tokenmill.tokenizer.languages.identifying import Languages as Languages
from tokenmill.tokenizer.languages.identifying import identify as identify
from tokenmill.tokenizer.languages.identifying import language_codes as language_codes
from tokenmill.tokenizer.languages.routing import DEFAULT as DEFAULT
from tokenmill.tokenizer.languages.routing import RULES as RULES
from tokenmill.tokenizer.languages.routing import LanguageTextTokenizer as LanguageTextTokenizer
from tokenmill.tokenizer.languages.routing import LanguageTokenizers as LanguageTokenizers
from tokenmill.tokenizer.languages.routing import RoutedText as RoutedText
from tokenmill.tokenizer.languages.scripts import SCRIPTS as SCRIPTS
from tokenmill.tokenizer.languages.scripts import main_scripts as main_scripts
from tokenmill.tokenizer.languages.scripts import script_name as script_name
