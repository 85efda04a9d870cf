# SPDX-License-Identifier: Apache-2.0
"""stats.json, counted again in plain Python: a document, a word, a token at a time."""

import math
from collections import Counter

import pyarrow as pa

from tests.recounting import divided, sampled
from tokenmill.tokenizer.languages import DEFAULT, RULES, identify, script_name
from tokenmill.tokenizer.reach import CONTEXTS

SHARES = (0.5, 0.9, 0.95, 0.99, 1.0)


def stats_of(texts, tokenizer, *, replace, around=((), ()), n_special=0, max_length=None, dropped=()):
    """Returns what stats.json must say of a job with `languages` whose splits are all sampled as a whole.

    Args:
      texts: the documents, as read.
      tokenizer: without truncation. Its unknown words are unknown as a whole.
      replace: what the one text step of each language with steps replaces, by what.
      around: ids in front of and behind each document.
      n_special: how many of them are the template's; the others are the config's.
      max_length: of a row.
      dropped: codes of languages that are left out.
    """
    documents = []
    for read in texts:
        told = identify(pa.array([read]))
        text = read.replace(*replace)
        encoding = tokenizer.encode(text, add_special_tokens=False)
        n_around = len(around[0]) + len(around[1])
        kept = encoding.ids if max_length is None else encoding.ids[: max_length - n_around]
        row = [*around[0], *kept, *around[1]]
        n_unknown = kept.count(tokenizer.unk_token_id)
        known = (text, encoding.ids, kept, row, n_unknown, _words(encoding), _unknown_words(text, encoding, tokenizer))
        documents.append((told.codes[0].as_py(), bool(told.mixed[0]), known))
    rest = [known for code, _, known in documents if code not in dropped]
    before = [(code, text) for text, (code, _, _) in zip(texts, documents, strict=True) if code not in dropped]
    tokens = sum(len(row) for _, _, _, row, *_ in rest)
    n_text, n_kept = (sum(len(known[i]) for known in rest) for i in (1, 2))
    n_words = sum(known[5] for known in rest)
    unknown_words = Counter(word for known in rest for word in known[6])
    sums = _sums([known[0] for known in rest])
    n_cut = sum(len(known[2]) < len(known[1]) for known in rest)
    n_added = len(around[0]) + len(around[1]) - n_special
    return {
        "format_version": 3,
        **sums,
        "words": n_words,
        "tokens": tokens,
        "tokens_made": {
            "text": n_text, "cut": n_text - n_kept, "kept": n_kept, "special": n_special * len(rest),
            "added": n_added * len(rest), "share_cut": divided(n_text - n_kept, n_text), "documents_cut": n_cut,
            "share_of_documents_cut": divided(n_cut, len(rest)),
        },
        "tokens_per_word": divided(n_text, n_words),
        "share_of_continuations": divided(n_text - n_words, n_text),
        "tokens_per_spaced_word": divided(n_text, sums["spaced_words"]),
        "bytes_per_token": divided(sums["bytes"], n_text),
        "characters_per_token": divided(sums["characters"], n_text),
        "sample": sampled([known[0] for known in rest], tokenizer),
        "vocabulary": _vocabulary(Counter(i for known in rest for i in known[3]), tokenizer),
        "oov": _unknown(unknown_words, sum(known[4] for known in rest), tokens, n_words, sums["characters"]),
        "added_tokens_in_text": _added([known[0] for known in rest], tokenizer),
        "lengths": _lengths(sorted(len(known[3]) for known in rest)),
        "text": {
            "spans": {},
            "steps": [_step(name, before, replace) for name in sorted(RULES, key=lambda name: (name != DEFAULT, name))],
        },
        "languages": _languages(documents, tokenizer, dropped),
    }  # fmt: skip


def _sums(texts):
    return {
        "documents": len(texts),
        "bytes": sum(len(text.encode()) for text in texts),
        "characters": sum(map(len, texts)),
        "spaced_words": sum(len(text.split()) for text in texts),
    }


def _words(encoding):
    return len({word for word in encoding.words if word is not None})


