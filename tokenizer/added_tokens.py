# SPDX-License-Identifier: Apache-2.0
"""Added tokens: entries beside the model's own vocabulary, most of them special."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class AddedToken:
    """A token that belongs to the tokenizer rather than to its model.

    Special tokens mark places (`[CLS]`, `[PAD]`). When their text occurs in a document it stays text: a document cannot
    smuggle in a control token. HF calls this `encode_special_tokens=True`.

    Source: HF tokenizers `tokenizer/added_vocabulary.rs`, same fields.
    """

    id: int
    content: str
    single_word: bool = False
    lstrip: bool = False
    rstrip: bool = False
    normalized: bool = False
    special: bool = True

    def __post_init__(self) -> None:
        if not self.content:
            raise ValueError(f"added token {self.id} has no content")
        if not self.special:
            raise ValueError(
                f"added token {self.content!r} is not special: it would be cut out of texts, which is not supported; "
                "make it special, or put it into the model's vocabulary"
            )
