# SPDX-License-Identifier: Apache-2.0
"""Every number of a config has a range: each one below, at and above its bounds, from a file and with `--set`."""

import contextlib
import dataclasses
import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pytest

from tokenmill.pipeline import cli
from tokenmill.pipeline.config.file import load_config
from tokenmill.pipeline.config.job import Config
from tokenmill.pipeline.config.sections import MAX_INT, ConfigError
from tokenmill.pipeline.config.tokenizer import MAX_VOCAB_SIZE, OPTIONS, PaddingConfig, TokenizerConfig, TrainConfig
from tokenmill.pipeline.training.tokenizers import train_tokenizer
from tokenmill.tokenizer import trainers
from tokenmill.tokenizer.models.vocabulary import MAX_ID
from tokenmill.tokenizer.post_processors import MAX_PADDED
from tokenmill.tokenizer.text import STEPS
from tokenmill.tokenizer.trainers.unigram import MAX_PIECE_LENGTH

_KINDS = ("integer", "number")


def _numbers() -> Iterator[tuple[str, dict[str, Any]]]:
    schema = Config.model_json_schema()

    def walk(path: str, found: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
        if "$ref" in found:
            yield from walk(path, schema["$defs"][found["$ref"].rpartition("/")[2]])
        for each in (*found.get("anyOf", ()), *found.get("oneOf", ()), *found.get("allOf", ())):
            yield from walk(path, each)
        if found.get("type") in _KINDS:
            yield path, dict(found)
        for name, each in found.get("properties", {}).items():
            yield from walk(f"{path}.{name}".lstrip("."), each)

    yield from walk("", schema)


NUMBERS = dict(_numbers())
BEFORE = {
    "tokenizer.truncation.stride": ["tokenizer.truncation={max_length: 9223372036854775807, overflow: rows}"],
    "tokenizer.truncation.warn_above": ["tokenizer.truncation={max_length: 9}"],
    "output.shuffle.run_bytes": ["output.shuffle={}"],
}
"""What else a config needs for a number to be accepted."""


def _least_and_most(key: Mapping[str, Any]) -> tuple[Any, Any]:
    if key["type"] == "integer":
        return key["minimum"], key["maximum"]
    return (
        key["minimum"] if "minimum" in key
        else math.nextafter(key["exclusiveMinimum"], math.inf),
        key["maximum"] if "maximum" in key else math.nextafter(key["exclusiveMaximum"], -math.inf),
    )  # fmt: skip


def _base(path: str) -> list[str]:
    overrides = ["input.paths=[a]", "output.path=o", *BEFORE.get(path, ())]
    name = path.rpartition(".")[2]
    if path.startswith("tokenizer.train."):
        overrides.append(f"tokenizer.train.model={next((m for m in OPTIONS if name in OPTIONS[m]), 'wordpiece')}")
    return overrides


@pytest.fixture
def load(tmp_path):
    def load(path: str, text: str, in_file: bool) -> Config:
        file = tmp_path / "job.yaml"
        file.write_text("{}")
        overrides = _base(path)
        if in_file:  # as the last line of a file of the same content
            names = path.split(".")
            lines = [f"{'  ' * i}{name}:" for i, name in enumerate(names)]
            file.write_text("\n".join(lines) + f" {text}\n")
            section = path.rpartition(".")[0]
            overrides = [each for each in overrides if not each.startswith(f"{section}={{")]
        return load_config(str(file), overrides if in_file else [*overrides, f"{path}={text}"])

    return load


def test_every_number_has_a_range():
    assert len(NUMBERS) > 20
    for path, key in NUMBERS.items():
        assert {"minimum", "exclusiveMinimum"} & key.keys(), path
        assert {"maximum", "exclusiveMaximum"} & key.keys(), path
        if key["type"] == "integer":
            assert key["maximum"] <= MAX_INT


def _text(value: float) -> str:
    """Returns a number as YAML 1.1 has it, with a point in each float."""
    text = json.dumps(value)
    return text.replace("e", ".0e") if "e" in text and "." not in text else text


@pytest.mark.parametrize("path", NUMBERS)
def test_a_number_at_its_bounds_is_taken(load, path):
    least, most = _least_and_most(NUMBERS[path])
    for value in (least, most):
        if path == "tokenizer.train.vocab_size" and value == least:
            continue  # the special tokens alone are more
        if path == "tokenizer.truncation.stride" and value == most:
            value = most - 1  # less than max_length
        config: Any = load(path, _text(value), in_file=False)
        for name in path.split("."):
            config = getattr(config, name)
        assert config == value


@pytest.mark.parametrize("in_file", [True, False])
@pytest.mark.parametrize("path", NUMBERS)
def test_a_number_out_of_its_range_is_refused(load, path, in_file):
    least, most = _least_and_most(NUMBERS[path])
    if NUMBERS[path]["type"] == "integer":
        wrong = [least - 1, -(2**31), -(2**63), -(10**30), most + 1, 2**63, 2**64, 10**30, 10**400, 1.5]
    else:
        wrong = [math.nextafter(least, -math.inf) if least else -5e-324, -1.0, math.nextafter(most, 2), 1.5, 10**400]
    texts = [
        *map(_text, wrong), ".nan", ".inf", "-.inf", "true", "false", "'1'", "[]", "{}", "1e3", "1:30", "2001-01-01",
    ]  # fmt: skip
    for text in texts:
        if path == "tokenizer.train.vocab_size" and text == "[]":
            continue  # a list of sizes, which must not be empty; another test
        with pytest.raises(ConfigError) as caught:
            load(path, text, in_file)
        named = (f"{path}: ", f"--set {path}={text:.20}")
        problems = caught.value.problems
        assert any(line.startswith(named) or ": line " in line for line in problems), (text, problems)
        assert max(map(len, problems)) < 500


def test_limits_of_the_config_are_those_of_the_library():
    assert TrainConfig.model_json_schema()["properties"]["max_piece_length"]["anyOf"][0]["maximum"] == MAX_PIECE_LENGTH
    assert PaddingConfig.model_json_schema()["properties"]["length"]["maximum"] == MAX_PADDED
    assert MAX_VOCAB_SIZE <= MAX_ID + 1


_COUNTS = pa.table(
    {"word": pa.array([b"ab", b"abc", b"b", b"\xe2\x96\x81ab"], pa.large_binary()), "count": pa.array([9, 7, 5, 3])}
)
_TRAINED = [
    (model, key) for model, options in OPTIONS.items() for key in options if f"tokenizer.train.{key}" in NUMBERS
]


@pytest.mark.parametrize(("model", "key"), _TRAINED)
def test_training_works_with_a_number_at_its_bounds(model, key):
    for value in _least_and_most(NUMBERS[f"tokenizer.train.{key}"]):
        if key == "shrinking_factor" and value > 0.5:
            value = 0.9
        options = {"model": model, "vocab_size": 1000, key: value}
        if model == "unigram":
            options["hard_vocab_limit"] = False
        train = TrainConfig.model_validate(options)
        # None of numba's errors; ours if no character is left, for example.
        with contextlib.suppress(ValueError):
            train_tokenizer(_COUNTS, TokenizerConfig(train=train))


@pytest.mark.parametrize(
    ("trainer", "name"),
    [
        (trainer, field.name)
        for trainer in (
            trainers.BPETrainer, trainers.WordPieceTrainer, trainers.UnigramTrainer, trainers.WordLevelTrainer,
            trainers.CharacterTrainer,
        )
        for field in dataclasses.fields(trainer)
        if field.type in (int, int | None)
    ],
)  # fmt: skip
@pytest.mark.parametrize("value", [2**63, 2**64, 10**30, -(2**63)])
def test_a_trainer_refuses_numbers_that_64_bits_do_not_hold(trainer, name, value):
    with pytest.raises(ValueError, match=name):
        trainer(**{name: value})


_OPTIONS_OF_STEPS = [
    (name, field.name)
    for name, step in STEPS.items()
    for field in dataclasses.fields(step)
    if field.type in (int, float, int | None, float | None)
]


@pytest.mark.parametrize(("step", "option"), _OPTIONS_OF_STEPS)
@pytest.mark.parametrize("value", ["-1", "0", "1000000000000000000000", ".nan", ".inf", "true", "'1'"])
def test_numbers_of_steps_have_a_range(load, step, option, value):
    pattern = ", pattern: a" if step == "regex" else ""
    with pytest.raises(ConfigError, match=r"^(tokenizer|normalize)\b") as caught:
        load("normalize", f"[{{{step}: {{{option}: {value}{pattern}}}}}]", in_file=False)
    assert any(line.startswith("normalize.0: ") for line in caught.value.problems)


@pytest.mark.parametrize("option", ["least", "seconds"])
@pytest.mark.parametrize("value", ["-1", "0", "1000000000000000000000", ".nan", ".inf", "true", "'1'"])
def test_numbers_of_spans_have_a_range(load, option, value):
    how = "find: repeated" if option == "least" else "regex: a"
    with pytest.raises(ConfigError) as caught:
        load("spans", f"[{{token: '<x>', {how}, {option}: {value}}}]", in_file=False)
    assert any(line.startswith("spans.0: ") for line in caught.value.problems)


FLAGS = [
    ["tokenize", "x.yaml", "--workers"], ["warm", "--workers"], ["workers", "--port"], ["inspect", "x", "--rows"],
    ["inspect", "x", "--start"], ["inspect", "x", "--seed"], ["inspect", "x", "--tokens"],
    ["compare", "x", "--on", "x", "--max-bytes"], ["compare", "x", "--on", "x", "--sizes"],
    ["counts", "show", "x", "--top"], ["verify", "x", "--deep", "--share"],
    ["counts", "merge", "x", "--out", "y", "--temperature"],
]  # fmt: skip


@pytest.mark.parametrize("arguments", FLAGS, ids=" ".join)
@pytest.mark.parametrize("value", ["-1", "nan", "inf", "true", "1" + "0" * 30, "9" * 5000, "1e999999999", ""])
def test_numbers_of_flags_have_a_range(arguments, value, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert cli.main([*arguments, value]) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_a_weight_with_a_huge_exponent_is_refused(capsys):
    for weight in ("1e999999999", "1e-999999999", "nan", "inf", "-1", "1/0", "9" * 5000, "1e19"):
        assert cli.main(["counts", "merge", "x", "--out", "y", "--weight", f"en={weight}"]) == 2
        assert "must look like SOURCE=W" in capsys.readouterr().err
