# SPDX-License-Identifier: Apache-2.0
"""Ten programs as users of other libraries write them, each changed in the one line that makes the tokenizer.

The results of both versions are compared first; then they are timed in turn, in processor seconds, which count the
threads that `tokenizers` starts for a batch.
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks import corpora, report, tokenizers
from tokenmill.tokenizer import AddedToken, Tokenizer


class Program(NamedTuple):
    """A program, its line as it was, and as it becomes."""

    run: Callable[[Any, list[str]], Any]
    theirs: Callable[[Path], Any]
    ours: Callable[[Path], Any]


def causal_lm(tok: Any, texts: list[str]) -> Any:
    """Makes blocks of one length for a causal language model, as `run_clm.py` does."""
    import datasets

    datasets.disable_progress_bars()

    def tokenize(rows: Any) -> Any:
        return tok(rows["text"])

    def group_texts(rows: Any) -> Any:
        joined = {name: [i for row in rows[name] for i in row] for name in rows}
        n = len(joined["input_ids"]) // 256 * 256
        found = {name: [ids[i : i + 256] for i in range(0, n, 256)] for name, ids in joined.items()}
        found["labels"] = list(found["input_ids"])
        return found

    options = {"batched": True, "load_from_cache_file": False, "keep_in_memory": True}
    data = datasets.Dataset.from_dict({"text": texts}).map(tokenize, remove_columns=["text"], **options)
    return data.map(group_texts, **options)["input_ids"][:]


def masked_lm(tok: Any, texts: list[str]) -> Any:
    """Masks whole words for a masked language model."""
    batch = tok(texts, truncation=True, max_length=128)
    rng = np.random.default_rng(7)
    rows = []
    for i, ids in enumerate(batch["input_ids"]):
        words = batch.word_ids(i)
        masked = {word for word in dict.fromkeys(words) if word is not None and rng.random() < 0.15}
        rows.append([tok.mask_token_id if word in masked else id for id, word in zip(ids, words, strict=True)])
    return rows


def question_answering(tok: Any, texts: list[str]) -> Any:
    """Finds the tokens of answers in windows of long texts, as `run_qa.py` does."""
    questions = [text[:40].strip() for text in texts]
    answers = [(len(text) // 2, len(text) // 2 + 10) for text in texts]
    batch = tok(
        questions, texts, truncation="only_second", max_length=128, stride=32, return_overflowing_tokens=True,
        return_offsets_mapping=True, padding="max_length",
    )  # fmt: skip
    found = []
    for i, offsets in enumerate(batch["offset_mapping"]):
        sequences, (start, stop) = batch.sequence_ids(i), answers[batch["overflow_to_sample_mapping"][i]]
        inside = [k for k, (a, b) in enumerate(offsets) if sequences[k] == 1 and a < stop and b > start]
        found.append((inside[0], inside[-1]) if inside else (0, 0))
    return found, batch["input_ids"]


def token_classification(tok: Any, texts: list[str]) -> Any:
    """Gives each first token of a word its label, as `run_ner.py` does."""
    words = [text.split()[:60] for text in texts]
    batch = tok(words, is_split_into_words=True, truncation=True, max_length=128)
    labels = []
    for i, row in enumerate(words):
        ids = batch.word_ids(i)
        pairs = zip([None, *ids], ids, strict=False)
        labels.append([-100 if word is None or word == before else len(row[word]) % 5 for before, word in pairs])
    return labels, batch["input_ids"]


def collator(tok: Any, texts: list[str]) -> Any:
    """Pads batches to their longest row."""
    import transformers

    pad = transformers.DataCollatorWithPadding(tok, return_tensors="np")
    rows = [tok(text, truncation=True, max_length=128) for text in texts]
    return [pad(rows[i : i + 16])["input_ids"].tolist() for i in range(0, len(rows), 16)]


def sentence_pairs(tok: Any, texts: list[str]) -> Any:
    """Encodes pairs, as for GLUE."""
    return dict(tok(texts, texts[::-1], padding="max_length", max_length=128, truncation=True))


def streaming(tok: Any, texts: list[str]) -> Any:
    """Decodes ids one after the other, as a server does that shows what a model writes."""
    shown = []
    for text in texts[:20]:
        ids, prefix = tok(text)["input_ids"][:60], ""
        for n in range(1, len(ids) + 1):
            whole = tok.decode(ids[:n])
            if not whole.endswith("\ufffd"):
                shown.append(whole[len(prefix) :])
                prefix = whole
    return shown


def counter(enc: Any, texts: list[str]) -> Any:
    """Counts the tokens of texts, and what they would cost."""
    counts = [len(enc.encode(text, disallowed_special=())) for text in texts]
    return counts, sum(counts) * 2.5e-6


def sampler(sp: Any, texts: list[str]) -> Any:
    """Draws ways to cut a text, for training that regularizes; they differ between libraries, their text does not."""
    drawn = Counter(sp.decode(sp.encode(text, enable_sampling=True, alpha=0.1, nbest_size=-1)) for text in texts)
    return drawn, sp.encode(texts, out_type=str)


def captions(tok: Any, texts: list[str]) -> Any:
    """Makes rows of 77 ids of captions, as for CLIP."""
    lines = [line[:200] for text in texts for line in text.splitlines()[:3] if line]
    return tok(lines, padding="max_length", max_length=77, truncation=True, return_tensors="np")["input_ids"].tolist()


def _transformers(folder: Path) -> Any:
    import transformers

    return transformers.AutoTokenizer.from_pretrained(str(folder))


def _hf(name: str) -> tuple[Callable[[Path], Any], Callable[[Path], Any]]:
    return (
        lambda folder: _transformers(folder / name),
        lambda folder: Tokenizer.from_pretrained(folder / name).as_hf(folder / name),
    )


def _tiktoken(folder: Path) -> Any:
    import tiktoken
    from tiktoken.load import load_tiktoken_bpe

    ranks = load_tiktoken_bpe(str(folder / "gpt2.tiktoken"))
    special = {"<|endoftext|>": 50256}
    pattern = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"
    return tiktoken.Encoding("gpt2", pat_str=pattern, mergeable_ranks=ranks, special_tokens=special)


def _as_tiktoken(folder: Path) -> Any:
    tok = Tokenizer.from_file(folder / "gpt2.tiktoken", pattern="r50k_base")
    tok.added_tokens = (AddedToken(50256, "<|endoftext|>"),)
    return tok.as_tiktoken()


def _sentencepiece(folder: Path) -> Any:
    import sentencepiece

    return sentencepiece.SentencePieceProcessor(model_file=str(folder / "xlnet.model"))


PROGRAMS = {
    "datasets.map, causal LM": Program(causal_lm, *_hf("gpt2")),
    "masked LM, whole words": Program(masked_lm, *_hf("bert")),
    "question answering": Program(question_answering, *_hf("bert")),
    "token classification": Program(token_classification, *_hf("bert")),
    "collator, a text at a time": Program(collator, *_hf("bert")),
    "sentence pairs": Program(sentence_pairs, *_hf("bert")),
    "streaming decode": Program(streaming, *_hf("gpt2")),
    "tiktoken counter": Program(counter, _tiktoken, _as_tiktoken),
    "sentencepiece sampler": Program(
        sampler, _sentencepiece, lambda folder: Tokenizer.from_file(folder / "xlnet.model").as_sentencepiece()
    ),
    "CLIP captions": Program(captions, *_hf("clip")),
}


def write_files(vocab: Path, folder: Path) -> None:
    """Writes the files that the programs load, from those of the larger data folder."""
    import transformers

    gpt2, bert = tokenizers.load_gpt2(vocab), Tokenizer.from_file(vocab / "bert-base-uncased.txt")
    clip = Tokenizer.from_file(vocab / "clip_bpe_simple_vocab_16e6.txt.gz")
    end = {"eos_token": "<|endoftext|>", "pad_token": "<|endoftext|>"}
    roles = {f"{role}_token": f"[{role.upper()}]" for role in ("pad", "unk", "cls", "sep", "mask")}
    for name, tok, options in (("gpt2", gpt2, end), ("bert", bert, roles), ("clip", clip, end)):
        (folder / f"{name}.json").write_text(tok.to_str(), encoding="utf-8")
        fast = transformers.PreTrainedTokenizerFast(tokenizer_file=str(folder / f"{name}.json"), **options)
        fast.save_pretrained(folder / name)
    gpt2.save(folder / "gpt2.tiktoken")
    (folder / "xlnet.model").write_bytes((vocab / "xlnet.model").read_bytes())


def main(arguments: list[str]) -> int:
    """Runs the programs; returns 1 if a result differs."""
    parser = argparse.ArgumentParser(prog="./run.sh bench programs", description=__doc__, allow_abbrev=False)
    parser.add_argument("--texts", type=int, default=400, help="documents, of up to 1,500 characters (default 400)")
    parser.add_argument("--rounds", type=int, default=3, help="interleaved rounds (default 3)")
    options = parser.parse_args(arguments)
    shared = corpora.shared_folder()
    if shared is None:
        print("nothing to measure: needs the vocabularies in the folder that TOKENMILL_SHARED names")
        return 1
    english = next(corpus for corpus in corpora.load() if corpus.name == "english")
    texts = [" ".join(text[:1500].split()) for text in english.texts if len(text) > 100][: options.texts]
    print(report.describe(report.machine() | report.versions("tokenmill", "transformers", "tokenizers", "tiktoken")))
    rows, is_different = [], False
    with tempfile.TemporaryDirectory(prefix="tokenmill-bench-") as name:
        folder = Path(name)
        write_files(shared / "vocab", folder)
        for title, program in PROGRAMS.items():
            made = [program.theirs(folder), program.ours(folder)]
            results = [program.run(each, texts) for each in made]
            is_same = results[0] == results[1]
            is_different |= not is_same
            seconds: list[list[float]] = [[], []]
            for _ in range(options.rounds):
                for samples, each in zip(seconds, made, strict=True):
                    started = time.process_time()
                    program.run(each, texts)
                    samples.append(time.process_time() - started)
            theirs, ours = map(statistics.median, seconds)
            rows.append(
                [title, "equal" if is_same else "DIFFERS", f"{theirs:.3f}", f"{ours:.3f}", f"{theirs / ours:.2f}"]
            )
    print(report.table(["program", "results", "s before", "s after", "times as fast"], rows))
    return int(is_different)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
