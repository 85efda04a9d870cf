# SPDX-License-Identifier: Apache-2.0
"""The tokenizers to measure with: those of the larger data folder and ones like others; without it, a trained one."""

import hashlib
import importlib.util
import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from benchmarks import corpora, peers
from tokenmill.tokenizer import Tokenizer
from tokenmill.tokenizer.formats import bpe_files
from tokenmill.tokenizer.models.byte_alphabet import BYTE_ALPHABET
from tokenmill.tokenizer.pre_tokenizers.known_patterns import TIKTOKEN_PATTERNS
from tokenmill.tokenizer.trainers import WordPieceTrainer

# The BERT vocabularies in the larger data folder, and whether their models lower-case.
BERT_VOCABULARIES = {"bert-base-uncased": True, "bert-base-cased": False, "bert-base-chinese": True}

# The options that Llama 2 and Mistral, T5 and XLM-R were trained with, except the texts, and the size of T5 and XLM-R.
TRAINED: dict[str, dict[str, Any]] = {
    "like T5, Unigram": {"model_type": "unigram", "normalization_rule_name": "nmt_nfkc"},
    "like Llama 2, BPE": {
        "model_type": "bpe", "normalization_rule_name": "identity", "byte_fallback": True, "split_digits": True,
        "remove_extra_whitespaces": False, "allow_whitespace_only_pieces": True,
    },
}  # fmt: skip
_TRAINING_BYTES, _LINE_CHARACTERS = 3_000_000, 2000


class Subject(NamedTuple):
    """A tokenizer, and the libraries that have the same one."""

    name: str
    tokenizer: Tokenizer
    peers: dict[str, peers.Peer]


def load(texts: list[corpora.Corpus]) -> Iterator[tuple[str, Tokenizer]]:
    """Yields the BERT vocabularies of the larger data folder if there is one, else one trained on the corpora."""
    shared = corpora.shared_folder()
    if shared is not None:
        for name in BERT_VOCABULARIES:
            yield name, _bert(shared / "vocab", name)
    else:
        yield "trained, 16000", trained(texts)


def trained(texts: list[corpora.Corpus]) -> Tokenizer:
    """Returns a BERT tokenizer of 16,000 entries that is trained on the corpora."""
    counter = Tokenizer.untrained_bert().new_word_counter()
    for corpus in texts:
        counter.update(pa.array(corpus.texts, pa.large_string()))
    model = WordPieceTrainer(vocab_size=16_000).train(counter.to_table())
    return Tokenizer.for_bert(model.vocab, oov="word")


def subjects(texts: list[corpora.Corpus]) -> dict[str, Callable[[], Subject]]:
    """Returns functions that make the subjects, by their names on the command line."""
    made: dict[str, Callable[[], Subject]] = {}
    shared = corpora.shared_folder()
    if shared is not None:
        vocab = shared / "vocab"
        made["gpt2"] = lambda: _gpt2_subject(vocab)
        made |= _sentencepiece_subjects(vocab, texts)
        made["clip"] = lambda: _json_subject("CLIP", Tokenizer.from_file(vocab / _CLIP).to_str())
        for short, (name, steps) in _BEHIND.items():
            made[short] = lambda name=name, steps=steps: _json_subject(name, behind(load_gpt2(vocab), steps))
        for short, (name, step, changed) in _BERT_BEHIND.items():
            made[short] = lambda name=name, step=step, changed=changed: _json_subject(
                f"{name} behind {step}", json.dumps(json.loads(_bert(vocab, name).to_str()) | changed)
            )
    for name, tok in load(texts):
        made[name] = lambda name=name, tok=tok: Subject(name, tok, peers.for_wordpiece(tok.to_str()))
    return made


def load_gpt2(vocab: Path) -> Tokenizer:
    """Returns GPT-2, from the files of the larger data folder."""
    return Tokenizer.from_parts(bpe_files.load_vocab_and_merges(vocab / "gpt2-vocab.json", vocab / "gpt2-merges.txt"))


def _bert(vocab: Path, name: str) -> Tokenizer:
    return Tokenizer.from_file(vocab / f"{name}.txt", lowercase=BERT_VOCABULARIES[name], oov="word")


def _gpt2_subject(vocab: Path) -> Subject:
    tok = load_gpt2(vocab)
    tokens = json.loads((vocab / "gpt2-vocab.json").read_text(encoding="utf-8"))
    ranks = {bytes(map(BYTE_ALPHABET.index, t)): i for t, i in tokens.items() if t != "<|endoftext|>"}
    return Subject("GPT-2", tok, peers.for_byte_level_bpe(tok.to_str(), ranks))


def _sentencepiece_subjects(vocab: Path, texts: list[corpora.Corpus]) -> dict[str, Callable[[], Subject]]:
    """Returns XLNet and models that sentencepiece trains, from their files; the latter also from `tokenizer.json`."""

    def of_model(name: str, path: Path) -> Subject:
        tok = Tokenizer.from_file(path)
        return Subject(name, tok, peers.for_sentencepiece(path, tok.to_str()))

    def of_json(name: str, path: Path) -> Subject:
        text = as_transformers_writes(path)
        return _json_subject(f"{name}, tokenizer.json", text, other_rules=True)

    made: dict[str, Callable[[], Subject]] = {"xlnet": lambda: of_model("XLNet, Unigram", vocab / "xlnet.model")}
    if importlib.util.find_spec("sentencepiece") is None:
        return made
    for short, (name, options) in zip(("t5", "llama"), TRAINED.items(), strict=True):

        def path(name: str = name, options: dict[str, Any] = options) -> Path:
            return train_sentencepiece(name, options, texts)

        made[short] = lambda name=name, path=path: of_model(name, path())
        made[f"{short}-json"] = lambda name=name, path=path: of_json(name, path())
        if short == "t5":
            made["albert"] = lambda path=path: _json_subject("like ALBERT, Unigram", _as_albert(path()))
            made["nfkc"] = lambda path=path: _json_subject("Unigram as HF trains it", _as_hf_trains(path()))
            made["nllb"] = lambda path=path: _json_subject("like NLLB, BPE", _as_nllb(path(), texts))
    return made


