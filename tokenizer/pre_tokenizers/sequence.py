# SPDX-License-Identifier: Apache-2.0
"""`ByteLevel` and `Metaspace`, the pre-tokenizers of byte-level and SentencePiece models; `Sequence`; their scanner."""

import dataclasses
import functools
from typing import Literal

import numpy as np
import numpy.typing as npt

from tokenmill.tokenizer.pre_tokenizers.characters import BertPreTokenizer, Punctuation, WhitespaceSplit
from tokenmill.tokenizer.pre_tokenizers.known_patterns import GPT2_PATTERN
from tokenmill.tokenizer.pre_tokenizers.pattern_syntax import Node, parse
from tokenmill.tokenizer.pre_tokenizers.pieces import Pieces, PreTokenizer, prefixed_by, spaces_replaced
from tokenmill.tokenizer.pre_tokenizers.scanners import Scanner, find_scanner
from tokenmill.tokenizer.pre_tokenizers.spelled_bytes import spelled, split_spelled
from tokenmill.tokenizer.pre_tokenizers.split import run_node
from tokenmill.tokenizer.unicode.tables import check_bert_unicode
from tokenmill.tokenizer.words import begins_with

_SCANNER = "_scanner"


@dataclasses.dataclass(frozen=True)
class ByteLevel(PreTokenizer):
    """Splits with the pattern of GPT-2. The bytes of its pre-tokens are those of the text.

    HF then spells every byte as a character of GPT-2's alphabet. Here models take bytes as they are, and only
    vocabularies and `id_to_token` use that alphabet.

    Source: HF tokenizers `pre_tokenizers/byte_level.rs`.
    """

    add_prefix_space: bool = True
    """Puts a space in front of every text that does not begin with one."""
    trim_offsets: bool = True
    """Without effect: HF reads it in post-processing only."""
    use_regex: bool = True
    unicode: str = dataclasses.field(default="8", repr=False)
    """The version of Unicode that says what letters and numbers are; see `unicode.tables.BERT_UNICODE`."""

    def __post_init__(self) -> None:
        check_bert_unicode(self.unicode)

    @property
    def isolated(self) -> Node | None:
        return parse(GPT2_PATTERN, self.unicode) if self.use_regex and not self.add_prefix_space else None

    def split_pieces(self, pieces: Pieces) -> Pieces:
        if self.add_prefix_space:
            pieces = prefixed_by(pieces, b" ", ~begins_with(*pieces.words[:3], b" "))
        return run_node(pieces, parse(GPT2_PATTERN, self.unicode)) if self.use_regex else pieces


@dataclasses.dataclass(frozen=True)
class MetaspaceFields:
    """What a `Metaspace` has, the pre-tokenizer and the decoder alike."""

    replacement: str = "\u2581"
    """One character, which stands for a space."""
    prepend_scheme: Literal["always", "never", "first"] = "always"
    """Where one is put in front, if it is not there: every text, none, or only a text that begins its document. The
    decoder removes that of the first token."""
    split: bool = True
    """Whether to split before each; without effect in a decoder."""

    def __post_init__(self) -> None:
        if len(self.replacement) != 1:
            raise ValueError(f"replacement must be one character, got {self.replacement!r}")
        if self.prepend_scheme not in ("always", "never", "first"):
            raise ValueError(f"prepend_scheme must be always, never or first, got {self.prepend_scheme!r}")


@dataclasses.dataclass(frozen=True)
class Metaspace(MetaspaceFields, PreTokenizer):
    """Replaces spaces by a visible character, puts one in front, and splits before each.

    Source: HF tokenizers `pre_tokenizers/metaspace.rs`.
    """

    def _prefixed(self, pieces: Pieces) -> npt.NDArray[np.bool_]:
        if self.prepend_scheme == "never":
            return np.zeros(pieces.words.n_words, np.bool_)
        there = begins_with(*pieces.words[:3], b" ") | begins_with(*pieces.words[:3], self.replacement.encode())
        return ~there if self.prepend_scheme == "always" else ~there & pieces.is_first

    def split_pieces(self, pieces: Pieces) -> Pieces:
        return spaces_replaced(pieces, self.replacement, self._prefixed(pieces), cuts=self.split)


