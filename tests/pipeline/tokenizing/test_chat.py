# SPDX-License-Identifier: Apache-2.0
"""Conversations from files to shards: masks, rejects, packing, and the same bytes whatever the splits."""

import itertools
import json
import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from tests.chats import NAMED, TEMPLATES, make_conversation, make_tokenizer
from tokenmill import JobError, run, verify
from tokenmill.pipeline.config.file import load_config
from tokenmill.pipeline.config.sections import ConfigError
from tokenmill.pipeline.input.rejects import REASONS
from tokenmill.pipeline.jobs.planning import plan_job
from tokenmill.pipeline.output.writers import formats
from tokenmill.pipeline.proving import shards
from tokenmill.pipeline.proving.trace import trace
from tokenmill.pipeline.reporting import page
from tokenmill.pipeline.reporting.summary import summarize
from tokenmill.tokenizer.chat import renderer
from tokenmill.tokenizer.chat.conversations import REASONS as OF_CONVERSATIONS

N = 60


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tokenizer = tmp_path / "tokenizer"
    tokenizer.mkdir()
    make_tokenizer().save(tokenizer / "tokenizer.json")
    config = {"chat_template": TEMPLATES["chatml"], **NAMED}
    (tokenizer / "tokenizer_config.json").write_text(json.dumps(config))
    rng = random.Random(7)
    records = [{"id": f"c{i}", "messages": make_conversation(rng, tools=False)} for i in range(N)]
    for record in records:  # a line end in front would be one token with that of the header
        for message in record["messages"]:
            message["content"] = message["content"].lstrip("\n")
    (tmp_path / "chat.jsonl").write_text("".join(json.dumps(each, ensure_ascii=False) + "\n" for each in records))
    return tmp_path


def config_of(folder: Path, name: str = "out", *, data: str = "chat.jsonl", **sections: Any) -> dict[str, Any]:
    made: dict[str, Any] = {
        "input": {"paths": [str(folder / data)], "messages_field": "messages"},
        "tokenizer": {"file": str(folder / "tokenizer")},
        "output": {"path": str(folder / name), "report": False},
    }
    for section, keys in sections.items():
        made[section] = {**made.get(section, {}), **keys}
    return made


def rows_of(folder: Path, name: str = "out") -> list[dict[str, Any]]:
    found = []
    for path in sorted((folder / name).glob("tokens-*.parquet")):
        with open(path, "rb") as handle:
            found += pa.Table.from_batches(formats.read_rows(handle, path.name)).to_pylist()
    return found


def stored_rows(folder: Path, name: str = "out") -> list[dict[str, Any]]:
    """Returns rows with the columns that trainers read."""
    return [row for path in sorted((folder / name).glob("tokens-*.parquet")) for row in pq.read_table(path).to_pylist()]


def trained_text(row: dict[str, Any]) -> str:
    tokenizer = make_tokenizer()
    ids = [i for i, trained in zip(row["input_ids"], row["loss_mask"], strict=True) if trained]
    return tokenizer.decode(ids, skip_special_tokens=False)


def check_counts(folder: Path, name: str) -> dict[str, int]:
    """Checks that stats.json counts the tokens that rows train, and says what became of the others."""
    counts: dict[str, int] = json.loads((folder / name / "stats.json").read_text())["chat"]
    assert counts["trained_tokens"] == sum(sum(row["loss_mask"]) for row in rows_of(folder, name))
    assert counts["marked_tokens"] == sum(counts[f"{why}_tokens"] for why in ("trained", "cut", "first"))
    assert verify(str(folder / name)).problems == []
    return counts