def _unknown_words(text, encoding, tokenizer):
    spans = (place for i, place in zip(encoding.ids, encoding.offsets, strict=True) if i == tokenizer.unk_token_id)
    return ["".join(tokenizer.normalizer.normalize_str(text[start:stop]).split()) for start, stop in spans]


def _vocabulary(counts, tokenizer):
    n = tokenizer.n_ids
    used = sorted(counts.values(), reverse=True)
    total = sum(used)
    pieces, unreachable = _kinds(counts, tokenizer)
    steps = [step * 10**power for power in range(8) for step in (1, 2, 5)]
    ranks = [math.log(rank) for rank in range(1, len(used) + 1)]
    logs, mean = [math.log(count) for count in used], sum(ranks) / len(ranks)
    slope = sum((x - mean) * y for x, y in zip(ranks, logs, strict=True)) / sum((x - mean) ** 2 for x in ranks)
    top = sorted(counts, key=lambda i: (-counts[i], i))[:100]
    return {
        "size": n,
        "used": len(used),
        "coverage": len(used) / n,
        "dead": n - len(used),
        "under_trained": sum(count < 100 for count in used),
        "unreachable": len(unreachable),
        "unreachable_tokens": [{"id": i, "token": tokenizer.id_to_token(i)} for i in unreachable[:100]],
        "pieces": {
            "entries": len(pieces),
            "tokens": sum(counts[i] for i in pieces),
            "share_of_tokens": divided(sum(counts[i] for i in pieces), total),
        },
        "entropy_bits": -sum(count / total * math.log2(count / total) for count in used),
        "renyi_efficiency": math.log2(sum((count / total) ** 2.5 for count in used)) / -1.5 / math.log2(n),
        "zipf_slope": slope,
        "coverage_curve": [
            {"entries": k, "share": sum(used[:k]) / total} for k in [*(k for k in steps if k < len(used)), len(used)]
        ],
        "top_tokens": [{"id": i, "token": tokenizer.id_to_token(i), "count": counts[i]} for i in top],
    }


def _kinds(counts, tokenizer):
    """Returns the ids of pieces, and of entries that no tried text has."""

    def ids_of(text):
        return tokenizer.encode(text, add_special_tokens=False).ids

    def text_of(*ids):
        return tokenizer.decode(ids, skip_special_tokens=False)

    added = {token.id for token in tokenizer.added_tokens} | {tokenizer.unk_token_id}
    tried = [i for i in range(tokenizer.n_ids) if i not in added]
    reached = {i for i in tried if counts[i]}.union(*(ids_of(text_of(i)) for i in tried))
    pieces = [i for i in tried if "\ufffd" in text_of(i) and ids_of(text_of(i)) != [i]]
    for before, after in ((b, a) for c in CONTEXTS for b, a in ((c, ""), ("", c))):
        pending = [i for i in tried if i not in reached and i not in pieces]
        reached = reached.union(*(ids_of(text_of(*ids_of(before), i) + after) for i in pending))
    return pieces, [i for i in tried if i not in reached and i not in pieces]


def _unknown(words, n_tokens, tokens, n_words, n_characters):
    characters, scripts = Counter(), Counter()
    for word, n in words.items():
        for character in word:
            characters[character] += n
            scripts[script_name(ord(character))] += n
    n_all = sum(characters.values())
    ordered = sorted(characters, key=lambda c: (-characters[c], c))

    def needed(share):
        return next((k for k in range(n_all + 1) if sum(characters[c] for c in ordered[:k]) >= share * n_all), 0)

    return {
        "tokens": n_tokens,
        "share_of_tokens": divided(n_tokens, tokens),
        "characters": n_all,
        "share_of_characters": divided(n_all, n_characters),
        "words": sum(words.values()),
        "share_of_words": divided(sum(words.values()), n_words),
        "words_not_listed": 0,
        "distinct_characters": len(characters),
        "characters_to_add": {f"{share:.0%}": needed(share) for share in SHARES},
        "distinct_words": len(words),
        "scripts": [{"script": s, "count": scripts[s]} for s in sorted(scripts, key=lambda s: (-scripts[s], s))],
        "top_characters": [
            {"code_point": f"U+{ord(c):04X}", "character": c, "count": characters[c]} for c in ordered[:100]
        ],
        "top_words": [
            {"word": word, "count": words[word]} for word in sorted(words, key=lambda w: (-words[w], w.encode()))[:100]
        ],
    }


