# SPDX-License-Identifier: Apache-2.0
"""Encoding with byte-level BPE and Unigram, one thread each, against the libraries made for them.

GPT-2 against tiktoken, gigatok, fastokens and `tokenizers`; SentencePiece models against sentencepiece and
`tokenizers`: XLNet's, and two trained here and kept in `build/`; CLIP, those two as `transformers` writes them into a
`tokenizer.json`, and GPT-2's vocabulary behind patterns that no scanner is written for, as Kimi K2, Falcon and DeepSeek
Coder have them, against `tokenizers`. Needs the larger data folder. The ids of every
document are compared first. A peer whose ids differ gets no number, but for `tokenizers` with a SentencePiece model: it
follows other rules (`formats.sentencepiece_json`), so it is timed on the documents that come out the same. "Cold" is
the first encoding after loading, for all: some of them keep what they have seen, as we do.
"""

import argparse
import dataclasses
import functools
import hashlib
import importlib.util
import io
import itertools
import json
import sys
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from benchmarks import corpora, peers, report, timing
from tokenizer import Tokenizer
from tokenizer.models.bpe import BYTE_ALPHABET
from tokenizer.pre_tokenizers.scanner_patterns import TIKTOKEN_PATTERNS

Encode = Callable[[Sequence[str]], Any]


class Peer(NamedTuple):
    """A library with a tokenizer."""

    load: Callable[[], Encode]
    """Loads the tokenizer anew, ready to encode."""
    to_ids: Callable[[Any], list[list[int]]]
    """Makes lists of ids of what it returns for a batch."""


GPT2_PATTERN = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"""


def main(arguments: list[str]) -> int:
    """Runs the benchmark; returns the exit code."""
    parser = argparse.ArgumentParser(prog="./run.sh bench families", description=__doc__)
    parser.add_argument("--mb", type=float, default=12, help="the first so many MB of each corpus (default 12)")
    parser.add_argument("--rounds", type=int, default=3, help="interleaved rounds (default 3)")
    parser.add_argument(
        "--tokenizers",
        nargs="+",
        choices=list(_SHORT_NAMES),
        default=list(_SHORT_NAMES),
        help="only these (default all)",
    )
    parser.add_argument("--corpora", nargs="+", help="only these: english, chinese, code, multilingual (default all)")
    options = parser.parse_args(arguments)
    shared = corpora.shared_folder()
    if shared is None:
        print("nothing to measure: needs GPT-2's files and xlnet.model in the folder that TOKENMILL_SHARED names")
        return 1
    pa.set_cpu_count(1)
    peers.stay_on_one_core()
    facts = report.machine() | report.versions(
        "tokenmill", "tokenizers", "tiktoken", "gigatok", "fastokens", "sentencepiece", "numba"
    )
    print(report.describe(facts))
    print(
        "one thread each, MB/s warm / cold, medians of interleaved rounds; in brackets how many times faster we are\n"
    )
    vocab = shared / "vocab"
    texts = [corpus.first(int(options.mb * 1e6)) for corpus in corpora.load()]
    wanted = [text for text in texts if text.name in (options.corpora or [text.name])]
    if unknown := set(options.corpora or ()) - {text.name for text in texts}:
        parser.error(f"no corpus {min(unknown)!r}; there are {', '.join(text.name for text in texts)}")
    names = {_SHORT_NAMES[short] for short in options.tokenizers}
    equal = True
    if "GPT-2" in names:
        gpt2 = _gpt2(vocab)
        equal &= measure("GPT-2", gpt2, _bpe_peers(vocab, gpt2), wanted, options.rounds)
    models = {"XLNet, Unigram": vocab / "xlnet.model"}
    if _has("sentencepiece"):
        models |= {name: train(name, spec, texts) for name, spec in TRAINED.items()}
    for name, path in models.items():
        if name not in names:
            continue
        tok = Tokenizer.from_file(path)
        equal &= measure(name, tok, _sentencepiece_peers(path), wanted, options.rounds, {"tokenizers"})
    files = {"CLIP": Tokenizer.from_file(vocab / "clip_bpe_simple_vocab_16e6.txt.gz").to_str()}
    files |= {f"{name}, tokenizer.json": as_transformers_writes(path) for name, path in models.items()}
    if names & _BEHIND.keys():
        gpt2 = _gpt2(vocab)
        files |= {name: _behind(gpt2, steps) for name, steps in _BEHIND.items()}
    for name in (name for name in files if name in names):
        tok = Tokenizer.from_str(peers.for_peers(files[name]))
        equal &= measure(name, tok, _tokenizers_alone(tok), wanted, options.rounds, {"tokenizers"})
    return int(not equal)


def as_transformers_writes(path: Path) -> str:
    """Returns the `tokenizer.json` of a SentencePiece model as T5's and Llama 2's are: HF's parts and nothing else."""
    fields = json.loads(Tokenizer.from_file(path).to_str())
    for ours in ("sentencepiece", "piece_types", "merge_ranks"):
        fields["model"].pop(ours, None)
    if fields["model"]["type"] == "BPE":
        return json.dumps(fields | {"pre_tokenizer": None})
    steps = [step for step in fields["normalizer"]["normalizers"] if step["type"] == "Precompiled"]
    steps.append({"type": "Strip", "strip_left": False, "strip_right": True})
    steps.append({"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": "▁"})
    metaspace = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
    return json.dumps(fields | {"normalizer": {"type": "Sequence", "normalizers": steps}, "pre_tokenizer": metaspace})


