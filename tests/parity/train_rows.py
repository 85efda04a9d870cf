# SPDX-License-Identifier: Apache-2.0
"""Trains a tiny model on shards with a trainer's own loader and collator, and prints what it trained as JSON.

`test_trainers.py` starts it, with a Python that has the trainer: `train_rows.py TRAINER packed|plain TOKENIZER SHARDS`.
It knows nothing of TokenMill.
"""

import importlib.util
import json
import sys
import tempfile
import types
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import torch


def model_of(vocab_size: int) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    sizes: dict[str, Any] = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1}
    heads: dict[str, Any] = {"num_attention_heads": 1, "num_key_value_heads": 1, "max_position_embeddings": 1024}
    config = LlamaConfig(vocab_size=vocab_size, **sizes, **heads, attn_implementation="eager")
    return LlamaForCausalLM(config)


def train(trainer: Any) -> dict[str, Any]:
    """Trains one epoch; counts the labels of each batch given to the model, and those after the shift."""
    n = shifted = 0
    losses = []
    compute = trainer.compute_loss

    def counting(model: Any, inputs: dict[str, Any], *args: Any, **options: Any) -> Any:
        nonlocal n, shifted
        labels = inputs["labels"]
        n += int((labels != -100).sum())
        shifted += int((labels[..., 1:] != -100).sum())
        with torch.no_grad():  # of the untrained model, to compare packed rows with others
            logits = first(**{name: value for name, value in inputs.items() if name != "labels"}).logits
        kinds = torch.nn.CrossEntropyLoss(reduction="sum")
        losses.append(float(kinds(logits[:, :-1].reshape(-1, logits.shape[-1]), labels[:, 1:].reshape(-1))))
        return compute(model, inputs, *args, **options)

    first = model_of(trainer.model.config.vocab_size).eval()
    trainer.compute_loss = counting
    trainer.train()
    return {"trained": n, "shifted": shifted, "steps": trainer.state.global_step, "loss": sum(losses)}


def arguments(n_rows: int, folder: str) -> dict[str, Any]:
    """Returns training arguments for one epoch of ten steps or more."""
    where: dict[str, Any] = {"output_dir": folder, "report_to": [], "save_strategy": "no", "use_cpu": True}
    return {**where, "num_train_epochs": 1, "per_device_train_batch_size": max(1, n_rows // 10), "disable_tqdm": True}


def by_trl(rows: Any, tokenizer: Any, model: Any, folder: str, *, packed: bool) -> dict[str, Any]:
    from trl import SFTConfig, SFTTrainer

    config = SFTConfig(**arguments(len(rows), folder), max_length=None, padding_free=packed)
    return train(SFTTrainer(model, args=config, train_dataset=rows, processing_class=tokenizer))


def by_transformers(rows: Any, tokenizer: Any, model: Any, folder: str, *, packed: bool) -> dict[str, Any]:
    from transformers import DataCollatorForSeq2Seq, Trainer, TrainingArguments, default_data_collator

    collator = default_data_collator if packed else DataCollatorForSeq2Seq(tokenizer)
    args = TrainingArguments(**arguments(len(rows), folder))
    return train(Trainer(model, args, data_collator=collator, train_dataset=rows))


def by_axolotl(rows: Any, tokenizer: Any, model: Any, folder: str, *, packed: bool) -> dict[str, Any]:
    """Takes the steps of Axolotl for rows that are tokenized already, and its collator; it packs plain rows itself."""
    from axolotl.utils.collators.batching import DataCollatorForSeq2Seq, V2BatchSamplerDataCollatorForSeq2Seq
    from axolotl.utils.data.wrappers import get_dataset_wrapper
    from axolotl.utils.dict import DictDefault
    from axolotl.utils.trainer import process_datasets_for_packing
    from transformers import Trainer, TrainingArguments

    cfg = DictDefault({"sequence_len": 4096, "sample_packing": not packed, "is_preprocess": False})
    of_file = DictDefault({"path": "rows", "type": None})
    taken, _ = get_dataset_wrapper(of_file, tokenizer, cfg, None, rows)
    assert taken is rows, "it would tokenize the rows again"
    before = len(taken)
    taken, _ = process_datasets_for_packing(cfg, taken, None)
    assert len(taken) == before
    args = TrainingArguments(**arguments(len(rows), folder))
    if packed:
        args.per_device_train_batch_size = 1
        return train(Trainer(model, args, data_collator=DataCollatorForSeq2Seq(tokenizer), train_dataset=taken))
    names = ["input_ids", "labels", "position_ids"]  # a trainer removes the rest, and the mask where attention packs
    packs = V2BatchSamplerDataCollatorForSeq2Seq(tokenizer)
    taken = taken.select_columns(names)
    return train(Trainer(model, args, data_collator=lambda each: packs([each]), train_dataset=taken))


def by_megatron(shards: list[str], eos_id: int) -> dict[str, Any]:
    """Reads packs by Megatron Bridge's data set; its packages, but for these files, want GPUs."""
    (root,) = importlib.util.find_spec("megatron").submodule_search_locations  # type: ignore[union-attr, misc]
    for name in ("bridge", "bridge.data", "bridge.data.datasets", "bridge.data.packing", "bridge.utils"):
        package = types.ModuleType(f"megatron.{name}")
        package.__path__ = [str(Path(root, *name.split(".")))]
        sys.modules[f"megatron.{name}"] = package
    for name in ("common_utils", "safe_pickle"):
        sys.modules[f"megatron.bridge.utils.{name}"] = MagicMock()
    sys.modules["megatron.bridge.training.tokenizers.tokenizer"] = MagicMock()
    from megatron.bridge.data.packing.parquet import GPTSFTPackedParquetDataset

    tokenizer = types.SimpleNamespace(eos_id=eos_id, pad_id=eos_id, bos_id=eos_id)
    n = 0
    for shard in shards:
        unused = {"prompt_template": "{text} {output}", "label_key": "output"}  # of texts, which packs are not
        rows = GPTSFTPackedParquetDataset(shard, tokenizer, max_seq_length=4096, pad_to_max_length=False, **unused)
        for i in range(len(rows)):
            rows.validate_row(i, rows[i]["input_ids"], rows[i]["loss_mask"], rows[i]["seq_boundaries"][:-1])
            batch = rows.collate_fn([rows[i]])
            n += int(batch["loss_mask"].sum())
    return {"trained": n, "shifted": n, "steps": 10, "loss": None}


def main(trainer: str, packed: str, folder: str, shards: list[str]) -> dict[str, Any]:
    from transformers import PreTrainedTokenizerFast

    names = {"eos_token": "</s>", "pad_token": "</s>"}
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=f"{folder}/tokenizer.json", **names)
    if trainer == "megatron":
        return by_megatron(shards, tokenizer.eos_token_id)
    from datasets import load_dataset

    by = {"trl": by_trl, "transformers": by_transformers, "axolotl": by_axolotl}[trainer]
    with tempfile.TemporaryDirectory() as elsewhere:
        rows = load_dataset("parquet", data_files=shards, split="train", cache_dir=elsewhere)
        return by(rows, tokenizer, model_of(len(tokenizer)), elsewhere, packed=packed == "packed")


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:])))