@dataclasses.dataclass(frozen=True)
class Sequence(PreTokenizer):
    """Applies pre-tokenizers in order, each to the pre-tokens of the one before.

    Source: HF tokenizers `pre_tokenizers/sequence.rs`.
    """

    pretokenizers: tuple[PreTokenizer, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "pretokenizers", tuple(self.pretokenizers))
        for part in self.pretokenizers:
            if not isinstance(part, PreTokenizer):
                raise ValueError(f"pretokenizers must be pre-tokenizers, got {part!r}")
        for step in flat(self)[self._last_byte_level + 1 :]:
            if isinstance(step, Metaspace) and (step.split or step.prepend_scheme != "never"):
                raise ValueError(
                    f"{step!r} cannot come after ByteLevel: what that spells has no spaces, and what is put in "
                    "front of it is no byte; put it before, or leave it out"
                )

    @property
    def is_fast(self) -> bool:
        return all(part.is_fast for part in self.pretokenizers)

    def split_pieces(self, pieces: Pieces) -> Pieces:
        for i, step in enumerate(flat(self)):
            if i == self._last_byte_level + 1:
                return split_spelled(pieces, self._split_spelled)
            pieces = step.split_pieces(pieces)
            if i < self._last_byte_level and isinstance(step, ByteLevel):
                pieces = spelled(pieces)
        return pieces

    @functools.cached_property
    def _last_byte_level(self) -> int:
        """The number of the last `ByteLevel`, after which steps read spelled bytes; that of steps if there is none."""
        steps = flat(self)
        return max((i for i, step in enumerate(steps) if isinstance(step, ByteLevel)), default=len(steps))

    def _split_spelled(self, pieces: Pieces) -> Pieces:
        for step in flat(self)[self._last_byte_level + 1 :]:
            pieces = step.split_pieces(pieces)
        return pieces


def flat(pre_tokenizer: PreTokenizer) -> list[PreTokenizer]:
    """Returns the steps of a pre-tokenizer, with nested sequences flattened."""
    if isinstance(pre_tokenizer, Sequence):
        return [step for part in pre_tokenizer.pretokenizers for step in flat(part)]
    return [pre_tokenizer]


def one_step(pre_tokenizer: PreTokenizer | None) -> PreTokenizer | None:
    """Returns the only step of a sequence, or a single step that does the same as all; anything else unchanged."""
    steps = [] if pre_tokenizer is None else flat(pre_tokenizer)
    if steps in ([WhitespaceSplit(), Punctuation("isolated")], [Punctuation("isolated"), WhitespaceSplit()]):
        return BertPreTokenizer()
    return steps[0] if len(steps) == 1 else pre_tokenizer


def n_byte_levels(pre_tokenizer: PreTokenizer) -> int:
    """Returns how many of the steps are a `ByteLevel`."""
    return sum(isinstance(step, ByteLevel) for step in flat(pre_tokenizer))


def is_byte_level(pre_tokenizer: PreTokenizer | None) -> bool:
    """Whether a pre-tokenizer has a `ByteLevel`, so that the model reads bytes spelled in GPT-2's alphabet."""
    return pre_tokenizer is not None and n_byte_levels(pre_tokenizer) > 0


def keeps_bytes(pre_tokenizer: PreTokenizer | None) -> bool:
    """Whether a `ByteLevel` leaves models the bytes of the text: nothing is put in front, and they are spelled once."""
    steps = [] if pre_tokenizer is None else flat(pre_tokenizer)
    changes = (isinstance(step, Metaspace) or (isinstance(step, ByteLevel) and step.add_prefix_space) for step in steps)
    return sum(isinstance(step, ByteLevel) for step in steps) == 1 and not any(changes)


def scanner_of(pre_tokenizer: PreTokenizer) -> Scanner | None:
    """Returns the scanner that does what a pre-tokenizer does, None if there is none.

    A `ByteLevel` that adds a prefix space has none: the space is no byte of the text. The scanner is kept with the
    pre-tokenizer, and pickled with it: to derive one takes 50 ms, a sixth of the time to the first id.
    """
    kept = vars(pre_tokenizer)
    if _SCANNER not in kept:
        kept[_SCANNER] = _scanner_of(tuple(flat(pre_tokenizer)))
    scanner: Scanner | None = kept[_SCANNER]
    return scanner


@functools.lru_cache(maxsize=16)
def _scanner_of(steps: tuple[PreTokenizer, ...]) -> Scanner | None:
    is_bytes = [isinstance(step, ByteLevel) for step in steps]
    cuts = [step for step in steps if not (isinstance(step, ByteLevel) and _only_spells(step))]
    nodes = [step.isolated for step in cuts]
    dropped = None
    if cuts and cuts[0].kept is not None:
        # Only the first step may drop anything.
        nodes[0], dropped = cuts[0].kept
    if not nodes or None in nodes or sum(is_bytes) > 1:
        return None
    # Steps after a `ByteLevel` read its spelling of bytes.
    n_plain = len([step for step in steps[: is_bytes.index(True) + 1] if step in cuts]) if any(is_bytes) else len(cuts)
    return find_scanner(tuple(node for node in nodes if node is not None), n_plain, dropped)


def _only_spells(step: ByteLevel) -> bool:
    return not step.use_regex and not step.add_prefix_space
