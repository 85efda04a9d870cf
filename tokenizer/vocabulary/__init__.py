# SPDX-License-Identifier: Apache-2.0
"""Another vocabulary for an existing tokenizer, from word counts. In: a tokenizer and counts. Out: a `Change`.

    Tokenizer, counts --extend, prune, replace--> Change: the new Tokenizer, a map of old ids to new ones,
                                                  what changes by language and source, what was proven
    Tokenizer --check--> the entries that no text becomes;  two Tokenizers --transfer--> each new entry as old ones

Counts are tables with the columns `word` and `count`; further columns, `lang` for example, are labels for reports.
"""

from tokenmill.tokenizer.vocabulary.changes import ID_MAP, Change
from tokenmill.tokenizer.vocabulary.checking import TRANSFER, Problem, Problems, check, transfer
from tokenmill.tokenizer.vocabulary.entries import reserved_ids
from tokenmill.tokenizer.vocabulary.extending import extend
from tokenmill.tokenizer.vocabulary.pruning import prune, replace
from tokenmill.tokenizer.vocabulary.words import model_alone

__all__ = [
    "ID_MAP", "TRANSFER", "Change", "Problem", "Problems", "check", "extend", "model_alone", "prune", "replace",
    "reserved_ids", "transfer",
]  # fmt: skip