def test_answers_and_stop_tokens_are_trained(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(config_of(folder))
    records = [json.loads(line) for line in (folder / "chat.jsonl").read_text().splitlines()]
    rows = rows_of(folder)
    assert [row["doc_id"] for row in rows] == [record["id"] for record in records]
    for row, record in zip(rows, records, strict=True):
        answers = [each["content"] + "<|im_end|>" for each in record["messages"] if each["role"] == "assistant"]
        assert trained_text(row) == "".join(answers)
    stats = json.loads((folder / "out" / "stats.json").read_text())["chat"]
    assert stats["trained_tokens"] == sum(sum(row["loss_mask"]) for row in rows)
    assert stats["turns"] == sum(each["role"] == "assistant" for record in records for each in record["messages"])
    assert sum(stats["tokens_by_role"].values()) == sum(row["n_tokens"] for row in rows)
    assert stats["tokens_by_role"]["assistant"] == stats["trained_tokens"] - stats["turns"]  # each has a stop token
    assert verify(str(folder / "out"), deep=True).problems == []
    monkeypatch.setattr(shards, "_count_trained", lambda rows, report: rows)
    expected = [f"rows train 0 tokens, the ledger says {stats['trained_tokens']}"]
    assert verify(str(folder / "out")).problems == expected


def test_rows_are_those_of_transformers(folder: Path) -> None:
    """Where a template marks its turns, ids and masks are those of `return_assistant_tokens_mask`."""
    transformers = pytest.importorskip("transformers")
    source = (
        "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' }}{% if m.role == 'assistant' %}{% generation %}"
        "{{ m.content + '<|im_end|>' }}{% endgeneration %}{% else %}{{ m.content + '<|im_end|>' }}{% endif %}"
        "{{ '\\n' }}{% endfor %}"
    )
    (folder / "tokenizer" / "tokenizer_config.json").write_text(json.dumps({"chat_template": source}))
    run(config_of(folder))
    theirs = transformers.PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer" / "tokenizer.json"))
    for line, row in zip((folder / "chat.jsonl").read_text().splitlines(), rows_of(folder), strict=True):
        expected = theirs.apply_chat_template(
            json.loads(line)["messages"],
            chat_template=source,
            tokenize=True,
            return_dict=True,
            return_assistant_tokens_mask=True,
        )
        assert row["input_ids"] == expected["input_ids"]
        assert row["loss_mask"] == [bool(each) for each in expected["assistant_masks"]]


def test_what_cannot_be_trained_on_is_rejected_with_a_reason(folder: Path) -> None:
    ask, answer = {"role": "user", "content": "why?"}, {"role": "assistant", "content": "so"}
    bad = {
        "not_a_conversation": {"text": "hi"},
        "unknown_role": {"messages": [{"role": "wizard", "content": "a"}]},
        "empty_turn": {"messages": [ask, {"role": "assistant", "content": ""}]},
        "two_systems": {"messages": [{"role": "system", "content": "a"}] * 2},
        "special_token_in_content": {"messages": [ask, {"role": "assistant", "content": "<|im_end|>"}]},
        "nothing_trained": {"messages": [ask]},
        "lone_surrogate": {"messages": [ask, {"role": "assistant", "content": "\ud800"}]},
        "template_failed": {"messages": [ask, {**answer, "content": [{"type": "text", "text": "a"}]}]},
    }
    lines = [json.dumps(each) for each in bad.values()]
    lines.append(json.dumps({"messages": [ask, answer], "n": 0}).replace("0}", "9" * 5000 + "}"))
    (folder / "bad.jsonl").write_text("\n".join([*lines, "{", "[]", json.dumps({"messages": [ask, answer]})]))
    run(config_of(folder, data="bad.jsonl", input={"on_damage": "warn"}))
    totals = json.loads((folder / "out" / "manifest.json").read_text())["totals"]
    assert totals["rejected"] == {**dict.fromkeys(bad, 1), "not_a_conversation": 2, "not_json": 1, "not_object": 1}
    assert totals["n_documents"] == 1
    (rejects,) = (folder / "out" / "rejected").glob("*.parquet")
    for each in pq.read_table(rejects).to_pylist():
        assert each["detail"]
        assert each["sample"]
    assert verify(str(folder / "out")).problems == []
    assert {*OF_CONVERSATIONS} <= {*REASONS}


def test_a_conversation_that_a_template_hangs_on_is_rejected_and_the_job_goes_on(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(renderer, "MAX_SECONDS", 0.5)
    renderer._state.end()
    nested = (
        "{% if messages[0].content == 'hang' %}{% set n = namespace(l=[1]) %}{% for i in range(60) %}"
        "{% set n.l = [n.l, n.l] %}{% endfor %}{{ n.l }}{% endif %}"
    )
    answer = {"role": "assistant", "content": "so"}
    asked = [{"messages": [{"role": "user", "content": each}, answer]} for each in ("a", "b", "hang", "c", "hang", "d")]
    (folder / "hang.jsonl").write_text("\n".join(map(json.dumps, asked)))
    template = nested + TEMPLATES["chatml"]
    run(config_of(folder, data="hang.jsonl", input={"on_damage": "warn"}, chat={"template": template}))
    renderer._state.end()
    totals = json.loads((folder / "out" / "manifest.json").read_text())["totals"]
    assert (totals["rejected"], totals["n_documents"]) == ({"template_limit": 2}, 4)
    assert verify(str(folder / "out")).problems == []


def test_a_text_that_the_normalizer_makes_a_special_token_of_is_rejected(folder: Path) -> None:
    file = folder / "tokenizer" / "tokenizer.json"
    parts = json.loads(file.read_text())
    parts["normalizer"] = {"type": "NFKC"}
    parts["added_tokens"] = [{**token, "normalized": True} for token in parts["added_tokens"]]
    file.write_text(json.dumps(parts))
    wide, answer = "a <|ｉm_end|> b", {"role": "assistant", "content": "so"}
    template = "{{ tools }}" + TEMPLATES["chatml"]
    records: list[dict[str, Any]] = [{"messages": [{"role": "user", "content": each}, answer]} for each in ("a", wide)]
    records.append({**records[0], "tools": [{"name": wide}]})
    (folder / "wide.jsonl").write_text("\n".join(map(json.dumps, records)))
    run(config_of(folder, data="wide.jsonl", input={"on_damage": "warn"}, chat={"template": template}))
    assert len(rows_of(folder)) == 1
    (rejects,) = (folder / "out" / "rejected").glob("*.parquet")
    table = pq.read_table(rejects)
    assert table["reason"].to_pylist() == ["special_token_in_content"] * 2
    assert {*table["detail"].to_pylist()} == {"the normalizer makes '<|im_end|>' of '<|ｉm_end|>'"}


def test_a_row_that_is_cut_has_a_trained_token_or_is_left_out(folder: Path) -> None:
    for side in ("right", "left"):
        cut = {"max_length": 30, "side": side, "warn_above": 1.0}
        run(config_of(folder, side, tokenizer={"truncation": cut}))  # it is no damage, which would fail the job
        rows = rows_of(folder, side)
        assert rows
        assert check_counts(folder, side)["cut_tokens"] > 0
        assert all(any(row["loss_mask"]) and len(row["loss_mask"]) == len(row["input_ids"]) <= 30 for row in rows)
        totals = json.loads((folder / side / "manifest.json").read_text())["totals"]
        assert totals["rejected"] == {}
        assert len(rows) + totals["filtered"].get("too_long", 0) == N


def test_a_template_of_which_the_wrong_text_would_be_trained_is_refused_before_the_job(folder: Path) -> None:
    endless = "{% for m in messages %}{{ '<' + m.role + '>' + m.content + '<end>' }}{% endfor %}"

    def warned(**chat: Any) -> tuple[str, ...]:
        made = config_of(folder, chat=chat)
        planned = plan_job("tokenize", load_config(made)).warnings
        sources = {"sources": {"one": made["input"]}}
        assert plan_job("tokenize", load_config({**made, "input": sources})).warnings == planned
        return planned

    assert warned() == warned(template=endless, stop=False) == ()
    for template, said in (
        (endless, "an earlier turn ends without a special token"),
        ("{{ raise_exception('never') }}", "never"),
        (TEMPLATES["bare"], "'<|user|>' is trained as the stop token"),
    ):
        with pytest.raises(ValueError, match="(?s)" + re.escape(said) + ".*chat.on_bad_mask"):
            run(config_of(folder, chat={"template": template}))
        assert not (folder / "out").exists()
        assert any(said in line for line in warned(template=template, on_bad_mask="warn"))
    assert warned(template=TEMPLATES["bare"], end_tokens=["<|user|>"]) == ()
    listed = "{% for t in tools %}{{ t.function.name }}{% endfor %}"
    assert warned(tool_template=listed + TEMPLATES["chatml"]) == ()
    with pytest.raises(ValueError, match=r"(?s)chat\.tool_template: stop token: .*'<\|user\|>' is.*chat.on_bad_mask"):
        run(config_of(folder, chat={"tool_template": listed + TEMPLATES["bare"]}))


def test_every_shape_gives_the_same_rows_from_every_format(folder: Path) -> None:
    ask, answer = {"role": "user", "content": "why?"}, {"role": "assistant", "content": "so"}
    records: list[dict[str, Any]] = [
        {"messages": [ask, answer], "system": "Be brief."},
        {"messages": [ask, {**answer, "train": False}, ask, {**answer, "train": True}]},
        {"conversations": [{"from": "human", "value": "why?"}, {"from": "gpt", "value": "so"}]},
        {"prompt": [ask, answer, ask], "completion": [answer]},
        {"instruction": "why?", "input": "And?", "output": "so", "history": [["a", "b"]], "system": "Be brief."},
    ]
    (folder / "a.jsonl").write_text("".join(json.dumps(each) + "\n" for each in records))
    (folder / "a.json").write_text(json.dumps(records))
    names = dict.fromkeys(name for each in records for name in each)
    table = pa.Table.from_pylist([names | each for each in records])
    pq.write_table(table, folder / "a.parquet")
    with pa.ipc.new_file(str(folder / "a.arrow"), table.schema) as file:
        file.write_table(table)
    found = {}
    for name in ("a.jsonl", "a.json", "a.parquet", "a.arrow"):
        run(config_of(folder, name + ".out", data=name))
        found[name] = [(row["input_ids"], row["loss_mask"]) for row in rows_of(folder, name + ".out")]
    assert found["a.jsonl"] == found["a.json"] == found["a.parquet"] == found["a.arrow"]
    assert len(found["a.jsonl"]) == len(records)


@pytest.mark.parametrize("truncation", [None, {"max_length": 30, "side": "left"}])
@pytest.mark.parametrize("packing", [None, {"length": 64, "strategy": "best_fit", "pad_token": "</s>"}])
def test_a_trained_token_leads_to_its_message(folder: Path, packing: Any, truncation: Any) -> None:
    output = {"path": str(folder / "out"), "report": False, "packing": packing}
    run(config_of(folder, output=output, tokenizer={"truncation": truncation}))
    (shard,) = (folder / "out").glob("tokens-*.parquet")
    records = {each["id"]: each for each in map(json.loads, (folder / "chat.jsonl").read_text().splitlines())}
    rng = random.Random(3)
    seen = set()
    for number, row in enumerate(rows_of(folder)):
        token = rng.randrange(row["n_tokens"])
        (document,) = trace(str(folder / "out"), shard.name, number, token)["documents"]
        at = document["at"]
        assert at["trained"] == row["loss_mask"][token]
        start, stop = at["characters"]
        messages = records[document["doc_id"]]["messages"]
        if at["message"] is None:
            assert at["role"] is None
        else:
            assert messages[at["message"]]["role"] == at["role"]
            shown = (messages[at["message"]]["content"], at["role"])
            assert any(document["text"][start:stop].strip() in text for text in shown)
        seen.add((at["role"], at["trained"]))
    assert seen >= {("user", False), ("assistant", True)}


def test_weights_of_messages_are_a_column(folder: Path) -> None:
    ask, answer = {"role": "user", "content": "é?"}, {"role": "assistant", "content": "so é"}
    turns = [{**ask, "weight": 1}, {**answer, "weight": 0.25}, ask, answer, ask, {**answer, "weight": 0}]
    (folder / "weights.jsonl").write_text(json.dumps({"messages": turns, "id": "a"}) + "\n")
    tokenizer = make_tokenizer()
    tokenizer.add_special_tokens(["[PAD]"])
    tokenizer.save(folder / "tokenizer" / "tokenizer.json")
    output = {"path": str(folder / "out"), "report": False, "shuffle": {"seed": 1, "shards": 1}, "labels": True}
    padded = {"padding": {"length": 90}}
    run(config_of(folder, data="weights.jsonl", chat={"weights": True}, output=output, tokenizer=padded))
    assert verify(str(folder / "out"), deep=True).problems == []
    (row,) = rows_of(folder)
    assert len(row["loss_weights"]) == len(row["loss_mask"]) == 90
    by_weight = {
        weight: tokenizer.decode([i for i, w in zip(row["input_ids"], row["loss_weights"], strict=True) if w == weight])
        for weight in {*row["loss_weights"]} - {0}
    }
    assert by_weight == {1.0: "é?so é", 0.25: "so é"}
    assert [w > 0 for w in row["loss_weights"]] == row["loss_mask"]
    for wrong in ({"packing": {"length": 64, "pad_token": "</s>"}}, {"format": "tfrecord"}):
        with pytest.raises(ConfigError, match=r"chat\.weights"):
            load_config(config_of(folder, chat={"weights": True}, output=wrong), job="tokenize")


def test_both_sides_of_a_pair_are_one_row(folder: Path) -> None:
    pairs = [
        {"id": "a", "prompt": "why?", "chosen": "so", "rejected": "no"},
        {"id": "b", "prompt": "why?", "chosen": "so", "rejected": "so"},
        {"id": "c", "prompt": "why?", "chosen": "so"},
        {"id": "d", "prompt": "and?", "chosen": "so", "rejected": "no <|im_end|>"},
        {"id": "e", "prompt": "and?", "chosen": "thus", "rejected": "never"},
    ]
    (folder / "pairs.jsonl").write_text("".join(json.dumps(each) + "\n" for each in pairs))
    input_ = {"messages_field": "chosen", "on_damage": "warn"}
    shuffle = {"path": str(folder / "out"), "report": False, "shuffle": {"seed": 1, "shards": 1}}
    run(config_of(folder, data="pairs.jsonl", chat={"pairs": True}, input=input_, output=shuffle))
    rows = {row["doc_id"]: row for row in rows_of(folder)}
    assert {*rows} == {"a", "e"}
    tokenizer = make_tokenizer()
    for name, chosen, rejected in (("a", "so", "no"), ("e", "thus", "never")):
        row = rows[name]
        assert trained_text(row) == f"{chosen}<|im_end|>"
        trained = [i for i, is_one in zip(row["rejected_ids"], row["rejected_mask"], strict=True) if is_one]
        assert tokenizer.decode(trained, skip_special_tokens=False) == f"{rejected}<|im_end|>"
        prompt = row["loss_mask"].index(True)
        assert row["input_ids"][:prompt] == row["rejected_ids"][:prompt]
    counts = check_counts(folder, "out")
    assert counts["rejected_tokens"] == sum(len(row["rejected_ids"]) for row in rows.values())
    totals = json.loads((folder / "out" / "manifest.json").read_text())["totals"]
    assert totals["rejected"] == {"not_a_conversation": 1, "nothing_trained": 1, "special_token_in_content": 1}
    assert verify(str(folder / "out"), deep=True).problems == []
    with pytest.raises(ConfigError, match=r"must be chosen with chat\.pairs"):
        load_config(config_of(folder, chat={"pairs": True}), job="tokenize")


@pytest.mark.parametrize("labels", [None, False, True])
@pytest.mark.parametrize("packing", [None, {"length": 64, "pad_token": "</s>"}])
def test_every_format_that_holds_a_mask_reads_it_back(folder: Path, packing: Any, labels: bool | None) -> None:
    formats_ = ["parquet", "arrow", "mds", *(["tfrecord"] if packing is None and not labels else [])]
    output = {"format": formats_, "path": str(folder / "out"), "report": False, "packing": packing}
    run(config_of(folder, "masks", output={**output, "path": str(folder / "masks"), "labels": False}))
    run(config_of(folder, output={**output, "labels": labels}))
    assert verify(str(folder / "out"), deep=True).problems == []
    paths = sorted((folder / "out").glob("tokens-*"))
    assert len(paths) == len(formats_)
    for path in paths:
        with open(path, "rb") as handle:
            batches = list(formats.read_rows(handle, path.name))
        assert pa.Table.from_batches(batches).select(["input_ids", "loss_mask"]).to_pylist() == [
            {name: row[name] for name in ("input_ids", "loss_mask")} for row in rows_of(folder, "masks")
        ]
    for row, masked in zip(stored_rows(folder), stored_rows(folder, "masks"), strict=True):
        if labels is False:
            assert row == masked
        else:  # a column with another name than `labels` would be dropped by TRL, which then trains every token
            expected = np.where(masked.pop("loss_mask"), masked["input_ids"], -100).tolist()
            assert {**masked, "labels": expected} == row


def for_trainer(row: dict[str, Any], trainer: str, *, packed: bool) -> dict[str, Any]:
    """Returns the columns of a row that a trainer reads, made of `loss_mask` and `cu_seqlens` one value at a time."""
    n, mask = len(row["input_ids"]), row["loss_mask"]
    bounds = row["cu_seqlens"] if packed else [0, n]
    labels = [token if trained else -100 for token, trained in zip(row["input_ids"], mask, strict=True)]
    starts = [*bounds[:-1], *([bounds[-1]] if bounds[-1] < n else [])]  # the padding is not a part of a conversation
    made = {
        "labels": labels,
        "attention_mask": [int(i < row["n_tokens"]) for i in range(n)],
        "position_ids": [i - max(start for start in starts if start <= i) for i in range(n)],
        "seq_lengths": [stop - start for start, stop in itertools.pairwise(bounds)],
        "seq_start_id": bounds[:-1],
        "loss_mask": [int(i + 1 < n and mask[i + 1]) for i in range(n)],
    }
    names = {
        "trl": ["labels", *(["seq_lengths"] if packed else [])],
        "axolotl": ["labels", "attention_mask", *(["position_ids"] if packed else [])],
        "transformers": ["labels", "position_ids" if packed else "attention_mask"],
        "megatron": ["loss_mask", "seq_start_id"],
    }
    return {name: made[name] for name in names[trainer]}


@pytest.mark.parametrize("packing", [None, {"length": 64, "separator": "</s>"}])
@pytest.mark.parametrize("trainer", ["trl", "axolotl", "transformers", "megatron"])
def test_rows_have_the_columns_that_a_trainer_reads(folder: Path, trainer: str, packing: Any) -> None:
    formats_ = ["parquet", *(["arrow"] if trainer != "megatron" else [])]
    output = {"format": formats_, "path": str(folder / "out"), "report": False, "packing": packing, "for": trainer}
    run(config_of(folder, output=output))
    check_counts(folder, "out")
    assert verify(str(folder / "out"), deep=True).problems == []
    rows = rows_of(folder)
    known = {"doc_id", "input_ids", "n_tokens", "n_oov", "documents", "cu_seqlens"}
    for row, stored in zip(rows, stored_rows(folder), strict=True):
        assert {name: value for name, value in stored.items() if name not in known} == for_trainer(
            row, trainer, packed=packing is not None
        )
    padded = {len(row["input_ids"]) - row["n_tokens"] for row in rows}
    assert (padded != {0}) == (trainer == "transformers" and packing is not None)
    (path,) = (folder / "out").glob("tokens-*.parquet")
    table = pq.read_table(path)
    for name in for_trainer(rows[0], trainer, packed=packing is not None):
        values = table.column(name).to_pylist()
        values[2][-1] += 1
        field = table.schema.field(name)
        changed = table.set_column(table.schema.get_field_index(name), field, pa.array(values, field.type))
        pq.write_table(changed, folder / path.name, version="1.0")
        with (
            open(folder / path.name, "rb") as handle,
            pytest.raises(ValueError, match=r"row 0 and on: .* (is|a label)"),
        ):
            list(formats.read_rows(handle, path.name))


def test_a_mask_of_another_length_is_found_where_it_is_read(folder: Path) -> None:
    run(config_of(folder, output={"path": str(folder / "out"), "report": False, "labels": False}))
    (path,) = (folder / "out").glob("tokens-*.parquet")
    table = pq.read_table(path)
    masks = table.column("loss_mask").to_pylist()
    masks[3] = masks[3][1:]
    changed = table.set_column(
        4, table.schema.field("loss_mask"), pa.array(masks, table.schema.field("loss_mask").type)
    )
    pq.write_table(changed, folder / path.name, version="1.0")
    with open(folder / path.name, "rb") as handle, pytest.raises(ValueError, match=r"row 3 has .* values in loss_mask"):
        list(formats.read_rows(handle, path.name))


def test_the_summary_says_which_fields_no_template_shows(folder: Path) -> None:
    turns = [{"role": "user", "content": "why?", "mood": "glad"}, {"role": "assistant", "content": "so"}]
    (folder / "chat.jsonl").write_text(json.dumps({"messages": turns}))
    run(config_of(folder))
    console = Console(width=200)
    with console.capture() as shown:
        console.print(summarize(str(folder / "out"), 1.0))
    assert "fields not shown 1 mood 1" in " ".join(shown.get().split())
    assert "mood" in page.render(page.gather(str(folder / "out")))


def test_a_folder_without_a_template_says_where_it_looked(folder: Path) -> None:
    (folder / "tokenizer" / "tokenizer_config.json").unlink()
    with pytest.raises((ConfigError, JobError), match=r"chat\.template.*it has none"):
        run(config_of(folder))
