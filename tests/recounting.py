# SPDX-License-Identifier: Apache-2.0
"""Comparisons of tokenizers, counted again in plain Python: a document, a word and a resample at a time."""

import numpy as np

from tokenmill.pipeline.comparing.measure import LEAST_BLOCKS, N_RESAMPLES
from tokenmill.pipeline.comparing.sums import N_BLOCKS
from tokenmill.tokenizer import Tokenizer


def n_tokens(tokenizer: Tokenizer, text: str) -> int:
    return len(tokenizer.encode(text, add_special_tokens=False).ids)


def n_unknown(tokenizer: Tokenizer, text: str) -> int:
    return tokenizer.encode(text, add_special_tokens=False).ids.count(tokenizer.unk_token_id)


def divided(a, b):
    return a / b if b else None


def sums_of(documents, tokenizers):
    """Returns what `from_text` must say of documents, each {"text", "block"}, by the names of tokenizers."""
    texts = [each["text"] for each in documents]
    words = [word for text in texts for word in text.split()]
    found = {
        "documents": len(texts),
        "bytes": sum(len(text.encode()) for text in texts),
        "characters": sum(map(len, texts)),
        "words": len(words),
        "by": {},
    }
    for label, tokenizer in tokenizers.items():
        tokens = sum(n_tokens(tokenizer, text) for text in texts)
        alone = [n_tokens(tokenizer, word) for word in words]
        kept = [
            min(n, n_tokens(tokenizer, f" {word}")) == 1 and not n_unknown(tokenizer, word)
            for word, n in zip(words, alone, strict=True)
        ]
        found["by"][label] = {
            "tokens": tokens,
            "bytes_per_token": divided(found["bytes"], tokens),
            "tokens_per_megabyte": divided(1e6 * tokens, found["bytes"]),
            "fertility": divided(tokens, len(words)),
            "unknown": divided(sum(n_unknown(tokenizer, text) for text in texts), tokens),
            "strr": divided(sum(kept), len(words)),
            "strr_alone": divided(sum(n == 1 for n in alone), len(words)),
            "fertility_alone": divided(sum(alone), len(words)),
        }
    return found


def bytes_per_token_interval(documents, tokenizer, first=None):
    """Returns the interval of bytes per token, or of its difference from those of another tokenizer."""
    if len({each["block"] for each in documents}) < LEAST_BLOCKS:
        return None
    values = []
    rows = [(each["block"], len(each["text"].encode())) for each in documents]
    tokens = [[n_tokens(each, document["text"]) for document in documents] for each in (tokenizer, first) if each]
    for drawn in np.random.default_rng(1).integers(0, N_BLOCKS, (N_RESAMPLES, N_BLOCKS)).tolist():
        times = [drawn.count(block) for block, _ in rows]
        n_bytes = sum(n * size for n, (_, size) in zip(times, rows, strict=True))
        ratios = [n_bytes / sum(n * size for n, size in zip(times, sizes, strict=True)) for sizes in tokens]
        values.append(ratios[0] - ratios[1] if first else ratios[0])
    return np.percentile(values, [2.5, 97.5]).tolist()


def sampled(documents, tokenizer):
    """Returns what `stats.json` must say of a sample of texts."""
    words = [word for text in documents for word in text.split()]
    normalized = tokenizer.normalizer.normalize_str if tokenizer.normalizer is not None else str
    pairs = []
    for text in documents:
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        pairs.append((normalized(text), normalized(tokenizer.decode(ids, skip_special_tokens=False))))
    whole = [
        min(n_tokens(tokenizer, word), n_tokens(tokenizer, f" {word}")) == 1 and not n_unknown(tokenizer, word)
        for word in words
    ]
    n_same = sum(text == back for text, back in pairs)
    return {
        "documents": len(documents),
        "bytes": sum(len(text.encode()) for text in documents),
        "documents_round_trip": n_same,
        "documents_round_trip_but_for_spaces": sum(
            "".join(text.split()) == "".join(back.split()) for text, back in pairs
        ),
        "share_round_trip": divided(n_same, len(documents)),
        "spaced_words": len(words),
        "whole_words": sum(whole),
        "strr": divided(sum(whole), len(words)),
    }
