# SPDX-License-Identifier: Apache-2.0
"""Steps from texts to texts: `Normalize` and `IdentifyLanguage`."""

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from tokenmill.pipeline import schemas
from tokenmill.pipeline.config.tokenizer import TokenizerConfig
from tokenmill.pipeline.rows.batching import Computed, RowTransform
from tokenmill.pipeline.rows.tokenizers import GivenTokenizer, TokenizerSource


class Normalize(RowTransform):
    """Normalizes texts, to look at or to keep. `Tokenize` needs no such step: it applies its tokenizer's normalizer.

        rows | Normalize(["mojibake", "nfc"])

    Input: rows with a text, or batches. Output: the same with the text replaced, or in `output`.
    """

    def __init__(
        self,
        steps: Sequence[Any] = (),
        *,
        tokenizer: TokenizerSource | None = None,
        column: str = "text",
        output: str | None = None,
    ) -> None:
        """Makes the step.

        Args:
          steps: as in the section `normalize` of a config: names, or mappings of a name to its options.
          tokenizer: its normalizer is applied after the steps; None: steps only.
          column: the field with the text.
          output: the field for the normalized text; None: `column`.

        Raises:
          OSError, ValueError: if a step or the tokenizer cannot be used.
        """
        from tokenmill.tokenizer.text import parse_steps

        if not steps and tokenizer is None:
            raise ValueError("Normalize: give steps, a tokenizer, or both")
        parse_steps(list(steps))
        given = GivenTokenizer(tokenizer, TokenizerConfig()) if tokenizer is not None else None
        columns = _Normalize(tuple(steps), given, output or column)
        super().__init__(columns, column, given.side_input if given is not None else None)


@dataclasses.dataclass
class _Normalize:
    steps: tuple[Any, ...]
    given: GivenTokenizer | None
    output: str

    reads = pa.string()

    @property
    def fields(self) -> Mapping[str, Any]:
        return {self.output: str}

    def display_data(self) -> Mapping[str, Any]:
        steps = {"steps": json.dumps(self.steps)} if self.steps else {}
        return {**steps, **(self.given.display_data() if self.given is not None else {})}

    def prepare(self, given: Any) -> Callable[[pa.Array], Computed]:
        from tokenmill.tokenizer.text import TextChain, parse_steps

        chain = TextChain(parse_steps(list(self.steps))) if self.steps else None
        normalizer = self.given.tokenizer(given).normalizer if self.given is not None else None

        def compute(texts: pa.Array) -> Computed:
            if chain is not None:
                texts, _ = chain.apply(texts)
            if normalizer is not None:
                texts = normalizer.normalize_arrow(texts)
            return Computed({self.output: texts})

        return compute


class IdentifyLanguage(RowTransform):
    """Identifies the language of every text.

    Input: rows with a text, or batches. Output: the same with `lang`, an ISO 639 code or `und`, `lang_confidence` from
    0 to 1, and `lang_mixed`, whether the text is in several languages.
    """

    def __init__(self, *, column: str = "text", threshold: float = 0.5) -> None:
        """Makes the step.

        Args:
          column: the field with the text.
          threshold: with a confidence below this the language is `und`, undetermined.

        Raises:
          ValueError: if `threshold` is not in 0..1.
        """
        if not 0 <= threshold <= 1:
            raise ValueError(f"threshold must be in 0..1, got {threshold}")
        super().__init__(_IdentifyLanguage(threshold), column)


@dataclasses.dataclass
class _IdentifyLanguage:
    threshold: float

    reads = pa.string()

    @property
    def fields(self) -> Mapping[str, Any]:
        return dict(zip(schemas.LANGUAGES.names, (str, np.float32, bool), strict=True))

    def display_data(self) -> Mapping[str, Any]:
        return {"threshold": self.threshold}

    def prepare(self, given: Any) -> Callable[[pa.Array], Computed]:
        from tokenmill.tokenizer.languages import identify

        def compute(texts: pa.Array) -> Computed:
            found = identify(texts, self.threshold)
            columns = found.codes.cast(pa.string()), pa.array(found.confidence), pa.array(found.mixed)
            return Computed(dict(zip(schemas.LANGUAGES.names, columns, strict=True)))

        return compute
