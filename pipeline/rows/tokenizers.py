# SPDX-License-Identifier: Apache-2.0
"""The tokenizer of a step: a file, an object, or the output of another step of the pipeline."""

import dataclasses
import functools
import itertools
import os
import zlib
from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
from apache_beam.pvalue import AsSingleton, EmptySideInput, PCollection

from tokenmill.pipeline.config.tokenizer import TokenizerConfig
from tokenmill.pipeline.rows.errors import RowsError
from tokenmill.pipeline.training.tokenizers import shape_rows
from tokenmill.pipeline.transforms.stages import compiled_tokenizer
from tokenmill.tokenizer import Tokenizer, WordPiece

TokenizerSource = str | os.PathLike[str] | Tokenizer | PCollection[str] | AsSingleton
"""Where a tokenizer comes from.

- A path of a file or folder, local or on a store. It is read where the pipeline is built.
- A `Tokenizer`.
- A PCollection of one `tokenizer.json` as text, for example the output of `TrainVocabulary`, or `AsSingleton` of one,
  which may change from window to window.
"""


class _OneText(AsSingleton):
    """As Beam's, whose words about a second value show both values whole."""

    @staticmethod
    def _from_runtime_iterable(it: Iterable[str], options: dict[str, Any]) -> object:
        texts = list(itertools.islice(it, 2))
        if len(texts) > 1:
            raise ValueError("the side input with the tokenizer holds several texts; it needs one in each window")
        return AsSingleton._from_runtime_iterable(texts, options)


class GivenTokenizer:
    """A tokenizer that travels to the workers, where each process builds it once.

    From a file or an object it travels in the graph, compressed; give a large one, say of 30 MB, as a side input.
    """

    def __init__(self, source: TokenizerSource, options: TokenizerConfig = TokenizerConfig()) -> None:  # noqa: B008 - never changed
        """Takes a tokenizer; it will truncate and pad rows as `options` say.

        Raises:
          OSError: if the file cannot be read.
          TypeError: if `source` is none of what a tokenizer comes from.
          ValueError: if it is not a tokenizer, or cannot do what `options` ask for.
        """
        self._options = options.model_dump_json()
        self._text: str | None = None
        self.side_input: Any = None
        """The side input to give to `beam.ParDo`; None where the tokenizer is in the graph."""
        if isinstance(source, Tokenizer):
            self._text = source.to_str()
        elif isinstance(source, str | os.PathLike):
            self._text = _read(os.fspath(source)).to_str()
        elif isinstance(source, PCollection | AsSingleton):
            default = getattr(source, "default_value", AsSingleton._NO_DEFAULT)
            self.side_input = _OneText(source.pvalue if isinstance(source, AsSingleton) else source, default)
        else:
            raise TypeError(
                f"a tokenizer is a path, a Tokenizer, a PCollection of one or AsSingleton, got {type(source).__name__}"
            )
        if self._text is not None:
            shaped(self._text, self._options)  # raises here what workers would raise later

    def __getstate__(self) -> dict[str, Any]:
        # Beam compresses what it pickles by bzip2, which takes half a second for GPT-2's text.
        text = self._text
        packed = zlib.compress(text.encode("utf-8", "surrogatepass"), 1) if text is not None else None
        return {"_options": self._options, "_text": packed, "side_input": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        packed = state["_text"]
        text = zlib.decompress(packed).decode("utf-8", "surrogatepass") if packed is not None else None
        self.__dict__.update(state, _text=text)

    def tokenizer(self, given: str | None) -> Tokenizer:
        """Returns the tokenizer, compiled; `given` is the value of the side input.

        Raises:
          ValueError: if the side input is empty, or holds no tokenizer that can do what the options ask for.
        """
        text = self._text if given is None else given
        if not isinstance(text, str):  # of a window without a value, Beam gives an object of its own
            found = "nothing" if isinstance(text, EmptySideInput | None) else f"{text!r:.80}"
            raise ValueError(
                f"the side input with the tokenizer holds no tokenizer.json as text, but {found}; it needs one in "
                "each window that has elements"
            )
        try:
            return shaped(text, self._options)
        except ValueError as error:
            if given is None:
                raise
            raise ValueError(
                "the side input with the tokenizer must hold a tokenizer.json as text, not its path, but holds "
                f"{text[:80]!r}: {error}"
            ) from error

    def display_data(self) -> dict[str, Any]:
        """Returns the digest of the tokenizer, if it is known before the pipeline runs, and the options that it got."""
        tokenizer = self.tokenizer(None).digest if self._text is not None else "side input"
        options = TokenizerConfig.model_validate_json(self._options).model_dump_json(exclude_defaults=True)
        return {"tokenizer": tokenizer, **({"tokenizer_options": options} if options != "{}" else {})}

    def check_ids(self, given: str | None, column: pa.Array) -> None:
        """Raises RowsError if lists of ids, of which none is null, have an id that is null or not in the vocabulary."""
        n_entries = self.tokenizer(given).n_ids
        ids = column.flatten().fill_null(-1).to_numpy()  # null is as wrong as this one
        if not ids.size or 0 <= ids.min() <= ids.max() < n_entries:
            return
        is_wrong = (ids < 0) | (ids >= n_entries)
        ends = np.cumsum(column.value_lengths().to_numpy())
        places = np.flatnonzero(is_wrong)
        rows, first = np.unique(np.searchsorted(ends, places, side="right"), return_index=True)
        message = "id {} is not in the vocabulary of {} entries"
        shown = column.flatten().take(pa.array(places[first])).to_pylist()
        raise RowsError(
            {
                row: ValueError(message.format(each, n_entries) if each is not None else "an id is null")
                for row, each in zip(rows.tolist(), shown, strict=True)
            }
        )


def _read(path: str) -> Tokenizer:
    tokenizer = Tokenizer.from_file(path)
    if tokenizer.model is None:
        raise ValueError(f"{path!r} has no model, so no text can be tokenized with it; train a vocabulary first")
    return tokenizer


@functools.lru_cache(maxsize=16)  # as many as `compiled_tokenizer` keeps: those of sliding windows
def shaped(tokenizer_json: str, options: str) -> Tokenizer:
    """Returns the tokenizer of a `tokenizer.json`, changed as `options`, a `TokenizerConfig` in JSON, say.

    Raises:
      ValueError: if they ask for what the tokenizer cannot do, such as `oov` for a model that is not WordPiece.
    """
    config = TokenizerConfig.model_validate_json(options)
    tokenizer = compiled_tokenizer(tokenizer_json)
    if config == TokenizerConfig() and tokenizer.truncation is None and tokenizer.padding is None:
        return tokenizer
    changed = Tokenizer.from_str(tokenizer_json)
    if config.oov is not None:
        if not isinstance(changed.model, WordPiece):
            raise ValueError(f"oov={config.oov!r} is a choice of WordPiece; the model is {changed.model!r:.100}")
        changed = changed.replace(model=dataclasses.replace(changed.model, oov_policy=config.oov))
    return shape_rows(changed, config)
