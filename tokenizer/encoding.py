# SPDX-License-Identifier: Apache-2.0
"""`Encoding`: the tokens of one text or pair, with HF's attributes."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Encoding:
    """What `Tokenizer.encode` returns; all lists have one entry per token.

    Source: HF tokenizers `Encoding`, same names and meaning.
    """

    ids: list[int]
    tokens: list[str]
    type_ids: list[int]
    attention_mask: list[int]
    """0 for padding, 1 for the rest."""
    special_tokens_mask: list[int]
    """1 for tokens that the post-processor or padding added."""
    offsets: list[tuple[int, int]]
    """First character of the token in its text and the one after its last; (0, 0) for added tokens."""
    word_ids: list[int | None]
    """Number of the pre-token in its text; None for added tokens."""
    sequence_ids: list[int | None]
    """0 for the text, 1 for its pair; None for added tokens."""

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        return f"Encoding({len(self.ids)} tokens)"


class EncodingBuilder:
    """Collects tokens from left to right."""

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.tokens: list[str] = []
        self.type_ids: list[int] = []
        self.special_tokens_mask: list[int] = []
        self.offsets: list[tuple[int, int]] = []
        self.word_ids: list[int | None] = []
        self.sequence_ids: list[int | None] = []

    def add(
        self, token_id: int, token: str, type_id: int, offsets: tuple[int, int], word: int | None, sequence: int | None
    ) -> None:
        """Appends a token; one without a sequence is an added one."""
        self.ids.append(token_id)
        self.tokens.append(token)
        self.type_ids.append(type_id)
        self.special_tokens_mask.append(int(sequence is None))
        self.offsets.append(offsets)
        self.word_ids.append(word)
        self.sequence_ids.append(sequence)

    def build(self, n_padding: int = 0, pad: tuple[int, str, int] = (0, "", 0), pad_left: bool = False) -> Encoding:
        """Returns the encoding with `n_padding` tokens `pad` (id, token, type id) added on one side."""
        pad_id, pad_token, pad_type_id = pad

        def padded(values: list, filler: object) -> list:  # type: ignore[type-arg]
            filling = [filler] * n_padding
            return filling + values if pad_left else values + filling

        return Encoding(
            ids=padded(self.ids, pad_id),
            tokens=padded(self.tokens, pad_token),
            type_ids=padded(self.type_ids, pad_type_id),
            attention_mask=padded([1] * len(self.ids), 0),
            special_tokens_mask=padded(self.special_tokens_mask, 1),
            offsets=padded(self.offsets, (0, 0)),
            word_ids=padded(self.word_ids, None),
            sequence_ids=padded(self.sequence_ids, None),
        )
