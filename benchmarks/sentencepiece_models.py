# SPDX-License-Identifier: Apache-2.0
"""SentencePiece models like those in use, trained with sentencepiece on the corpora and kept in `build/`."""

import hashlib
import io
import json
from pathlib import Path
from typing import Any

from benchmarks import corpora
from tokenmill.tokenizer import Tokenizer

# The options that Llama 2 and Mistral, T5 and XLM-R were trained with, except the texts, and the size of T5 and XLM-R.
TRAINED: dict[str, dict[str, Any]] = {
    "like T5, Unigram": {"model_type": "unigram", "normalization_rule_name": "nmt_nfkc"},
    "like Llama 2, BPE": {
        "model_type": "bpe", "normalization_rule_name": "identity", "byte_fallback": True, "split_digits": True,
        "remove_extra_whitespaces": False, "allow_whitespace_only_pieces": True,
    },
}  # fmt: skip
_TRAINING_BYTES, _LINE_CHARACTERS = 3_000_000, 2000


def train(name: str, options: dict[str, Any], texts: list[corpora.Corpus]) -> Path:
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
