# SPDX-License-Identifier: Apache-2.0
"""RWKV's vocabulary: each line has an id, a token as a literal of Python, and its length in bytes.

A text becomes the longest token that it begins with, again and again. That is WordPiece on bytes, with the text as one
word, whose entries need no prefix to continue it.

Source: the package rwkv 0.8.32, `rwkv_tokenizer.py`.
"""

import ast
import re

from tokenmill.tokenizer import decoders, pre_tokenizers
from tokenmill.tokenizer.added_tokens import AddedToken
from tokenmill.tokenizer.errors import TokenizerFileError
from tokenmill.tokenizer.formats import files
from tokenmill.tokenizer.models import WordPiece
from tokenmill.tokenizer.models.byte_alphabet import BYTE_ALPHABET
from tokenmill.tokenizer.parts import Parts

LINE = re.compile(r"(\d{1,9}) (b?(?P<quote>['\"]).*(?P=quote)) (\d{1,9})")
_END = "<|rwkv_tokenizer_end_of_text|>"
_LONGEST_WORD = (1 << 31) - 1


def read(text: str, source: str) -> Parts:
    """Returns the parts of a tokenizer.

    Raises:
      TokenizerFileError: if a line is something else, a byte is no token, or a token or an id stands twice.
    """
    vocab: dict[str, int] = {}
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        if (match := LINE.fullmatch(line.removesuffix("\r"))) is None:
            raise TokenizerFileError(f"{source}, line {number}: expected an id, a token, a length, got {line[:80]!r}")
        try:
            literal = ast.literal_eval(match[2])  # a literal is data: nothing is called or looked up
        except (ValueError, SyntaxError, MemoryError, RecursionError):  # the latter if it nests deeply
            literal = None
        if not isinstance(literal, str | bytes):
            raise TokenizerFileError(f"{source}, line {number}: {match[2][:80]} is no string of Python")
        token = literal.encode("utf-8", "surrogatepass") if isinstance(literal, str) else literal
        spelled = "".join(BYTE_ALPHABET[byte] for byte in token)
        if not token or len(token) != int(match[4]) or spelled in vocab:
            raise TokenizerFileError(f"{source}, line {number}: a token is empty, not of its length, or there twice")
        vocab[spelled] = int(match[1])
    if missing := [byte for byte, spelled in enumerate(BYTE_ALPHABET) if spelled not in vocab]:
        raise TokenizerFileError(f"{source}: every byte must be a token, but {bytes(missing[:1])!r} is not")
    with files.named_in_errors(source):
        # As all bytes are tokens, no word is unknown.
        model = WordPiece(vocab, BYTE_ALPHABET[0], "", _LONGEST_WORD)
        return Parts(
            model=model,
            pre_tokenizer=pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            decoder=decoders.ByteLevel(),
            added_tokens=() if 0 in vocab.values() else (AddedToken(0, _END),),
        )
