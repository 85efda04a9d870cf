# SPDX-License-Identifier: Apache-2.0
"""Rows of each `output.for` are trained by that trainer: it trains the tokens that we count, packed or not.

The trainers are not installed with the others: `TOKENMILL_TRAINERS` names a Python that has torch, transformers, trl,
datasets and axolotl, `TOKENMILL_MEGATRON` one that has torch, transformers and megatron-bridge.
"""

import json
import os
import random
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.chats import NAMED, TEMPLATES, make_conversation, make_tokenizer
from tokenmill import run

PROGRAM = Path(__file__).with_name("train_rows.py")


def trained_by(python: str, trainer: str, packed: str, folder: Path) -> dict[str, Any]:
    shards = sorted(map(str, (folder / "out").glob("tokens-*.parquet")))
    command = [python, str(PROGRAM), trainer, packed, str(folder / "tokenizer"), *shards]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment, cwd=folder)
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("trainer", ["trl", "transformers", "axolotl", "megatron"])
def test_trainers_train_what_we_count(tmp_path: Path, trainer: str) -> None:
    name = "TOKENMILL_MEGATRON" if trainer == "megatron" else "TOKENMILL_TRAINERS"
    if not (python := os.environ.get(name)):
        pytest.skip(f"{name} names no Python with {trainer}")
    (tmp_path / "tokenizer").mkdir()
    make_tokenizer().save(tmp_path / "tokenizer" / "tokenizer.json")
    config = {"chat_template": TEMPLATES["chatml"], "pad_token": "</s>", **NAMED}
    (tmp_path / "tokenizer" / "tokenizer_config.json").write_text(json.dumps(config))
    rng = random.Random(5)
    records = [{"messages": make_conversation(rng, tools=False)} for _ in range(60)]
    (tmp_path / "chat.jsonl").write_text("".join(json.dumps(each) + "\n" for each in records))
    losses = []
    for packed, packing in (("plain", None), ("packed", {"length": 600})):
        output = {"path": str(tmp_path / "out"), "report": False, "for": trainer, "packing": packing}
        made = {"paths": [str(tmp_path / "chat.jsonl")], "messages_field": "messages"}
        tokenizer = {"file": str(tmp_path / "tokenizer")}
        run({"input": made, "tokenizer": tokenizer, "output": output}, overwrite=True)
        stats = json.loads((tmp_path / "out" / "stats.json").read_text())
        assert stats["chat"]["cut_tokens"] == 0
        found = trained_by(python, trainer, packed, tmp_path)
        assert found["trained"] == found["shifted"] == stats["chat"]["trained_tokens"] > 0
        assert found["steps"] >= 10
        losses.append(found["loss"])
    if trainer in ("trl", "transformers"):  # whose models look across no conversation, even without Flash Attention
        assert losses[0] == pytest.approx(losses[1], rel=1e-4)