def _behind(tok: Tokenizer, steps: list[dict[str, Any]]) -> str:
    """Returns the `tokenizer.json` of a byte-level model behind other steps."""
    if all(step["type"] != "ByteLevel" for step in steps):
        steps = [*steps, _BYTE_LEVEL | {"use_regex": False}]
    pre_tokenizer = {"type": "Sequence", "pretokenizers": steps}
    return json.dumps(json.loads(tok.to_str()) | {"pre_tokenizer": pre_tokenizer})


def _splits(*patterns: str) -> list[dict[str, Any]]:
    return [{"type": "Split", "pattern": {"Regex": p}, "behavior": "Isolated", "invert": False} for p in patterns]


def _tokenizers_alone(tok: Tokenizer) -> dict[str, Peer]:
    if not _has("tokenizers"):
        return {}
    return {"tokenizers": Peer(lambda: peers.HuggingFaceTokenizer(tok.to_str()).encode_batch, _rows)}


def _gpt2(vocab: Path) -> Tokenizer:
    from tokenizer.formats import bpe_files

    return Tokenizer(**bpe_files.load_vocab_and_merges(vocab / "gpt2-vocab.json", vocab / "gpt2-merges.txt"))


def _bpe_peers(vocab: Path, tok: Tokenizer) -> dict[str, Peer]:
    found: dict[str, Peer] = {}
    text = peers.for_peers(tok.to_str())
    if _has("tiktoken"):
        import tiktoken

        tokens = json.loads((vocab / "gpt2-vocab.json").read_text(encoding="utf-8"))
        ranks = {bytes(map(BYTE_ALPHABET.index, t)): i for t, i in tokens.items() if t != "<|endoftext|>"}

        def load_tiktoken() -> Encode:
            encoding = tiktoken.Encoding("gpt2", pat_str=GPT2_PATTERN, mergeable_ranks=ranks, special_tokens={})
            return lambda texts: [encoding.encode_ordinary(t) for t in texts]

        found["tiktoken"] = Peer(load_tiktoken, list)
    if _has("gigatok"):
        import gigatok
        import tokenizers as hf_tokenizers

        def load_gigatok() -> Encode:
            loaded = gigatok.Tokenizer(hf_tokenizers.Tokenizer.from_str(text))
            return lambda texts: loaded.encode_batch(list(texts))

        found["gigatok"] = Peer(load_gigatok, lambda rows: rows.to_list())
    if _has("fastokens"):
        import fastokens

        def load_fastokens() -> Encode:
            loaded = fastokens.Tokenizer.from_json_str(text)
            return lambda texts: loaded.encode_batch(list(texts))

        found["fastokens"] = Peer(load_fastokens, _rows)
    if _has("tokenizers"):
        found["tokenizers"] = Peer(lambda: peers.HuggingFaceTokenizer(tok.to_str()).encode_batch, _rows)
    return found


# What Llama 2 and Mistral, T5 and XLM-R were trained with, but for the texts and the size of T5's and XLM-R's.
TRAINED: dict[str, dict[str, Any]] = {
    "like T5, Unigram": {"model_type": "unigram", "normalization_rule_name": "nmt_nfkc"},
    "like Llama 2, BPE": {
        "model_type": "bpe", "normalization_rule_name": "identity", "byte_fallback": True, "split_digits": True,
        "remove_extra_whitespaces": False, "allow_whitespace_only_pieces": True,
    },
}  # fmt: skip
_BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
_BEHIND: dict[str, list[dict[str, Any]]] = {
    "GPT-2 behind Kimi K2's pattern": _splits(TIKTOKEN_PATTERNS["kimi_k2"]),
    "GPT-2 behind Falcon's steps": [
        {"type": "Punctuation", "behavior": "Contiguous"}, _BYTE_LEVEL, {"type": "Digits", "individual_digits": False},
        *_splits("[0-9][0-9][0-9]"),
    ],
    "GPT-2 behind DeepSeek Coder's steps": [
        *_splits(r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-퟿]+"),
        {"type": "Digits", "individual_digits": True},
    ],
}  # fmt: skip
"""What models have in front whose patterns have no scanner."""
_SHORT_NAMES = {
    "gpt2": "GPT-2", "xlnet": "XLNet, Unigram", **dict(zip(("t5", "llama"), TRAINED, strict=True)), "clip": "CLIP",
    **{f"{short}-json": f"{name}, tokenizer.json" for short, name in zip(("t5", "llama"), TRAINED, strict=True)},
    **dict(zip(("kimi", "falcon", "deepseek-coder"), _BEHIND, strict=True)),
}  # fmt: skip
_TRAINING_BYTES, _LINE_CHARACTERS = 3_000_000, 2000


