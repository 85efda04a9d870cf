# SPDX-License-Identifier: Apache-2.0
"""Why a record that could be used is left out: the closed list of rules under which the ledger counts such records."""

SAMPLE, OTHER_LANGUAGE, MIXED_LANGUAGES = "sample", "language", "mixed_languages"
OTHER_PART, COMMITTED, TOO_LONG = "other_part", "committed", "too_long"

RULES = {
    SAMPLE: "the document is not in the sample",
    OTHER_LANGUAGE: "its language is not one to keep",
    MIXED_LANGUAGES: "it is in several languages",
    OTHER_PART: "another part of the output has it, be it a document or a reject",
    TOO_LONG: "the conversation is longer than a row, and is not to be cut, or cut has no trained token left",
    COMMITTED: "it was tokenized by the job; its file had to be read whole",
}
"""Every rule, and what it means. Records that cannot be used are rejected: see `input.rejects.REASONS`."""

OF_A_STEP = frozenset({TOO_LONG})
"""The rules of steps behind the reader. With `output.parts` each folder leaves out documents of its own by them."""