def train_sentencepiece(name: str, options: dict[str, Any], texts: list[corpora.Corpus]) -> Path:
    """Trains a model on the first 3 MB of each corpus with sentencepiece, unless that was done before.

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


def as_transformers_writes(path: Path) -> str:
    """Returns the `tokenizer.json` of a SentencePiece model like T5's and Llama 2's: HF's parts and nothing else."""
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


def _as_albert(path: Path) -> str:
    """Returns the `tokenizer.json` of a model like T5's behind ALBERT's normalizers."""
    return _normalized(path, lambda charsmap: [*_ALBERT, charsmap, _ONE_SPACE])


def _as_hf_trains(path: Path) -> str:
    """Returns the `tokenizer.json` of the same behind the normalizers of `SentencePieceUnigramTokenizer`."""
    return _normalized(path, lambda charsmap: [{"type": "Nmt"}, {"type": "NFKC"}, _ONE_SPACE])


def _normalized(path: Path, steps: Callable[[dict[str, Any]], list[dict[str, Any]]]) -> str:
    fields = json.loads(as_transformers_writes(path))
    charsmap = next(step for step in fields["normalizer"]["normalizers"] if step["type"] == "Precompiled")
    return json.dumps(fields | {"normalizer": {"type": "Sequence", "normalizers": steps(charsmap)}})


def _as_nllb(unigram: Path, texts: list[corpora.Corpus]) -> str:
    """Returns the `tokenizer.json` of BPE behind the normalizers of a model like T5's."""
    path = train_sentencepiece("like NLLB, BPE", {"model_type": "bpe"}, texts)
    parts = json.loads(as_transformers_writes(unigram))
    bpe = json.loads(as_transformers_writes(path))
    return json.dumps(bpe | {key: parts[key] for key in ("normalizer", "pre_tokenizer")})


def _json_subject(name: str, text: str, *, other_rules: bool = False) -> Subject:
    tok = Tokenizer.from_str(peers.for_peers(text))
    return Subject(name, tok, peers.for_tokenizer_json(tok.to_str(), other_rules=other_rules))


def behind(tok: Tokenizer, steps: list[dict[str, Any]]) -> str:
    """Returns the `tokenizer.json` of a byte-level model behind other steps."""
    if all(step["type"] != "ByteLevel" for step in steps):
        steps = [*steps, _BYTE_LEVEL | {"use_regex": False}]
    pre_tokenizer = {"type": "Sequence", "pretokenizers": steps}
    return json.dumps(json.loads(tok.to_str()) | {"pre_tokenizer": pre_tokenizer})


def _splits(*patterns: str) -> list[dict[str, Any]]:
    return [{"type": "Split", "pattern": {"Regex": p}, "behavior": "Isolated", "invert": False} for p in patterns]


_CLIP = "clip_bpe_simple_vocab_16e6.txt.gz"
_BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
_BEHIND: dict[str, tuple[str, list[dict[str, Any]]]] = {
    "kimi": ("GPT-2 behind Kimi K2's pattern", _splits(TIKTOKEN_PATTERNS["kimi_k2"])),
    "falcon": (
        "GPT-2 behind Falcon's steps",
        [
            {"type": "Punctuation", "behavior": "Contiguous"}, _BYTE_LEVEL,
            {"type": "Digits", "individual_digits": False}, *_splits("[0-9][0-9][0-9]"),
        ],
    ),
    "deepseek-coder": (
        "GPT-2 behind DeepSeek Coder's steps",
        [
            *_splits(r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-퟿]+"),
            {"type": "Digits", "individual_digits": True},
        ],
    ),
}  # fmt: skip
"""Pre-tokenizers of models that are not here themselves; Falcon's and DeepSeek Coder's patterns have no scanner."""
_ALBERT = [
    {"type": "Replace", "pattern": {"String": "``"}, "content": '"'},
    {"type": "Replace", "pattern": {"String": "''"}, "content": '"'},
    {"type": "NFKD"}, {"type": "StripAccents"}, {"type": "Lowercase"},
]  # fmt: skip
"""The normalizers that ALBERT's `tokenizer.json` has before the character map."""
_ONE_SPACE: dict[str, Any] = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}
_BERT_BEHIND: dict[str, tuple[str, str, dict[str, Any]]] = {
    "bert-whitespace": ("bert-base-cased", "Whitespace", {"normalizer": None, "pre_tokenizer": {"type": "Whitespace"}}),
    "bert-digits": (
        "bert-base-uncased",
        "its own parts and Digits",
        {
            "pre_tokenizer": {
                "type": "Sequence",
                "pretokenizers": [{"type": "BertPreTokenizer"}, {"type": "Digits", "individual_digits": True}],
            }
        },
    ),
}
"""BERT's vocabularies as others might use them: which one, behind what, and what the file says instead."""
