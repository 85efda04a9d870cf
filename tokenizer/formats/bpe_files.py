# SPDX-License-Identifier: Apache-2.0
"""BPE without a `tokenizer.json`: `vocab.json` + `merges.txt`, CLIP's gzip of merges.

These files hold only the model. The other parts are known from its family: GPT-2's pre-tokenizer, CLIP's clean-up.
"""

import dataclasses
import io
import re
import zlib
from collections.abc import Mapping
from pathlib import Path

from tokenmill.tokenizer import decoders, normalizers, pre_tokenizers
from tokenmill.tokenizer.added_tokens import AddedToken
from tokenmill.tokenizer.errors import TokenizerFileError
from tokenmill.tokenizer.formats import files, lowered
from tokenmill.tokenizer.formats.json_node import parse
from tokenmill.tokenizer.models import BPE
from tokenmill.tokenizer.models.bpe import BYTE_ALPHABET
from tokenmill.tokenizer.parts import Parts
from tokenmill.tokenizer.post_processors import RobertaProcessing
from tokenmill.tokenizer.pre_tokenizers.known_patterns import TIKTOKEN_PATTERNS

CLIP_SUFFIX = "</w>"
_CLIP_START, _CLIP_END = "<|startoftext|>", "<|endoftext|>"
_MAX_CLIP_BYTES = 32 << 20
"""The most bytes to unpack; OpenAI's file unpacks to three megabytes."""
_N_CLIP_MERGES = 49152 - 256 - 2
_CLIP_PATTERN = r"<\|startoftext\|>|<\|endoftext\|>|" + r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
_BYTE_ORDER = sorted(BYTE_ALPHABET, key=lambda c: (ord(c) > 0xFF, ord(c)))
"""The byte alphabet in the order of GPT-2's code: printable bytes first."""


def read_vocab_json(text: str, source: str) -> Mapping[str, int]:
    """Returns token -> id from the text of a `vocab.json`."""
    return parse(text, source).vocabulary()


def read_merges(text: str, source: str) -> list[tuple[str, str]]:
    """Returns the pairs in the text of a `merges.txt`: two tokens a line, after a line with the version."""
    lines = text.split("\n")
    if lines and lines[-1] == "":
        lines.pop()
    n_skipped = int(bool(lines) and lines[0].startswith("#version"))
    merges = []
    for number, line in enumerate(lines[n_skipped:], n_skipped + 1):
        tokens = tuple(line.removesuffix("\r").split(" "))
        if len(tokens) != 2 or "" in tokens:
            raise TokenizerFileError(f"{source}, line {number}: expected two tokens with a space between, got {line!r}")
        merges.append(tokens)
    return merges


def vocab_and_merges(vocab: Mapping[str, int], merges: list[tuple[str, str]]) -> Parts:
    """Returns the parts of a tokenizer that is given only by its vocabulary and merges: GPT-2's, or CLIP's.

    Raises:
      ValueError: if the tokens contain something that neither's can, so that other steps must have made the words.
    """
    if any(token.endswith(CLIP_SUFFIX) for token in vocab):
        if not all(c in vocab for c in (*BYTE_ALPHABET, _CLIP_END)):
            raise ValueError(
                f"tokens end in {CLIP_SUFFIX!r}, as those of CLIP, but its 256 bytes and {_CLIP_END!r} are not there; "
                + _say_what_it_is("OpenAIGPTTokenizer", "HerbertTokenizer")
            )
        return _clip_parts(vocab, merges)
    spelled = "\n".join(map(" ".join, merges)) or "\n".join(token for token in vocab if len(token) == 1)
    if strange := set(spelled) - _IN_BYTE_LEVEL:
        raise ValueError(
            f"tokens are made of {min(strange)!r} and other characters, not of GPT-2's letters for bytes; "
            + _say_what_it_is("a class that is read from these files")
        )
    if match := _NOT_GPT2.search(spelled):
        raise ValueError(
            f"merges join {match[0].replace(' ', '')!r}, which GPT-2's pre-tokenizer cuts; "
            + _say_what_it_is("Qwen2Tokenizer")
        )
    end = vocab.get("<|endoftext|>")
    added = [] if end is None else [AddedToken(end, "<|endoftext|>")]
    return dataclasses.replace(parts_of("gpt2", vocab, merges), added_tokens=added)


_IN_BYTE_LEVEL = frozenset((*BYTE_ALPHABET, " ", "\n"))
_NOT_GPT2 = re.compile(r"[!-&(-/:-@\[-`{-~] ?[A-Za-z]")
"""ASCII punctuation before a letter, except the apostrophe of "'s", in one token, or where two tokens merge: two words
to GPT-2, one to its successors."""


def _say_what_it_is(*names: str) -> str:
    return (
        f"pass as_class= (tokenizer.as_class in a config), {' or '.join(names)} for example, or use its tokenizer.json"
    )