def _added(texts, tokenizer):
    found = Counter({t.content: sum(text.count(t.content) for text in texts) for t in tokenizer.added_tokens})
    return [{"token": token, "count": n} for token, n in sorted(found.items(), key=lambda x: (-x[1], x[0])) if n][:100]


def _step(name, documents, replace):
    texts = [text for code, text in documents if name == (code if code in RULES else DEFAULT)]
    after = [text.replace(*replace) for text in texts]
    return {
        "step": f"{name}.regex",
        "documents": len(texts),
        "documents_changed": sum(old != new for old, new in zip(texts, after, strict=True)),
        "documents_rejected": 0,
        "characters": sum(map(len, texts)),
        "characters_after": sum(map(len, after)),
        "characters_changed": sum(text.count(replace[0]) * len(replace[0]) for text in texts),
        "resized": _resized(name, documents, replace),
    }


def _resized(name, documents, replace):
    sizes = {}
    for code, text in documents:
        if name == (code if code in RULES else DEFAULT):
            before, after = sizes.get(code, (0, 0))
            sizes[code] = (before + len(text), after + len(text.replace(*replace)))
    return [
        {"language": code, "characters": before, "characters_after": after, "share": divided(after - before, before)}
        for code, (before, after) in sorted(sizes.items())
        if abs(after - before) > before / 100
    ]


def _lengths(lengths):
    edges, histogram = [0, *(1 << k for k in range(32))], []
    for start in edges:
        if start <= lengths[-1]:
            stop = max(start, 2 * start - 1)
            histogram.append({"from": start, "to": stop, "rows": sum(start <= n <= stop for n in lengths)})
    return {
        "min": lengths[0],
        "max": lengths[-1],
        "mean": sum(lengths) / len(lengths),
        "percentiles": {
            f"p{p}": lengths[max(1, math.ceil(len(lengths) * p / 100)) - 1] for p in (1, 5, 25, 50, 75, 90, 95, 99)
        },
        "histogram": histogram,
    }


def _languages(documents, tokenizer, dropped):
    codes = {code for code, _, _ in documents}
    by_code = {}
    for code in codes:
        mine = [(mixed, known) for of, mixed, known in documents if of == code and code not in dropped]
        texts = [known[0] for _, known in mine]
        n_text, n_row, n_unknown = (
            sum(len(known[1]) for _, known in mine),
            sum(len(known[3]) for _, known in mine),
            sum(known[4] for _, known in mine),
        )
        sums = _sums(texts)
        by_code[code] = {
            **sums,
            "mixed": sum(mixed for mixed, _ in mine),
            "text_tokens": n_text,
            "tokens": n_row,
            "oov_tokens": n_unknown,
            "filtered": sum(of == code for of, _, _ in documents) - len(mine),
            "tokens_per_spaced_word": divided(n_text, sums["spaced_words"]),
            "bytes_per_token": divided(sums["bytes"], n_text),
            "tokens_per_character": divided(n_text, sums["characters"]),
            "share_of_oov_tokens": divided(n_unknown, n_row),
            "sample": sampled(texts, tokenizer),
        }
    prices = {code: found["tokens_per_character"] for code, found in by_code.items() if found["tokens_per_character"]}
    reference = max(sorted({*prices} - {"und"}), key=lambda code: by_code[code]["characters"], default=None)
    for code, found in by_code.items():
        found["premium"] = prices[code] / prices[reference] if reference and code in prices else None
    differences = sum(abs(a - b) for a in prices.values() for b in prices.values())
    return {
        "reference": reference,
        "gini_of_tokens_per_character": differences / (2 * len(prices) * sum(prices.values())),
        "by_code": by_code,
    }
