# SPDX-License-Identifier: Apache-2.0
"""`Tokenizer.as_hf()`: a tokenizer of transformers, on the kernels.

It is transformers' own class: whatever it does with texts, rows, tensors, chats and files, it does. Only what it gets
from HF tokenizers it gets from here.
"""

import copy
import os
from typing import Any

from tokenmill.tokenizer.adapters.tokenizers import HFTokenizer, with_added_tokens


def fast_tokenizer(tokenizer: Any, like: Any, options: dict[str, Any]) -> Any:
    """Returns a `Tokenizer` as transformers' `PreTrainedTokenizerFast`; see `Tokenizer.as_hf`."""
    try:
        import transformers
    except ImportError:
        raise ImportError("as_hf needs transformers, which is not installed: pip install 'transformers>=5'") from None
    if like is None:
        return transformers.PreTrainedTokenizerFast(tokenizer_object=HFTokenizer(tokenizer), **options)
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
    return found
