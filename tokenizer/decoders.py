# SPDX-License-Identifier: Apache-2.0
"""Decoders turn tokens back into text. They have HF's names, and HF's results on every list of tokens."""

import abc
import collections.abc
import dataclasses
import functools
import itertools
import re
from typing import NamedTuple

from tokenmill.tokenizer.models.bpe import BYTE_ALPHABET
from tokenmill.tokenizer.normalizers.base import FREE_BYTES, check_content, check_growth
from tokenmill.tokenizer.normalizers.sentencepiece import SentencePieceNormalizer
from tokenmill.tokenizer.pre_tokenizers.patterns import compiled, find_segments
from tokenmill.tokenizer.pre_tokenizers.sequence import MetaspaceFields
from tokenmill.tokenizer.ragged import text_rows

Strings = collections.abc.Sequence[str]


class TokenTexts(NamedTuple):
    """The text that each token adds, in UTF-8; the lists are parallel to the tokens."""

    first: list[bytes]
    """The text at the start of a row."""
    later: list[bytes]
    """The text everywhere else."""


class Decoder(abc.ABC):
    """Tokens to text.

    For a decoder that works token by token, the text of a row is the `first` text of its first token and the `later`
    texts of the others, joined. If that is not UTF-8, `decode` decides; otherwise the two are equal.

    Source: HF tokenizers `Decoder`.
    """

    is_per_token: bool = False
    """Whether the text of a token depends only on the token and on whether it is the first of its row."""

    @abc.abstractmethod
    def decode_chain(self, tokens: Strings) -> list[str]:
        """Returns the pieces of a row of tokens; joined they are its text."""

    def decode(self, tokens: Strings) -> str:
        """Returns the text of a row of tokens."""
        return "".join(self.decode_chain(tokens))

    def token_text(self, token: str, *, first: bool) -> bytes:
        """Returns the bytes that one token adds to the text; first: whether it is the first of its row.

        Raises:
          ValueError: if the decoder needs whole rows.
        """
        raise ValueError(f"{self!r} does not decode token by token; decode whole rows")

    def token_texts(self, tokens: Strings) -> TokenTexts | None:
        """Returns the texts of the tokens of a vocabulary, None if only `decode` gives the right text."""
        if not self.is_per_token:
            return None
        return TokenTexts(*([self.token_text(t, first=first) for t in tokens] for first in (True, False)))


class TokenDecoder(Decoder):
    """A decoder that turns each token into text independently of the others."""

    is_per_token = True

    @abc.abstractmethod
    def text(self, token: str, *, first: bool) -> str:
        """Returns the text of one token; first: whether it is the first of its row."""

    def decode_chain(self, tokens: Strings) -> list[str]:
        return [self.text(token, first=i == 0) for i, token in enumerate(tokens)]

    def token_text(self, token: str, *, first: bool) -> bytes:
        return self.text(token, first=first).encode()


# Tokens that stand for bytes.

_BYTES = dict.fromkeys(range(256), "\u0100") | {ord(character): byte for byte, character in enumerate(BYTE_ALPHABET)}
"""For `str.translate`: characters of the alphabet become those of Latin-1 with the numbers of their bytes."""
# HF reads the digits as Rust reads numbers: in upper or lower case, and with a sign.
_BYTE_TOKEN = re.compile("<0x([0-9A-Fa-f]{2}|[+][0-9A-Fa-f])>")
_OWN_BYTE_TOKEN = re.compile(r"<0x([0-9A-F]{2})>")


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

    def token_texts(self, tokens: Strings) -> TokenTexts:
        texts = [self.token_text(token, first=False) for token in tokens]
        return TokenTexts(texts, texts)

    def decode_chain(self, tokens: Strings) -> list[str]:
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

    def token_texts(self, tokens: Strings) -> TokenTexts | None:
        """Returns the texts of tokens; None if one is empty, since that separates bytes, which joined texts do not."""
        return super().token_texts(tokens) if all(tokens) else None

    def decode_chain(self, tokens: Strings) -> list[str]:
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


# Steps that edit strings.


