# SPDX-License-Identifier: Apache-2.0
"""The Python tests of tokenizers, tiktoken, sentencepiece and transformers, run against TokenMill's adapters.

./run.sh bench foreign-suites [tokenizers|tiktoken|sentencepiece|transformers ...]

The source distributions of the installed versions are fetched with pip into build/foreign; for that of tokenizers pip
wants Rust. Each suite runs twice, in a process of its own: with the library, and with the adapters in the place of its
classes (`foreign_shims`). Tests that fail with the library itself, because they want the network, say nothing; all
others must pass with the adapters, or be in `KNOWN` with the reason. Of transformers these are its common tests of
tokenizers, for ten classes with small vocabularies.
"""

import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from xml.etree import ElementTree

from benchmarks import foreign_shims, report

_FOLDER = Path("build/foreign")
SUITES = {
    "tokenizers": ("bindings/python/", "tests"),
    "tiktoken": ("", "tests"),
    "sentencepiece": ("", "test/sentencepiece_test.py test/numpy_test.py"),
    "transformers": ("", "tests/test_ten_classes.py"),
}
"""Library -> folder in its source distribution, and the tests in it, which are all that is unpacked."""
KNOWN: Mapping[str, Mapping[str, str]] = {
    "tokenizers": {
        "test_invalid_truncate_direction|SentencePieceUnigram.*test_train": "another message of the same error",
        "test_encode_formats": "arrays of pairs are refused: a batch is a list",
        "TestParityBpeTrainer": "ParityBpeTrainer is HF's own, and takes only HF's own Tokenizer",
        "TestUnigram.*special_tokens": "words with spaces in them are refused: Metaspace belongs in front of Unigram",
        "Repr|test_repr_str": "another repr",
        "test_multiprocessing_with_parallelism": "nothing hangs after a fork, which the test wants to see",
    },
    "tiktoken": {"test_hyp_encode_bytes": "_encode_bytes is private"},
    "transformers": {},
    "sentencepiece": {
        "test_normalize": "normalize gives no offsets",
        "test_nbest_timeout": "nbest_encode takes no time limit",
        "test_word_model": "models of words are refused",
        "unstable_len|memory_safety": "private names of the library's own buffers",
        "test_batch$|leading_empty|empty_input|explicit|test_nbest$|new_api|offset_mapping|parallel$|sampling|proto": (
            "protocol buffers and offset_mapping are refused"
        ),
    },
}
"""Library -> pattern of names of tests -> why they fail."""


def fetched(library: str) -> Path:
    """Returns the folder with the tests of a library."""
    version = metadata.version(library)
    folder = _FOLDER / f"{library}-{version}"
    if not folder.is_dir():
        command = [
            sys.executable, "-m", "pip", "download", "--no-binary", library, "--no-deps", f"{library}=={version}",
        ]  # fmt: skip
        subprocess.run([*command, "--quiet", "--dest", str(_FOLDER)], check=True)
        inner = f"{folder.name}/{SUITES[library][0]}"
        with tarfile.open(_FOLDER / f"{library}-{version}.tar.gz") as archive:
            members = [each for each in archive if each.name.startswith((f"{inner}test", f"{inner}conftest"))]
            archive.extractall(_FOLDER, members, filter="data")
        if library == "transformers":
            _write_classes(folder)
    return folder / SUITES[library][0]


def _write_classes(folder: Path) -> None:
    """Writes what the common tests of transformers need: folders of ten classes, a text, and a module with both."""
    from tests.parity.test_transformers_classes import _made

    for name in foreign_shims.CLASSES:
        _made(name).save_pretrained(folder / "classes" / name)
    (folder / "tests" / "fixtures").mkdir()
    (folder / "tests" / "fixtures" / "sample_text.txt").write_text(Path("README.md").read_text("utf-8"), "utf-8")
    (folder / "tests" / "__init__.py").touch()
    (folder / "tests" / "test_ten_classes.py").write_text(
        "from benchmarks.foreign_shims import classes_of_transformers\n"
        "from .test_tokenization_common import TokenizerTesterMixin\n"
        "globals().update(classes_of_transformers(TokenizerTesterMixin))\n",
        encoding="utf-8",
    )
    install = ["install", "--quiet", "--no-deps", "--target", str(_FOLDER / "site"), "parameterized"]
    subprocess.run([sys.executable, "-m", "pip", *install], check=True)


def outcomes(library: str, who: str) -> dict[str, str]:
    """Runs the tests of a library; returns test -> "passed", "failed" or "skipped". Args: who: "theirs" or "ours"."""
    folder, results = fetched(library), (_FOLDER / f"{library}-{who}.xml").resolve()
    path = os.pathsep.join([str(Path.cwd()), str((_FOLDER / "site").resolve())])
    environment = os.environ | {"TOKENMILL_FOREIGN": f"{library} {who}", "PYTHONPATH": path, "HF_HUB_OFFLINE": "1"}
    settings = (_FOLDER / "pytest.ini").resolve()
    settings.write_text("[pytest]\n", encoding="utf-8")  # else those of this repository apply
    command = [sys.executable, "-m", "pytest", *SUITES[library][1].split(), "-p", "benchmarks.foreign_shims"]
    options = ["-q", "-c", str(settings), "--rootdir", ".", "--junitxml", str(results), "-p", "no:cacheprovider"]
    subprocess.run([*command, *options], cwd=folder, env=environment, stdout=subprocess.DEVNULL, check=False)
    found = {}
    for case in ElementTree.parse(results).iter("testcase"):
        kinds = {child.tag for child in case}
        kind = "failed" if kinds & {"failure", "error"} else "skipped" if "skipped" in kinds else "passed"
        found[f"{case.get('classname')}::{case.get('name')}"] = kind
    return found


def main() -> int:
    """Prints counts and the tests that fail; returns 1 if one of them has no reason."""
    parser = report.parser("foreign-suites", __doc__)
    parser.add_argument("libraries", nargs="*", default=list(SUITES), metavar="LIBRARY")
    is_unknown = False
    for library in parser.parse_args().libraries:
        theirs, ours = outcomes(library, "theirs"), outcomes(library, "ours")
        usable = [name for name, kind in theirs.items() if kind == "passed"]
        failing = [name for name in usable if ours.get(name) != "passed"]
        passed = f"{len(usable) - len(failing)} of {len(usable)} pass with the adapters"
        others = "the others want the network or PyTorch"
        print(f"{library} {metadata.version(library)}: {len(theirs)} tests; {passed}; {others}")
        for name in failing:
            reason = next((why for pattern, why in KNOWN[library].items() if re.search(pattern, name)), "")
            is_unknown |= not reason
            print(f"  {name}: {reason or 'FAILS'}")
    return int(is_unknown)


if __name__ == "__main__":
    sys.exit(main())
