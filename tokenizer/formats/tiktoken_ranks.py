# SPDX-License-Identifier: Apache-2.0
"""tiktoken's ranks: each line has a token in base64 and its rank."""

import binascii
import re
from collections.abc import Sequence

from tokenmill.tokenizer import decoders, pre_tokenizers
from tokenmill.tokenizer.errors import TokenizerFileError
from tokenmill.tokenizer.formats import files
from tokenmill.tokenizer.models import BPE
from tokenmill.tokenizer.models.vocabulary import padded_bytes
from tokenmill.tokenizer.parts import Parts
from tokenmill.tokenizer.pre_tokenizers.known_patterns import TIKTOKEN_PATTERNS

_NAME = re.compile(r"[\w.-]*")
_OF_TIKTOKEN = re.compile(r"\\.|\[(?:\\.|[^\]\\])*\]|\{\d*,?\d*\}\+|[$^]|\(\?[a-zA-Z]*[msUx]", re.DOTALL)
"""What means something else, or nothing, to HF; escapes and sets of characters come first, to be passed over."""


def read(text: str, source: str, pattern: str | None) -> Parts:
    """Returns the parts of a tokenizer.

    Args:
      text: the content of the file.
      source: its name in messages.
      pattern: as for `parts_of`; the file does not say.

    Raises:
      TokenizerFileError: if there is no pattern, a line is something else, or the ranks are no vocabulary.
    """
    if pattern is None or (pattern not in TIKTOKEN_PATTERNS and _NAME.fullmatch(pattern)):
        raise TokenizerFileError(
            f"{source}: tiktoken's ranks do not say how text is split; pass pattern= (tokenizer.pattern in a config), "
            f"the regular expression, called pat_str in programs, or one of {', '.join(TIKTOKEN_PATTERNS)}, got "
            f"{pattern!r}"
        )
    return parts_of(*read_lines(text, source), pattern, source)


def parts_of(tokens: Sequence[bytes], ids: Sequence[int], pattern: str, source: str) -> Parts:
    """Returns the parts of a tokenizer that has these tokens.

    Args:
      tokens: the tokens.
      ids: their ids, which are also their ranks.
      pattern: what splits text: one of the names of `TIKTOKEN_PATTERNS`, or a regular expression as tiktoken has it.
        Text that it does not match becomes words of its own; tiktoken loses it.
      source: what messages call the file.

    Raises:
      TokenizerFileError: if the ranks are no vocabulary, or the pattern is no regular expression.
    """
    with files.named_in_errors(source):
        model = BPE.from_ranked_tokens(*padded_bytes(tokens), ids)
        split = pre_tokenizers.Split(_in_hf(pattern), "isolated", is_regex=True)
    words = pre_tokenizers.Sequence((split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)))
    return Parts(model=model, pre_tokenizer=words, decoder=decoders.ByteLevel())


def _in_hf(pattern: str) -> str:
    r"""Returns a pattern of tiktoken's in the spelling that means the same to HF.

    `{1,3}+` is possessive in tiktoken, which makes no difference at the end of an alternative; `$` is the end of the
    text there, and of a line in HF.

    >>> _in_hf(r"\p{N}{1,3}+|\s++$")
    '\\p{N}{1,3}|\\s++\\z'
    """
    if pattern in TIKTOKEN_PATTERNS:
        return TIKTOKEN_PATTERNS[pattern]

    def spelled(found: re.Match[str]) -> str:
        text = found[0]
        if text.endswith("}+") and found.end() < len(pattern) and pattern[found.end()] != "|":
            raise ValueError(f"pattern {pattern[:200]!r}: {text} is possessive; write (?>...) around what it is of")
        if text.startswith("(?"):
            raise ValueError(f"pattern {pattern[:200]!r}: of the flags in {text!r} only i means the same to HF")
        return text[:-1] if text.endswith("}+") else {"$": r"\z", "^": r"\A"}.get(text, text)

    return _OF_TIKTOKEN.sub(spelled, pattern)


def read_lines(text: str, source: str) -> tuple[list[bytes], list[int]]:
    """Returns the tokens and the numbers of lines, whatever their line ends; empty lines are passed over.

    An empty token, which Whisper's file has, is left out, and its rank stays free.

    Raises:
      TokenizerFileError: if a line is something else; the message says which.
    """
    tokens, ids = [], []
    for number, line in enumerate(text.splitlines(), 1):
        if not line:
            continue
        encoded, _, rank = line.partition(" ")
        try:
            if encoded == "=":  # in Whisper's file; an empty token, which no text becomes
                int(rank)
                continue
            tokens.append(binascii.a2b_base64(encoded, strict_mode=True))
            ids.append(int(rank))
        except (binascii.Error, ValueError) as error:
            raise TokenizerFileError(
                f"{source}, line {number}: expected base64 and a rank, got {line[:80]!r}"
            ) from error
    return tokens, ids
