# SPDX-License-Identifier: Apache-2.0
"""Encoding with byte-level BPE and Unigram, one thread each, against the libraries made for them.

GPT-2 against tiktoken, gigatok, fastokens and `tokenizers`; a SentencePiece model against sentencepiece. Needs the
larger data folder. The ids of every document are compared first; a peer whose ids differ gets no number.
"""

import argparse
import importlib.util
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from benchmarks import corpora, peers, report, timing
from tokenizer import Tokenizer
from tokenizer.models.bpe import BYTE_ALPHABET

Encode = Callable[[Sequence[str]], Any]
ToIds = Callable[[Any], list[list[int]]]

_GPT2_PATTERN = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"""


def main(arguments: list[str]) -> int:
    """Runs the benchmark; returns the exit code."""
    parser = argparse.ArgumentParser(prog="./run.sh bench families", description=__doc__)
    parser.add_argument("--mb", type=float, default=12, help="the first so many MB of each corpus (default 12)")
    parser.add_argument("--rounds", type=int, default=3, help="interleaved rounds (default 3)")
    options = parser.parse_args(arguments)
    shared = corpora.shared_folder()
    if shared is None:
        print("nothing to measure: needs GPT-2's files and xlnet.model in the folder that TOKENMILL_SHARED names")
        return 1
    pa.set_cpu_count(1)
    facts = report.machine() | report.versions(
        "tokenmill", "tokenizers", "tiktoken", "gigatok", "fastokens", "sentencepiece", "numba"
    )
    print(report.describe(facts))
    print("one thread each, MB/s, medians of interleaved rounds; a ratio above 1 means that we are faster\n")
    vocab = shared / "vocab"
    texts = [corpus.first(int(options.mb * 1e6)) for corpus in corpora.load()]
    gpt2 = _gpt2(vocab)
    equal = measure("GPT-2", gpt2, _bpe_peers(vocab, gpt2), texts, options.rounds)
    xlnet = Tokenizer.from_file(vocab / "xlnet.model")
    equal &= measure("xlnet.model", xlnet, _sentencepiece(vocab / "xlnet.model"), texts, options.rounds)
    return int(not equal)


def _gpt2(vocab: Path) -> Tokenizer:
    from tokenizer.formats import bpe_files

    return Tokenizer(**bpe_files.load_vocab_and_merges(vocab / "gpt2-vocab.json", vocab / "gpt2-merges.txt"))


def _bpe_peers(vocab: Path, tok: Tokenizer) -> dict[str, tuple[Encode, ToIds]]:
    found: dict[str, tuple[Encode, ToIds]] = {}
    text = peers.for_peers(tok.to_str())
    if _has("tiktoken"):
        import tiktoken

        tokens = json.loads((vocab / "gpt2-vocab.json").read_text(encoding="utf-8"))
        ranks = {bytes(map(BYTE_ALPHABET.index, t)): i for t, i in tokens.items() if t != "<|endoftext|>"}
        encoding = tiktoken.Encoding("gpt2", pat_str=_GPT2_PATTERN, mergeable_ranks=ranks, special_tokens={})
        found["tiktoken"] = (lambda texts: [encoding.encode_ordinary(t) for t in texts], list)
    if _has("gigatok"):
        import gigatok
        import tokenizers as hf_tokenizers

        giga = gigatok.Tokenizer(hf_tokenizers.Tokenizer.from_str(text))
        found["gigatok"] = (lambda texts: giga.encode_batch(list(texts)), lambda rows: rows.to_list())
    if _has("fastokens"):
        import fastokens

        fast = fastokens.Tokenizer.from_json_str(text)
        found["fastokens"] = (lambda texts: fast.encode_batch(list(texts)), _rows)
    if _has("tokenizers"):
        hf = peers.HuggingFaceTokenizer(tok.to_str())
        found["tokenizers"] = (hf.encode_batch, _rows)
    return found


def _sentencepiece(path: Path) -> dict[str, tuple[Encode, ToIds]]:
    if not _has("sentencepiece"):
        return {}
    import sentencepiece

    processor = sentencepiece.SentencePieceProcessor(model_file=str(path))
    return {"sentencepiece": (lambda texts: processor.encode(list(texts), num_threads=1), list)}


def _has(module: str) -> bool:
    there = importlib.util.find_spec(module) is not None
    if not there:
        print(f"{module} is not installed; ./run.sh bench installs it")
    return there


def _rows(encoded: Any) -> list[list[int]]:
    """Returns lists of ids from whatever a library returns for a batch."""
    return [list(getattr(row, "ids", row)) for row in encoded]


def measure(
    name: str, tok: Tokenizer, others: dict[str, tuple[Encode, ToIds]], texts: list[corpora.Corpus], rounds: int
) -> bool:
    """Compares, times and prints; returns whether all ids were equal."""
    rows, all_equal = [], True
    for corpus in texts:
        array = pa.array(corpus.texts, pa.large_string())
        expected = tok.encode_arrow(array).to_pylist()
        candidates: dict[str, Callable[[], Any]] = {"warm": lambda array=array: tok.encode_arrow(array)}
        fresh = iter([Tokenizer.from_str(tok.to_str()) for _ in range(rounds)])
        candidates["cold"] = lambda array=array, fresh=fresh: next(fresh).encode_arrow(array)
        for peer, (encode, to_ids) in others.items():
            if to_ids(encode(corpus.texts)) != expected:
                all_equal = False
                print(f"{corpus.name}: ids of {peer} differ; not measured")
                continue
            candidates[peer] = lambda encode=encode, corpus=corpus: encode(corpus.texts)
        timings = timing.interleave(candidates, rounds=rounds, once={"cold"})
        ours = timings["warm"]
        row = [corpus.name]
        for candidate in ("warm", "cold", *others):
            if candidate not in timings:
                row.append("ids differ")
                continue
            speed = f"{corpus.n_bytes / timings[candidate].median / 1e6:.1f}"
            ratio = "" if candidate in ("warm", "cold") else f" ({ours.times_faster_than(timings[candidate]):.1f}x)"
            row.append(speed + ratio)
        rows.append(row)
    print("\n" + report.table([name, "warm", "cold", *others], rows))
    return all_equal


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
