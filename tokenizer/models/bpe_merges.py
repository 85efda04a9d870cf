# SPDX-License-Identifier: Apache-2.0
"""`MergesOfIds`: the merges of a model, stored as ids."""

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import overload

from tokenmill.tokenizer.models.bpe_tables import Merges


class MergesOfIds(Sequence[tuple[str, str]]):
    """A sequence of merges that stores ids and makes the pairs of strings only on access.

    A hundred thousand pairs would take ten megabytes, which the garbage collector would go through again and again.
    """

    def __init__(self, merges: Merges, vocab: Mapping[str, int], prefix: str = "") -> None:
        self.ids, self._vocab, self._prefix = merges, vocab, prefix

    def are_of(self, vocab: Mapping[str, int], prefix: str) -> bool:
        """Whether the stored ids are those of a vocabulary, and the products those with this continuing prefix."""
        return self._vocab is vocab and self._prefix == prefix

    @functools.cached_property
    def _tokens(self) -> dict[int, str]:
        return {token_id: token for token, token_id in self._vocab.items()}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self)} merges)"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __len__(self) -> int:
        return self.ids.lefts.size

    @overload
    def __getitem__(self, index: int) -> tuple[str, str]: ...
    @overload
    def __getitem__(self, index: slice) -> list[tuple[str, str]]: ...
    def __getitem__(self, index: int | slice) -> tuple[str, str] | list[tuple[str, str]]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        return self._tokens[int(self.ids.lefts[index])], self._tokens[int(self.ids.rights[index])]

    def __iter__(self) -> Iterator[tuple[str, str]]:
        lefts, rights = (map(self._tokens.__getitem__, each.tolist()) for each in (self.ids.lefts, self.ids.rights))
        return zip(lefts, rights, strict=True)