@dataclasses.dataclass(frozen=True)
class Replace(TokenDecoder):
    """Replaces every match of a pattern in every token; `content` is taken literally.

    Raises:
      ValueError: if the pattern is a regular expression that does not compile, or has no equivalent here.

    Source: HF tokenizers `normalizers/replace.rs`.
    """

    pattern: str
    content: str
    is_regex: bool = False
    """Whether `pattern` is a regular expression, in the dialect of Oniguruma, or a literal."""

    def __post_init__(self) -> None:
        check_content("content", self.content)
        if self.is_regex:
            compiled(self.pattern)  # raises errors now, not at the first token

    def text(self, token: str, *, first: bool) -> str:
        """Returns the text of one token; see `TokenDecoder`. As in HF, nothing matches in an empty token."""
        if not token:
            return token
        if self.pattern and not self.is_regex:
            return token.replace(self.pattern, self.content)
        # An empty literal matches everywhere, like an empty expression.
        expression = self.pattern if self.is_regex else re.escape(self.pattern)
        segments = find_segments(expression, token)
        return "".join(self.content if is_match else token[start:stop] for start, stop, is_match in segments)


@dataclasses.dataclass(frozen=True)
class Strip(TokenDecoder):
    """Removes a character from both ends of every token, up to `start` and `stop` times.

    A token of only this character becomes empty; HF crashes if `stop` then asks for more.

    Source: HF tokenizers `decoders/strip.rs`.
    """

    content: str
    start: int
    stop: int

    def __post_init__(self) -> None:
        if len(self.content) != 1:
            raise ValueError(f"content must be one character, got {self.content!r}")
        for name, n in (("start", self.start), ("stop", self.stop)):
            if n < 0:
                raise ValueError(f"{name} must not be negative, got {n!r}")

    def text(self, token: str, *, first: bool) -> str:
        n_left = min(self.start, len(token) - len(token.lstrip(self.content)))
        n_right = min(self.stop, len(token) - len(token.rstrip(self.content)))
        return token[n_left : max(0, len(token) - n_right)]


@dataclasses.dataclass(frozen=True)
class Fuse(Decoder):
    """Joins all tokens, so that the next decoder gets the row as one.

    Source: HF tokenizers `decoders/fuse.rs`.
    """

    is_per_token = True

    def token_text(self, token: str, *, first: bool) -> bytes:
        return token.encode()

    def decode_chain(self, tokens: Strings) -> list[str]:
        return ["".join(tokens)]


@dataclasses.dataclass(frozen=True)
class Denormalizer(Decoder):
    """Normalizes the text of a row, as the denormalizer of a SentencePiece model does; HF has no such type."""

    normalizer: SentencePieceNormalizer

    def decode_chain(self, tokens: Strings) -> list[str]:
        text = "".join(tokens)
        if _HALF.search(text):  # a token by itself, for `token_pieces`
            return [text]
        rows = self.normalizer.normalize_rows(text_rows([text]))
        return [rows.values[rows.offsets[0] : rows.offsets[1]].tobytes().decode()]


# Tokens that mark words, or that repeat.

_CLEANUPS = (
    (" .", "."), (" ?", "?"), (" !", "!"), (" ,", ","), (" ' ", "'"), (" n't", "n't"), (" 'm", "'m"),
    (" do not", " don't"), (" 's", "'s"), (" 've", "'ve"), (" 're", "'re"),
)  # fmt: skip
_MAY_BE_CLEANED = re.compile("|".join(re.escape(before) for before, _ in _CLEANUPS))


def _cleaned(text: str) -> str:
    if not _MAY_BE_CLEANED.search(text):  # most words
        return text
    return functools.reduce(lambda text, rule: text.replace(*rule), _CLEANUPS, text)


