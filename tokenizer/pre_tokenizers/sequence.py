# SPDX-License-Identifier: Apache-2.0
"""`Sequence` of pre-tokenizers, and the scanner that does the work of several."""

import dataclasses
import functools

from tokenmill.tokenizer.aligned import AlignedText
from tokenmill.tokenizer.kernels.scanning import AUTOMATA
from tokenmill.tokenizer.pre_tokenizers.byte_level import ByteLevel, Metaspace
from tokenmill.tokenizer.pre_tokenizers.characters import BertPreTokenizer, Punctuation, Whitespace, WhitespaceSplit
from tokenmill.tokenizer.pre_tokenizers.pattern_automata import build, new_automata
from tokenmill.tokenizer.pre_tokenizers.pattern_syntax import NotRegularError
from tokenmill.tokenizer.pre_tokenizers.pieces import Pieces, PreTokenizer, cut_aligned, run_scanner
from tokenmill.tokenizer.pre_tokenizers.scanner_patterns import SCANNERS, Scanner, scanner_in
from tokenmill.tokenizer.pre_tokenizers.spelled_bytes import spell, spelled_words, split_spelled
from tokenmill.tokenizer.pre_tokenizers.split import Split

CLIP_LITERALS = r"<\|startoftext\|>|<\|endoftext\|>|"
"""What CLIP's pattern begins with in its own code and in transformers 5."""
IN_CLIP_LITERALS = b"oftext|>"
"""A text without this has none of these literals."""


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
        """See `PreTokenizer`."""
        return scanner_of(self) is not None or all(part.is_fast for part in self.pretokenizers)

    @property
    def keeps_text(self) -> bool:
        """See `PreTokenizer`."""
        return n_byte_levels(self) < 2 and all(part.keeps_text for part in self.pretokenizers)

    def split_pieces(self, pieces: Pieces) -> Pieces:
        """See `PreTokenizer`."""
        words, plain = pieces.words, without_literals(self)
        if plain is not None and words.n_words:
            has_literals = IN_CLIP_LITERALS in words.values[words.starts[0] : words.stops[-1]].tobytes()
            plain = None if has_literals else plain
        scanner = scanner_of(plain or self)
        if scanner is not None:
            return run_scanner(pieces, scanner)
        for i, step in enumerate(flat(self)):
            if i == self._last_byte_level + 1 and self.spells_bytes:
                return split_spelled(pieces, self._split_spelled)
            pieces = step.split_pieces(pieces)
            if i < self._last_byte_level and isinstance(step, ByteLevel):
                pieces = pieces._replace(words=spelled_words(pieces.words))
        return pieces

    @functools.cached_property
    def _last_byte_level(self) -> int:
        """The number of the last `ByteLevel`, after which steps read spelled bytes; that of steps if there is none."""
        steps = flat(self)
        return max((i for i, step in enumerate(steps) if isinstance(step, ByteLevel)), default=len(steps))

    @property
    def spells_bytes(self) -> bool:
        """See `PreTokenizer`."""
        return self._last_byte_level < len(flat(self)) - 1

    def _split_spelled(self, pieces: Pieces) -> Pieces:
        for step in flat(self)[self._last_byte_level + 1 :]:
            pieces = step.split_pieces(pieces)
        return pieces

    def split_aligned_pieces(self, text: AlignedText, is_first: bool) -> list[AlignedText]:
        """See `PreTokenizer`."""
        if self.keeps_text and not self.spells_bytes:
            return cut_aligned(text, self.split_pieces, is_first=is_first)
        parts = [(text, is_first)]
        steps = flat(self)
        for i, step in enumerate(steps):
            cut = [(piece, first) for part, first in parts for piece in step.split_aligned_pieces(part, first)]
            parts = [(piece, first and piece.is_start) for piece, first in cut]
            if isinstance(step, ByteLevel) and i + 1 < len(steps):
                parts = [(spell(part), first) for part, first in parts]
        return [part for part, _ in parts]


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


def adds_prefix_space(pre_tokenizer: PreTokenizer) -> bool:
    """Whether a pre-tokenizer has a `ByteLevel` that puts a space in front of a text."""
    return any(isinstance(step, ByteLevel) and step.add_prefix_space for step in flat(pre_tokenizer))


def scanner_of(pre_tokenizer: PreTokenizer) -> Scanner | None:
    """Returns the scanner that does what a pre-tokenizer does, None if there is none.

    A `ByteLevel` that adds a prefix space has none: the space is no byte of the text.
    """
    steps = flat(pre_tokenizer)
    if n_byte_levels(pre_tokenizer) > 1:
        return None
    if len(steps) > 1 and isinstance(steps[-1], ByteLevel) and not steps[-1].add_prefix_space:
        if not steps[-1].use_regex:
            steps = steps[:-1]
        elif isinstance(steps[0], Split) and len(steps) == 2 and steps[0].scanner == "clip":
            # The `ByteLevel` cuts nothing more: each pre-token is one match of GPT-2's pattern.
            steps = steps[:-1]
    one = _scanner_of_one(steps[0]) if len(steps) == 1 else None
    return one or _automata_of(tuple(flat(pre_tokenizer)))


def without_literals(pre_tokenizer: PreTokenizer | None) -> PreTokenizer | None:
    """Returns what does the same, with a scanner, to texts without `IN_CLIP_LITERALS`, if it is CLIP's; else None."""
    match [] if pre_tokenizer is None else flat(pre_tokenizer):
        case [Split(is_regex=True) as split, ByteLevel() as last] if split.pattern.startswith(CLIP_LITERALS):
            plain = dataclasses.replace(split, pattern=split.pattern.removeprefix(CLIP_LITERALS))
            return Sequence((plain, last)) if plain.scanner == "clip" and not last.add_prefix_space else None
    return None


@functools.lru_cache(maxsize=16)
def _automata_of(steps: tuple[PreTokenizer, ...]) -> Scanner | None:
    """Returns the automata that cut like the steps in their order, as a scanner; None if a step does anything else."""
    is_bytes = [isinstance(step, ByteLevel) for step in steps]
    cuts = [step for step in steps if not (isinstance(step, ByteLevel) and _only_spells(step))]
    nodes = [step.isolated for step in cuts]
    if not nodes or None in nodes:
        return None
    # Steps after a `ByteLevel` read its spelling of bytes.
    n_plain = len([step for step in steps[: is_bytes.index(True) + 1] if step in cuts]) if any(is_bytes) else len(cuts)
    try:
        built = build(tuple(node for node in nodes if node is not None), n_plain)
    except NotRegularError:
        return None
    return Scanner(AUTOMATA, functools.partial(new_automata, built), patterns=str(cuts))


def _only_spells(step: ByteLevel) -> bool:
    return not step.use_regex and not step.add_prefix_space


def _scanner_of_one(step: PreTokenizer) -> Scanner | None:
    name = None
    if isinstance(step, Split):
        return scanner_in(step.scanner, step.unicode) if step.scanner else None
    if isinstance(step, ByteLevel):
        return scanner_in("gpt2", step.unicode) if step.use_regex and not step.add_prefix_space else None
    if isinstance(step, WhitespaceSplit):
        name = "nonspace"
    elif isinstance(step, Whitespace):
        name = "unicode_words"
    elif isinstance(step, BertPreTokenizer):
        return step.scanner
    return SCANNERS[name] if name else None
