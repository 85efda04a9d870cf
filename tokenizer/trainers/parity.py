# SPDX-License-Identifier: Apache-2.0
"""`ParityBPETrainer`: byte pair encoding that treats languages alike, from the word counts of each."""

import dataclasses
from collections import deque
from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from tokenmill.tokenizer.models.bpe import BPE
from tokenmill.tokenizer.trainers import base
from tokenmill.tokenizer.trainers.bpe import BPETrainer
from tokenmill.tokenizer.trainers.merging import Merged, Pairs
from tokenmill.tokenizer.trainers.word_counts import words_as_bytes, words_as_code_points


@dataclasses.dataclass(frozen=True, kw_only=True)
class ParityBPETrainer(BPETrainer):
    """Learns merges as `BPETrainer`, but each is the most frequent pair of the language that has gained least so far.

    Ties go to the pair of which the first token, then the second, is the last by its UTF-8. A merge is applied to all
    languages. `train` and `train_sizes` know no languages, and train as `BPETrainer` does.

    Args:
      global_merges: so many merges come first that are the most frequent ones of all languages together.
      window: 0, or a language is passed over that had more than `alpha` times its fair share of the last so many.
      alpha: see `window`.

    Raises:
      TypeError, ValueError: as `BPETrainer`; if one of these is out of range.

    Source: Foroutan et al. 2025, "Parity-Aware Byte-Pair Encoding"; HF tokenizers 0.23 `ParityBpeTrainer`, whose merges
    are the same.
    """

    global_merges: int = 0
    window: int = 0
    alpha: float = 2.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.global_merges < 0 or self.window < 0 or not 0 < self.alpha < np.inf:
            raise ValueError(
                "global_merges and window must not be negative, alpha must be positive; got "
                f"{self.global_merges!r}, {self.window!r}, {self.alpha!r}"
            )

    def train_languages(
        self,
        languages: Mapping[str, pa.Table],
        *,
        dev: Mapping[str, pa.Table] | None = None,
        ratio: Mapping[str, float] | None = None,
    ) -> BPE:
        """Returns the model that counts of several languages give; the first of equal languages comes first.

        Args:
          languages: word counts of each, as `train` takes them.
          dev: counts of the same text in each language: the one that has most tokens comes next.
          ratio: else, how many symbols the same text has in each language, 1 where it is not given: the one comes next
            whose tokens have fewest symbols for that.

        Raises:
          TypeError, ValueError: as `train`, for each; if `dev` or `ratio` names other languages.
        """
        if not languages or set(dev or languages) != set(languages) or not {*(ratio or {})} <= set(languages):
            raise ValueError(f"dev and ratio must be of the languages {', '.join(languages) or 'that are missing'}")
        if any(not 0 < each < np.inf for each in (ratio or {}).values()):
            raise ValueError(f"ratio must be of positive numbers, got {ratio!r}")
        shared = pa.concat_tables(languages.values())
        cut_at, read = self.user_defined_symbols, words_as_bytes if self.byte_level else words_as_code_points
        first = self._first_tokens(read(pa.concat_tables([shared, *(dev or {}).values()]), cut_at))
        base.check_sizes([self.vocab_size], len(first.tokens), [f"{len(first.tokens)} special tokens and characters"])
        tokens = list(first.tokens)
        ties = [_last_first(token) for token in tokens]

        def pairs(table: pa.Table, least: int = max(1, self.min_frequency)) -> Pairs:
            return Pairs(read(table, cut_at), first.ids, least, lambda left, right: (ties[left], ties[right]))

        own = {name: pairs(table) for name, table in languages.items()}
        held = {name: pairs(table, base.MAX_INT) for name, table in (dev or {}).items()}
        together = pairs(shared) if self.global_merges else None
        begun = {name: each.n_symbols / (ratio or {}).get(name, 1.0) for name, each in own.items()}
        merges, id_of, waiting = list[tuple[int, int, int, int]](), {t: i for i, t in enumerate(tokens)}, list(own)
        recent = deque[str]()
        while len(tokens) < self.vocab_size and waiting:
            together = together if len(merges) < self.global_merges else None
            name = ""
            if together is None:
                cost: dict[str, float] = {each: (held or own)[each].n_symbols for each in waiting}
                if ratio is not None and not held:
                    cost = {each: -begun[each] / cost[each] for each in waiting}
                name = self._next(cost, recent, len(own))
            best = (together or own[name]).best()
            if best is None:
                waiting = [] if together else [each for each in waiting if each != name]
                continue
            _, left, right = best
            token = tokens[left] + tokens[right].removeprefix(self._prefix)
            if not self._may_be(token):
                continue
            if token not in id_of:
                id_of[token] = len(tokens)
                tokens.append(token)
                ties.append(_last_first(token))
            for each in (*own.values(), *held.values(), *([together] if together else [])):
                each.merge(left, right, id_of[token])
            merges.append((left, right, id_of[token], len(tokens)))
        merged = Merged([token.encode() for token in tokens], np.array(merges, np.int32).reshape(-1, 4))
        return self._models(merged, len(first.tokens), [self.vocab_size])[self.vocab_size]

    def _may_be(self, token: str) -> bool:
        longest = base.MAX_INT if self.max_token_length is None else max(2, self.max_token_length - 1)
        text = token.removeprefix(self._prefix).removesuffix(self._suffix)
        return len(text) <= longest and token not in self._before[len(self.special_tokens) :]

    def _next(self, cost: Mapping[str, float], recent: deque[str], n: int) -> str:
        """Returns the language with the highest cost that had not too many of the recent merges."""
        by_cost = sorted(cost, key=lambda name: -cost[name])  # stable: the first of equal ones
        if not self.window:
            return by_cost[0]
        fair = (name for name in by_cost if recent.count(name) / self.window <= self.alpha / n)
        recent.append(next(fair, by_cost[-1]))
        if len(recent) > self.window:
            recent.popleft()
        return recent[-1]


def _last_first(token: str) -> tuple[int, ...]:
    """Returns a key by which tokens are in the opposite order of their bytes; 1 comes behind all bytes."""
    return (*(-byte for byte in token.encode()), 1)