def parts_of(
    steps: str, vocab: Mapping[str, int], merges: list[tuple[str, str]], unk_token: str = "", prefix_space: bool = False
) -> Parts:
    """Returns the parts of a tokenizer whose steps are known: "gpt2", "qwen2", "clip", "gpt1" or "herbert".

    unk_token: the unknown token, for models of characters. prefix_space: for "gpt2", whether a space is put in front.
    """
    if steps == "clip":
        return _clip_parts(vocab, merges)
    if bert := {
        "gpt1": normalizers.BertNormalizer(),
        "herbert": normalizers.BertNormalizer(True, True, False, False),
    }.get(steps):
        return Parts(
            model=BPE(vocab, merges, unk_token=unk_token, end_of_word_suffix=CLIP_SUFFIX),
            normalizer=bert,
            pre_tokenizer=pre_tokenizers.BertPreTokenizer(),
            decoder=decoders.BPEDecoder(CLIP_SUFFIX),
        )
    is_qwen, words = steps == "qwen2", pre_tokenizers.ByteLevel(prefix_space)
    return Parts(
        model=BPE(vocab, merges, byte_level=True),
        normalizer=normalizers.NFC() if is_qwen else None,
        pre_tokenizer=split_to_bytes(TIKTOKEN_PATTERNS["qwen"]) if is_qwen else words,
        decoder=decoders.ByteLevel(),
    )


def split_to_bytes(pattern: str) -> pre_tokenizers.Sequence:
    """Returns the pre-tokenizer of byte-level models that HF makes of a pattern of tiktoken's."""
    split = pre_tokenizers.Split(pattern, "isolated", is_regex=True)
    return pre_tokenizers.Sequence((split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)))


def _clip_parts(vocab: Mapping[str, int], merges: list[tuple[str, str]]) -> Parts:
    special = [t for t in (_CLIP_START, _CLIP_END) if t in vocab]
    unk_token = _CLIP_END if _CLIP_END in vocab else None
    model = BPE(vocab, merges, unk_token=unk_token, end_of_word_suffix=CLIP_SUFFIX, byte_level=True)
    layout = None
    if len(special) == 2:
        # As in HF: between the texts of a pair there are two end tokens.
        layout = RobertaProcessing((_CLIP_END, vocab[_CLIP_END]), (_CLIP_START, vocab[_CLIP_START]), False, False)
    return Parts(
        model=model,
        normalizer=normalizers.Sequence(
            (normalizers.NFC(), normalizers.Replace(r"\s+", " ", is_regex=True), normalizers.Lowercase())
        ),
        pre_tokenizer=pre_tokenizers.Sequence(
            (
                pre_tokenizers.Split(_CLIP_PATTERN, "removed", invert=True, is_regex=True),
                pre_tokenizers.ByteLevel(add_prefix_space=False),
            )
        ),
        post_processor=layout,
        decoder=decoders.Sequence(
            (decoders.ByteLevel(), decoders.Replace(CLIP_SUFFIX, " "), decoders.Strip(" ", 0, 1))
        ),
        added_tokens=[AddedToken(vocab[t], t) for t in special],
    )


def read_clip(data: bytes, source: str) -> Parts:
    """Returns the parts of CLIP's tokenizer from OpenAI's gzip of merges.

    The normalizer is HF's. All else is from OpenAI's `simple_tokenizer.py`, which also mends text with ftfy and decodes
    HTML entities; `tokenmill.tokenizer.text.TextTokenizer.for_clip` does that too.
    """
    import gzip  # only CLIP's file is packed

    try:
        with gzip.open(io.BytesIO(data)) as handle:
            raw = handle.read(_MAX_CLIP_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise TokenizerFileError(f"{source}: broken gzip: {error}") from error
    if len(raw) > _MAX_CLIP_BYTES:
        raise TokenizerFileError(f"{source}: unpacks to more than {_MAX_CLIP_BYTES} bytes")
    header, _, body = files.decode(raw, source).partition("\n")
    if "#version" not in header:
        raise TokenizerFileError(
            f"{source}: expected a first line with '#version', as CLIP's merges have, got {header[:80]!r}; any other "
            "packed file, unpack it"
        )
    lines = body.split("\n", _N_CLIP_MERGES)[:_N_CLIP_MERGES]  # the file has many more, which CLIP does not use
    merges = read_merges("\n".join(lines), source)
    tokens = [
        *_BYTE_ORDER,
        *(c + CLIP_SUFFIX for c in _BYTE_ORDER),
        *(a + b for a, b in merges),
        _CLIP_START,
        _CLIP_END,
    ]
    return _clip_parts({token: i for i, token in enumerate(tokens)}, merges)


def read_files(vocab: Path, merges: Path) -> tuple[Mapping[str, int], list[tuple[str, str]]]:
    """Reads a `vocab.json` and a `merges.txt`."""
    return read_vocab_json(files.read_text(vocab), str(vocab)), read_merges(files.read_text(merges), str(merges))


def load_vocab_and_merges(vocab: Path, merges: Path) -> Parts:
    """Reads a `vocab.json` and a `merges.txt` as a tokenizer; see `vocab_and_merges`.

    Raises:
      TokenizerFileError: as the readers, or if the two do not fit together; the message names them.
    """
    with files.named_in_errors(f"{vocab} with {merges.name}"):
        both = files.read_bytes(vocab), files.read_bytes(merges)
        return lowered.kept(both, str(vocab), lambda: vocab_and_merges(*read_files(vocab, merges)))
