# SPDX-License-Identifier: Apache-2.0
"""Another vocabulary for an existing tokenizer, from word counts. In: a tokenizer and counts. Out: a `Change`.

    Tokenizer, counts --extend, prune, replace--> Change: the new Tokenizer, a map of old ids to new ones,
                                                  what changes by language and source, what was proven
    two Tokenizers --merge--> Change, with their union;  Tokenizer --rename--> other names for special tokens
    Tokenizer, counts by language --balance--> other merges, which treat languages alike
    Tokenizer --superwords--> the same, with word n-grams for words: `extend` it for the second stage of SuperBPE
    Tokenizers, counts --measure--> bytes per token, by size and language
    Tokenizer --check--> the entries that no text becomes;  two Tokenizers --transfer--> each new entry as old ones

Counts are tables with the columns `word` and `count`; further columns, `lang` for example, are labels for reports.
"""

from tokenmill.tokenizer.vocabulary.changes import ID_MAP, Change
from tokenmill.tokenizer.vocabulary.checking import TRANSFER, Problem, Problems, check, transfer
from tokenmill.tokenizer.vocabulary.entries import reserved_ids
from tokenmill.tokenizer.vocabulary.extending import extend
from tokenmill.tokenizer.vocabulary.measuring import Measures, measure
from tokenmill.tokenizer.vocabulary.pruning import prune, replace
from tokenmill.tokenizer.vocabulary.renaming import rename, rename_files
from tokenmill.tokenizer.vocabulary.superwords import superwords
from tokenmill.tokenizer.vocabulary.uniting import balance, merge
from tokenmill.tokenizer.vocabulary.words import model_alone

__all__ = [
    "ID_MAP", "TRANSFER", "Change", "Measures", "Problem", "Problems", "balance", "check", "extend", "measure", "merge",
    "model_alone", "prune", "rename", "rename_files", "replace", "reserved_ids", "superwords", "transfer",
]  # fmt: skip