@dataclasses.dataclass(frozen=True)
class WordPiece(TokenDecoder):
    """Joins tokens with spaces, except those that continue a word; optionally closes the gap before punctuation.

    With `byte_tokens`, `<0x00>` to `<0xFF>` become bytes, without a space before them; HF has no such policy.

    Source: HF tokenizers `decoders/wordpiece.rs`.
    """

    prefix: str = "##"
    cleanup: bool = True
    byte_tokens: bool = False

    def text(self, token: str, *, first: bool) -> str:
        if not first:
            token = token.removeprefix(self.prefix) if token.startswith(self.prefix) else f" {token}"
        return _cleaned(token) if self.cleanup else token

    def token_text(self, token: str, *, first: bool) -> bytes:
        if self.byte_tokens and (match := _OWN_BYTE_TOKEN.fullmatch(token)):
            return bytes([int(match.group(1), 16)])
        return self.text(token, first=first).encode()

    def decode_chain(self, tokens: Strings) -> list[str]:
        if not self.byte_tokens:
            return super().decode_chain(tokens)
        joined = b"".join(self.token_text(token, first=i == 0) for i, token in enumerate(tokens))
        return [joined.decode("utf-8", "replace")]


@dataclasses.dataclass(frozen=True)
class Metaspace(MetaspaceFields, TokenDecoder):
    """Turns the visible space back into a space; that of the first token is removed if one was put in front.

    Source: HF tokenizers `pre_tokenizers/metaspace.rs`.
    """

    def text(self, token: str, *, first: bool) -> str:
        return token.replace(self.replacement, "" if first and self.prepend_scheme != "never" else " ")


@dataclasses.dataclass(frozen=True)
class BPEDecoder(Decoder):
    """Turns the end-of-word suffix into a space, or, in the last token, into nothing.

    Source: HF tokenizers `decoders/bpe.rs`.
    """

    suffix: str = "</w>"

    def decode_chain(self, tokens: Strings) -> list[str]:
        last = len(tokens) - 1
        return [token.replace(self.suffix, "" if i == last else " ") for i, token in enumerate(tokens)]


@dataclasses.dataclass(frozen=True)
class CTC(Decoder):
    """Drops tokens that repeat the one before, then padding, which separates repetitions that are meant.

    Source: HF tokenizers `decoders/ctc.rs`.
    """

    pad_token: str = "<pad>"
    word_delimiter_token: str = "|"
    """Becomes a space."""
    cleanup: bool = True
    """Whether to close the gap before punctuation; if not, word delimiters stay too, as in HF."""

    def decode_chain(self, tokens: Strings) -> list[str]:
        pieces = []
        for token, _ in itertools.groupby(tokens):
            piece = token.replace(self.pad_token, "")
            if self.cleanup:
                piece = _cleaned(piece).replace(self.word_delimiter_token, " ")
            if piece:
                pieces.append(piece)
        return pieces


# Several decoders as one.

_HALF = re.compile("[\udc80-\udcff]")
"""Between steps, a byte that is no character by itself is written as with Python's `surrogateescape`."""


class _Steps(NamedTuple):
    """A sequence that works token by token: each token is edited, read as bytes, and then the row loses its start."""

    edits: list[TokenDecoder]
    reader: ByteFallback | ByteLevel | None
    stripped: bytes
    """The text that is removed from the start of a row, once; empty for none."""


