# SPDX-License-Identifier: Apache-2.0
"""How much there is to read of the encode path: it may shrink, and `pytest -s` says to what."""

from pathlib import Path

from tokenmill.tokenizer import engines, kernels
from tokenmill.tokenizer.compiling import kernel_files
from tokenmill.tokenizer.kernels import scanning

_KERNELS = Path(str(kernels.__file__)).parent
_OF_THEIR_OWN = ("bert_wordpiece", "sentencepiece_bpe", "sentencepiece_unigram", "normalized_words", "word_counting")
_MOST_FILES, _MOST_LINES = 22, 4_180
"""Of any one kernel, with all in the files that it imports, which are those of other scanners and models, too; 18 and
3,000 are wanted."""
_MOST_LINES_IN_ALL = 8_300
"""Of all kernels that encode and count, with the engines; 5,000 are wanted."""


def _sources_of(*paths: Path) -> dict[Path, int]:
    """Returns the kernel files that can be compiled into kernels of some files, with their lines."""
    found = [kernel_files.kernel_sources(path) for path in paths]
    return {path: source.count(b"\n") for each in found for path, source in each.items()}


def _paths() -> dict[str, dict[Path, int]]:
    """Returns the files of every kernel that encodes or counts."""
    paths = {name: _sources_of(_KERNELS / f"{name}.py") for name in _OF_THEIR_OWN}
    for apart in (False, True):
        encodes = (scanning.encode_kernel(model, are_apart=apart) for model in scanning.MODELS)
        for made in (scanning.count_kernel(are_apart=apart), *encodes):
            paths[made.__name__] = _sources_of(*made._files)
    return paths


def test_the_encode_path_does_not_grow() -> None:
    paths = _paths()
    largest = max(paths, key=lambda name: sum(paths[name].values()))
    everything = {path: n for files in paths.values() for path, n in files.items()} | _sources_of(
        _KERNELS / "scanning.py"
    )
    everything |= {p: p.read_bytes().count(b"\n") for p in Path(str(engines.__file__)).parent.glob("*.py")}
    print(f"\nlargest: {largest}, {len(paths[largest])} files, {sum(paths[largest].values())} lines")
    print(f"in all: {len(everything)} files, {sum(everything.values())} lines")
    assert max(map(len, paths.values())) <= _MOST_FILES
    assert sum(paths[largest].values()) <= _MOST_LINES
    assert sum(everything.values()) <= _MOST_LINES_IN_ALL
