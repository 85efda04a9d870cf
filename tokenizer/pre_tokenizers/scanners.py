# SPDX-License-Identifier: Apache-2.0
"""`Scanner`: patterns that find words in the same pass that encodes or counts them."""

import dataclasses
import functools

import numpy as np

from tokenmill.tokenizer.kernels.automata import Automata, Cuts
from tokenmill.tokenizer.kernels.blocks import Rules
from tokenmill.tokenizer.pre_tokenizers.boundaries import derive
from tokenmill.tokenizer.pre_tokenizers.pattern_automata import build, new_automata
from tokenmill.tokenizer.pre_tokenizers.pattern_syntax import Node, NotRegularError
from tokenmill.tokenizer.pre_tokenizers.situations import TooManyError, cuts_no_more, matches_all
from tokenmill.tokenizer.ragged import distinct
from tokenmill.tokenizer.unicode import data as unicode_data


@dataclasses.dataclass(frozen=True, eq=False)
class Scanner:
    """Automata, and the rules that say where they cut ASCII."""

    automata: Automata = dataclasses.field(repr=False)
    rules: Rules = dataclasses.field(repr=False)
    dropped: bool | None
    """None if all segments are words; otherwise whether matches are dropped, or what is between them."""

    @property
    def are_apart(self) -> bool:
        """Whether some of a text is in no word."""
        return self.dropped is not None

    @property
    def drops_spaces(self) -> bool:
        """Whether white space is in no word, and how much of it there is makes no difference."""
        if self.dropped is not False or self.automata.spelled[0]:
            return False
        spaces = np.concatenate([np.arange(first, last + 1) for first, last in unicode_data.runs("bert/spaces")])
        width = self.automata.starts.shape[1] // 2 + 2
        after = self.automata.transitions.reshape(-1, width, 2)[:, distinct(self.automata.classes[spaces]) // 2, 0]
        return bool((after <= 1).all() and np.ptp(after, axis=1).max() == 0)

    def new_cuts(self) -> Cuts:
        """Returns the argument of a kernel, which changes it: calls at the same time need one each."""
        return Cuts(
            new_automata(self.automata), self.rules, not self.are_apart, bool(self.dropped), np.zeros(1, np.int64)
        )


@functools.lru_cache(maxsize=32)
def find_scanner(nodes: tuple[Node, ...], n_plain: int, dropped: bool | None) -> Scanner | None:
    """Returns the scanner of patterns, None if they have no automata, or these no rules.

    Args:
      nodes: the patterns, in the order in which they cut.
      n_plain: how many of them, from the first, read characters; the others read bytes spelled in GPT-2's alphabet.
      dropped: see `Scanner`; if anything is dropped, then by the first pattern, and the others must not cut the rest.
    """
    try:
        if dropped is False and matches_all(build(nodes[:1], min(n_plain, 1))):
            dropped = None
        if dropped is not None and len(nodes) > 1:
            if not cuts_no_more(build(nodes, n_plain), dropped):
                return None
            nodes = nodes[:1]
        automata = build(nodes, min(n_plain, len(nodes)))
        return Scanner(automata, derive(automata, dropped), dropped)
    except (NotRegularError, TooManyError):
        return None
