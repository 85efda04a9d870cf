# SPDX-License-Identifier: Apache-2.0
"""`Tokenizer.as_hf()`: a tokenizer of transformers, on the kernels."""

import copy
import os
import warnings
from typing import Any

from tokenmill.tokenizer.adapters.tokenizers import HFTokenizer, with_added_tokens
from tokenmill.tokenizer.models import WordPiece

_BERT_ROLES = ("unk", "sep", "pad", "cls", "mask")
"""What transformers' BertTokenizer calls its special tokens: `[UNK]` is its `unk_token`."""
_N_TOKENS = 100
_KINDS = (
    (0xA0, 0x180), (0x300, 0x310), (0x2000, 0x2070), (0x2100, 0x2150), (0x3000, 0x3040), (0x30A0, 0x30C0),
    (0xAC00, 0xAC08), (0xF900, 0xF908), (0xFB00, 0xFB07), (0xFE30, 0xFE50), (0xFF01, 0xFFA0), (0xFFFC, 0xFFFE),
)  # fmt: skip
"""Characters that normalizers change, remove or cut at."""
_TEXTS = (
    "", " ", "lead", " lead", "  two", "trail ", "two  words", "a\nb", "\n\n a", "a\tb", "\r\n", "Mill MILL mill",
    "don't it's", "1234 5,678.90", "a-b_c/d", "def f(x):\n    return x ** 2", "naïve Straße É", "e\u0301 n\u0303",
    "玫瑰，好。", "😀 🧑\u200d🔬", "▁a ▁", "``x'' ...", "<|x|> [y] {z}", "x" * 120,
    *(f"a{chr(c)}b {chr(c)} {chr(c)}" for c in (*range(0x20), 0x7F, *(c for a, b in _KINDS for c in range(a, b)))),
)  # fmt: skip
"""Texts on which a tokenizer and the one that it is like are compared."""


def fast_tokenizer(tokenizer: Any, like: Any, options: dict[str, Any]) -> Any:
    """Returns a `Tokenizer` as transformers' `PreTrainedTokenizerFast`; see `Tokenizer.as_hf`.

    It is transformers' own class: whatever it does with texts, rows, tensors, chats and files, it does. Only what it
    gets from HF tokenizers it gets from here.
    """
    try:
        import transformers
    except ImportError as error:  # It may be there, and lack something else.
        raise ImportError(f"as_hf needs transformers: {error}; pip install 'transformers>=5'") from error
    if like is None:
        special = {token.content for token in tokenizer.added_tokens if token.special}
        roles = {f"{role}_token": f"[{role.upper()}]" for role in _BERT_ROLES if f"[{role.upper()}]" in special}
        named = roles if isinstance(tokenizer.model, WordPiece) else {}
        return transformers.PreTrainedTokenizerFast(tokenizer_object=HFTokenizer(tokenizer), **(named | options))
    if isinstance(like, str | os.PathLike):
        like = transformers.AutoTokenizer.from_pretrained(os.fspath(like), local_files_only=True, **options)
    elif options:
        raise TypeError(f"options are for a new tokenizer or a folder; a tokenizer has its own, got {options!r}")
    if not isinstance(like, transformers.PreTrainedTokenizerFast):
        raise TypeError(f"like must be a folder or a fast tokenizer of transformers, got {like!r:.200}")
    mine, its = (each.get_vocab(with_added_tokens=False) for each in (tokenizer, like.backend_tokenizer))
    if mine != its:
        differing = sorted(dict(mine.items() ^ its.items()))
        raise ValueError(f"the vocabulary is not that of {type(like).__name__}: it differs in {differing[:5]!r}")
    backend = HFTokenizer(with_added_tokens(tokenizer, like.added_tokens_decoder))
    found = copy.deepcopy(like, {id(like.backend_tokenizer): backend})
    if hasattr(found, "_wrap_decode_method_backend_tokenizer"):  # CLIP's class changes what its backend decodes
        found._wrap_decode_method_backend_tokenizer()
    _warn_of_other_ids(found, like)
    return found


def _warn_of_other_ids(found: Any, like: Any) -> None:
    """Warns if a tokenizer has other ids than the one whose class it has: classes of transformers 5 make steps anew."""
    contents = [token.content for token in like.added_tokens_decoder.values()]
    texts = [*_TEXTS, *(f"a {content} b{content}, {content}" for content in contents[:_N_TOKENS])]
    if getattr(like.backend_tokenizer.model, "dropout", None):
        return
    try:
        mine, its = (each.backend_tokenizer.encode_batch(texts) for each in (found, like))
    except Exception:  # HF raises nothing more special; such a tokenizer says it when it is used
        return
    differing = [(text, a.ids, b.ids) for text, a, b in zip(texts, mine, its, strict=True) if a.ids != b.ids]
    if differing:
        text, a, b = min(differing, key=lambda each: len(each[0]))
        warnings.warn(
            f"{type(like).__name__} of transformers gives other ids than this tokenizer, on {len(differing)} of "
            f"{len(texts)} texts that were tried: {text[:80]!r} becomes {b[:20]}, here {a[:20]}; it makes its steps "
            "anew, whatever the files say. These ids are kept; for those of transformers load "
            "Tokenizer.from_str(like.backend_tokenizer.to_str()), where like is its tokenizer",
            stacklevel=4,
        )
