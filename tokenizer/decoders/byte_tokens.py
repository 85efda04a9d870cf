# SPDX-License-Identifier: Apache-2.0
"""Decoders for tokens that stand for bytes: `ByteLevel`, `ByteFallback`."""

import dataclasses
import re
from collections.abc import Sequence

from tokenmill.tokenizer.decoders.base import Decoder, TokenTexts
from tokenmill.tokenizer.models.bpe import BYTE_ALPHABET

_BYTES = dict.fromkeys(range(256), "\u0100") | {ord(character): byte for byte, character in enumerate(BYTE_ALPHABET)}
"""For `str.translate`: characters of the alphabet become those of Latin-1 with the numbers of their bytes."""
# HF reads the digits as Rust reads numbers: in upper or lower case, and with a sign.
_BYTE_TOKEN = re.compile("<0x([0-9A-Fa-f]{2}|[+][0-9A-Fa-f])>")


@dataclasses.dataclass(frozen=True)
class ByteLevel(Decoder):
    """Reads tokens as bytes written in GPT-2's alphabet. A token with any other character is its own UTF-8.

    Bytes that are not UTF-8 become U+FFFD, one for each longest prefix of a character, as in Python.

    Source: HF tokenizers `pre_tokenizers/byte_level.rs`.
    """

    add_prefix_space: bool = True
    trim_offsets: bool = True
    use_regex: bool = True
    """All three only matter to other parts; they are kept because the file has them."""

    is_per_token = True

    def token_text(self, token: str, *, first: bool) -> bytes:
        try:
            return token.translate(_BYTES).encode("latin-1")
        except UnicodeEncodeError:
            return token.encode()

    def token_texts(self, tokens: Sequence[str]) -> TokenTexts:
        texts = [self.token_text(token, first=False) for token in tokens]
        return TokenTexts(texts, texts)

    def decode_chain(self, tokens: Sequence[str]) -> list[str]:
        """Returns the text of a row of tokens as one piece."""
        return [b"".join(self.token_text(token, first=False) for token in tokens).decode("utf-8", "replace")]


@dataclasses.dataclass(frozen=True)
class ByteFallback(Decoder):
    """Reads tokens like `<0xE2>` as bytes. In a run of them that is not UTF-8, every byte becomes U+FFFD.

    With `keeps_characters`, only bytes that are part of no character do, as in sentencepiece.

    Source: HF tokenizers `decoders/byte_fallback.rs`; sentencepiece `sentencepiece_processor.cc`, `Decode`.
    """

    keeps_characters: bool = False
    """Not in the file: HF has no such option."""

    is_per_token = True

    def token_text(self, token: str, *, first: bool) -> bytes:
        match = _BYTE_TOKEN.fullmatch(token)
        return bytes([int(match.group(1), 16)]) if match else token.encode()

    def token_texts(self, tokens: Sequence[str]) -> TokenTexts | None:
        """Returns the texts of tokens; None if one is empty, since that separates bytes, which joined texts do not."""
        return super().token_texts(tokens) if all(tokens) else None

    def decode_chain(self, tokens: Sequence[str]) -> list[str]:
        """Returns the pieces of a row of tokens: a run of byte tokens that is UTF-8 is one."""
        pieces: list[str] = []
        run = bytearray()
        for token in tokens:
            if _BYTE_TOKEN.fullmatch(token):
                run += self.token_text(token, first=False)
            else:
                pieces += self._characters(run)
                pieces.append(token)
                run.clear()
        return pieces + self._characters(run)

    def _characters(self, run: bytearray) -> list[str]:
        if not run:
            return []
        try:
            return [run.decode()]
        except UnicodeDecodeError:
            return [characters_of(run)] if self.keeps_characters else ["\ufffd"] * len(run)


def characters_of(data: bytes | bytearray) -> str:
    """Decodes UTF-8, one U+FFFD for every byte that is not part of a character."""
    # Python itself makes one for each longest prefix of a character.
    found = data.decode("utf-8", "surrogateescape")
    return "".join("\ufffd" if "\udc80" <= character <= "\udcff" else character for character in found)
