# SPDX-License-Identifier: Apache-2.0
"""How much there is to read of the encode path: it may shrink, and `pytest -s` says to what."""

from pathlib import Path

from tokenmill.tokenizer import engines, kernels
from tokenmill.tokenizer.compiling import kernel_files

_KERNELS = Path(str(kernels.__file__)).parent
_STEPS = (
    "bert_wordpiece", "encode_loop", "normalized_words", "pattern_spans", "sentencepiece_spans",
    "sentencepiece_unigram", "spans", "word_counting", "word_models",
)  # fmt: skip
"""The files with what the loop calls by address."""
_MOST_FILES, _MOST_LINES = 18, 3_600
"""Of any one of these, with all in the files that it imports; 3,000 lines are wanted."""
_MOST_LINES_IN_ALL = 8_230
"""Of all kernels that encode and count, with the engines; 5,000 are wanted."""


def _sources_of(path: Path) -> dict[Path, int]:
    """Returns the kernel files that can be compiled into kernels of a file, with their lines."""
    return {file: source.count(b"\n") for file, source in kernel_files.kernel_sources(path).items()}


def test_the_encode_path_does_not_grow() -> None:
    paths = {name: _sources_of(_KERNELS / f"{name}.py") for name in _STEPS}
    largest = max(paths, key=lambda name: sum(paths[name].values()))
    everything = {path: n for files in paths.values() for path, n in files.items()}
    everything |= {p: p.read_bytes().count(b"\n") for p in Path(str(engines.__file__)).parent.glob("*.py")}
    print(f"\nlargest: {largest}, {len(paths[largest])} files, {sum(paths[largest].values())} lines")
    print(f"in all: {len(everything)} files, {sum(everything.values())} lines")
    assert max(map(len, paths.values())) <= _MOST_FILES
    assert sum(paths[largest].values()) <= _MOST_LINES
    assert sum(everything.values()) <= _MOST_LINES_IN_ALL