@dataclasses.dataclass(frozen=True)
class Sequence(Decoder):
    """Runs decoders in sequence, each on the result of the one before.

    It works token by token if it has, in this order, edits of single tokens (Replace, Strip, Metaspace, WordPiece), at
    most one of ByteFallback and ByteLevel, Fuse, and a Strip of one character from the start of the row, as Llama 2's.

    Source: HF tokenizers `decoders/sequence.rs`.
    """

    decoders: tuple[Decoder, ...]

    def flat(self) -> list[Decoder]:
        """Returns the decoders in order, with nested sequences flattened."""
        return [part for d in self.decoders for part in (d.flat() if isinstance(d, Sequence) else [d])]

    @functools.cached_property
    def _steps(self) -> _Steps | None:
        edits: list[TokenDecoder] = []
        reader: ByteFallback | ByteLevel | None = None
        is_one = False
        stripped = b""
        for decoder in self.flat():
            if isinstance(decoder, Fuse):
                is_one = True
            elif reader is None and not is_one and isinstance(decoder, ByteFallback | ByteLevel):
                reader = decoder
                is_one = isinstance(decoder, ByteLevel)
            elif reader is None and not is_one and isinstance(decoder, TokenDecoder):
                if isinstance(decoder, WordPiece) and decoder.byte_tokens:
                    return None
                edits.append(decoder)
            elif is_one and not stripped and isinstance(decoder, Strip) and (decoder.start, decoder.stop) == (1, 0):
                stripped = decoder.content.encode()
                if reader is not None and len(stripped) > 1:
                    return None  # several tokens together may spell the character
            else:
                return None
        return _Steps(edits, reader, stripped)

    @property
    def is_per_token(self) -> bool:  # type: ignore[override]
        return self._steps is not None

    def _unstripped(self, steps: _Steps, token: str, *, first: bool) -> bytes:
        n_before = len(token)
        for edit in steps.edits:
            token = edit.text(token, first=first)
            check_growth(n_before, len(token))
        return steps.reader.token_text(token, first=first) if steps.reader else token.encode()

    def token_text(self, token: str, *, first: bool) -> bytes:
        if self._steps is None:
            return super().token_text(token, first=first)
        text = self._unstripped(self._steps, token, first=first)
        return text.removeprefix(self._steps.stripped) if first else text

    def token_texts(self, tokens: Strings) -> TokenTexts | None:
        """Returns the texts of tokens; see `Decoder`.

        None also if a token is empty and that matters: it separates bytes, or makes the next token the first of the
          row.
        """
        steps = self._steps
        if steps is None:
            return None
        later = [self._unstripped(steps, token, first=False) for token in tokens]
        first = later
        if not all(isinstance(edit, Replace | Strip) for edit in steps.edits):
            first = [self._unstripped(steps, token, first=True) for token in tokens]
        if (steps.stripped or isinstance(steps.reader, ByteFallback)) and not (all(first) and all(later)):
            return None
        return TokenTexts([text.removeprefix(steps.stripped) for text in first] if steps.stripped else first, later)

    def decode_chain(self, tokens: Strings) -> list[str]:
        pieces = list(tokens)
        n_before = sum(map(len, pieces))
        for decoder in self.flat():
            pieces = decoder.decode_chain(pieces)
            check_growth(n_before + FREE_BYTES * len(tokens), sum(map(len, pieces)))
        return pieces


def token_pieces(decoder: Decoder, tokens: Strings) -> list[bytes]:
    """Returns the bytes that each token of a row adds to its text.

    Joined they are the result of `decode`, except that bytes which form no character stay as they are. There are two
    differences: after a step that joins tokens, an edit other than `Strip` is applied to each token separately; and
    with `CTC`, which drops tokens, and `Denormalizer` each token is read separately.
    """
    pieces, is_joined = list(tokens), False
    for step in decoder.flat() if isinstance(decoder, Sequence) else [decoder]:
        if isinstance(step, Strip) and is_joined:
            pieces = _strip(pieces, step.content, step.start)
            pieces = [piece[::-1] for piece in _strip([p[::-1] for p in reversed(pieces)], step.content, step.stop)]
            pieces.reverse()
        elif step.is_per_token:
            pieces = [_read(step, piece, first=i == 0) for i, piece in enumerate(pieces)]
            is_joined = is_joined or isinstance(step, Fuse | ByteLevel)
        else:
            chain = step.decode_chain(pieces)
            if len(chain) != len(pieces):
                return [decoder.decode([token]).encode() for token in tokens]
            pieces = chain
    return [piece.encode("utf-8", "surrogateescape") for piece in pieces]


def _read(step: Decoder, piece: str, *, first: bool) -> str:
    if not _HALF.search(piece):
        return step.token_text(piece, first=first).decode("utf-8", "surrogateescape")
    return step.text(piece, first=first) if isinstance(step, TokenDecoder) else piece


def _strip(pieces: list[str], content: str, n: int) -> list[str]:
    """Removes `content` up to `n` times from the start of a row, which may be spread over several pieces."""
    left = []
    for piece in pieces:
        n_here = min(n, len(piece) - len(piece.lstrip(content)))
        left.append(piece[n_here:])
        n = n - n_here if n_here == len(piece) else 0
    return left