def train(name: str, options: dict[str, Any], texts: list[corpora.Corpus]) -> Path:
    """Trains a model on the first 3 MB of each corpus with sentencepiece; a second time it is there.

    It has 32000 pieces, unless `options`, those of the trainer, say otherwise.
    """
    import sentencepiece

    parts = [corpus.first(_TRAINING_BYTES) for corpus in texts]
    key = repr((options, [part.digest for part in parts], sentencepiece.__version__))
    path = corpora.REPOSITORY / "build" / f"sentencepiece-{hashlib.sha256(key.encode()).hexdigest()[:16]}.model"
    if not path.is_file():
        print(f"training a model {name} ...", flush=True)
        lines = (line[:_LINE_CHARACTERS] for part in parts for text in part.texts for line in text.split("\n"))
        model = io.BytesIO()
        options = {"vocab_size": 32_000, "character_coverage": 0.9995, "num_threads": 1, "minloglevel": 2} | options
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=lines, model_writer=model, **options)
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(model.getvalue())
    return path


def _sentencepiece_peers(path: Path) -> dict[str, Peer]:
    """The library itself; HF's tokenizer of the same model, which may differ: it rounds sums in another way."""
    found: dict[str, Peer] = {}
    if _has("sentencepiece"):
        import sentencepiece

        def load_sentencepiece() -> Encode:
            processor = sentencepiece.SentencePieceProcessor(model_file=str(path))
            return lambda texts: processor.encode(list(texts), num_threads=1)

        found["sentencepiece"] = Peer(load_sentencepiece, list)
    if _has("tokenizers"):
        text = Tokenizer.from_file(path).to_str()
        found["tokenizers"] = Peer(lambda: peers.HuggingFaceTokenizer(text).encode_batch, _rows)
    return found


def _has(module: str) -> bool:
    there = importlib.util.find_spec(module) is not None
    if not there:
        print(f"{module} is not installed; ./run.sh bench installs it")
    return there


def _rows(encoded: Any) -> list[list[int]]:
    """Returns lists of ids from whatever a library returns for a batch."""
    return [list(getattr(row, "ids", row)) for row in encoded]


def _load_ours(tok: Tokenizer) -> Callable[[pa.Array], Any]:
    """Loads the tokenizer anew, ready to encode, with an empty word cache."""
    fresh = Tokenizer.from_str(tok.to_str())
    fresh.encode_arrow(pa.array([""], pa.large_string()))
    return fresh.encode_arrow


def _first_call(load: Callable[[], Callable[[Any], Any]], texts: Any) -> Callable[[], Any]:
    """Loads a tokenizer; returns the call in which it encodes texts."""
    return functools.partial(load(), texts)


def measure(
    name: str,
    tok: Tokenizer,
    others: dict[str, Peer],
    texts: list[corpora.Corpus],
    rounds: int,
    other_rules: Collection[str] = (),
) -> bool:
    """Compares, times and prints; returns whether all ids were equal.

    Peers in `other_rules` may differ; they are timed on the documents that come out the same.
    """
    rows, all_equal = [], True
    for corpus in texts:
        array = pa.array(corpus.texts, pa.large_string())
        expected = tok.encode_arrow(array).to_pylist()
        n_bytes = {"tokenmill": corpus.n_bytes}
        warm: dict[str, Callable[[], Any]] = {"tokenmill": lambda array=array: tok.encode_arrow(array)}
        cold = {"tokenmill": functools.partial(_first_call, lambda: _load_ours(tok), array)}
        for peer, (load, to_ids) in others.items():
            encode = load()
            same = [a == b for a, b in zip(to_ids(encode(corpus.texts)), expected, strict=True)]
            part = dataclasses.replace(corpus, texts=tuple(itertools.compress(corpus.texts, same)))
            if not all(same):
                left_out = f"ids of {peer} differ in {same.count(False)} of {len(same)} documents"
                if peer not in other_rules or not any(same):
                    all_equal = all_equal and peer in other_rules
                    print(f"{corpus.name}: {left_out}; not measured")
                    continue
                print(f"{corpus.name}: {left_out}; measured on the others")
            n_bytes[peer] = part.n_bytes
            warm[peer] = lambda encode=encode, part=part: encode(part.texts)
            cold[peer] = functools.partial(_first_call, load, part.texts)
        both = timing.interleave(warm, rounds=rounds), timing.interleave_first_calls(cold, rounds=rounds)
        speeds = [{peer: n_bytes[peer] / timing.median / 1e6 for peer, timing in timings.items()} for timings in both]
        row = [corpus.name]
        for candidate in ("tokenmill", *others):
            if candidate not in n_bytes:
                row.append("ids differ")
                continue
            cell = " / ".join(f"{speed[candidate]:.1f}" for speed in speeds)
            if candidate in others:
                ratios = [f"{speed['tokenmill'] / speed[candidate]:.1f}x" for speed in speeds]
                cell += f" ({', '.join(ratios)})"
            row.append(cell)
        rows.append(row)
    print("\n" + report.table([name, "tokenmill", *others], rows))
    return all_equal


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
