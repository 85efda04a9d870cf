# SPDX-License-Identifier: Apache-2.0
"""The rules that hold the code together: who imports whom, what importing costs, what is public."""

import ast
import importlib
import inspect
import json
import re
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from tokenmill.pipeline.config.formats import FORMATS, SUFFIXES

# The modules that wire Beam; everything else in pipeline/ is plain functions over Arrow columns.
BEAM_MODULES = {
    "tokenmill.pipeline.transforms.jobs",
    "tokenmill.pipeline.transforms.outline",
    "tokenmill.pipeline.running.runners",
    "tokenmill.pipeline.transforms.counting",
    "tokenmill.pipeline.transforms.elements",
    "tokenmill.pipeline.transforms.publishing",
    "tokenmill.pipeline.transforms.stages",
    "tokenmill.pipeline.transforms.tokenizing",
    "tokenmill.pipeline.running.workers",
    "tokenmill.pipeline.running.worker_process",
}

# Packages that not every job needs, and the packages that may import them.
OPTIONAL = {
    "comparing": {"commands"},
    "estimating": {"commands"},
    "looking": {"commands", "proving"},
    "shuffling": {"estimating", "jobs", "proving", "tokenizing", "transforms"},
    "proving": {"commands"},
    "training": {"estimating", "jobs", "rows", "transforms"},
}

# What importing tokenizer may bring along besides the standard library; the second row comes with numba and pyarrow.
TOKENIZER_NEEDS = {"tokenmill", "numpy", "pyarrow", "numba", "llvmlite", "regex"}
TOKENIZER_NEEDS |= {"cloudpickle", "cython_runtime", "yaml"}

# What pipeline may import of tokenizer. The last one is no tokenizer: it is how either package compiles a kernel.
PUBLIC_MODULES = {
    "tokenmill.tokenizer",
    *(f"tokenmill.tokenizer.chat.{name}" for name in ("check", "conversations", "masks")),
    *(f"tokenmill.tokenizer.chat.{name}" for name in ("spans", "templates")),
    "tokenmill.tokenizer.languages",
    "tokenmill.tokenizer.reach",
    "tokenmill.tokenizer.reference_encoding",
    "tokenmill.tokenizer.text",
    "tokenmill.tokenizer.token_runs",
    "tokenmill.tokenizer.trainers",
    "tokenmill.tokenizer.utf8",
    "tokenmill.tokenizer.vocabulary",
    "tokenmill.tokenizer.compiling.kernel",
    "tokenmill.tokenizer.compiling.waiting",
}

PUBLIC_NAMES = {
    "tokenmill.tokenizer": {
        "AddedToken", "BPE", "BPETrainer", "CharacterTrainer", "BertNormalizer", "BertPreTokenizer", "Encoding",
        "Layout", "PAD_NAMES", "Padding", "Sampling", "ScannedTexts", "Tally", "TokenRun", "TemplateProcessing",
        "Tokenizer", "TokenizerFileError", "Trainer", "Truncation", "UNICODE_VERSIONS", "Unigram", "UnigramTrainer",
        "UnknownCharacterError", "WORD_COUNTS", "WordCounter", "WordLevel", "WordLevelTrainer", "WordPiece",
        "WordPieceTrainer", "add_word_counts", "check_array", "count_characters", "unchecked_text_rows",
    },
    "tokenmill.tokenizer.trainers": {
        "BPETrainer", "CharacterTrainer", "ParityBPETrainer", "Tell", "Trainer", "UnigramTrainer", "WordLevelTrainer",
        "WordPieceTrainer", "spelled_word_counts",
    },
    "tokenmill.tokenizer.vocabulary": {
        "Change", "ID_MAP", "Measures", "Problem", "Problems", "TRANSFER", "balance", "check", "extend", "measure",
        "merge", "model_alone", "prune", "rename", "rename_files", "replace", "reserved_ids", "superwords",
        "transfer",
    },
    "tokenmill.tokenizer.languages": {
        "DEFAULT", "LanguageTextTokenizer", "LanguageTokenizers", "Languages", "RULES", "RoutedText", "SCRIPTS",
        "UNKNOWN", "identify", "language_codes", "main_scripts", "script_name",
    },
    "tokenmill.tokenizer.text": {
        "EncodedText", "PRESETS", "PreparedText", "STEPS", "SpanRule", "StepReport", "TextChain", "TextStep",
        "TextTokenizer", "UNICODE_VERSION", "parse_steps",
    },
}  # fmt: skip


# What the alias package gives of pipeline.
PIPELINE_NAMES = {
    "VERSION", "JobError", "JobResult", "plan", "run", "verify", "InputConfig", "plan_splits", "compare",
    "read_report", "ComputeAndApplyTokenizer", "CountWords", "Detokenize", "IdentifyLanguage", "Normalize",
    "ReadCorpus", "RenderChat", "Tokenize", "TrainVocabulary", "VocabularyStatistics", "WriteShards",
}  # fmt: skip


def _modules(repository: Path, package: str) -> dict[str, Path]:
    paths = (repository / package).rglob("*.py")
    names = {path: _module_name(path.relative_to(repository)) for path in paths}
    return {name.removesuffix(".__init__"): path for path, name in names.items()}


def _module_name(path: Path) -> str:
    """The name that the file at `path`, relative to the repository, is imported by."""
    prefix = ("tokenmill",) if path.parts[0] in ("tokenizer", "pipeline") else ()
    return ".".join((*prefix, *path.with_suffix("").parts))


def _imports(path: Path) -> set[str]:
    """Full names that a file imports anywhere, `from a import b` as both `a` and `a.b`."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found |= {str(node.module)} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def _import_graph(repository: Path, package: str) -> dict[str, set[str]]:
    """Which files of a package each of them imports, inside functions and for types alone included."""
    modules = _modules(repository, package)
    graph = {}
    for name, path in modules.items():
        graph[name] = set()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                graph[name] |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                # `from package import module` needs the module; the package's own first lines need nothing.
                full = (f"{node.module}.{alias.name}" for alias in node.names)
                graph[name] |= {each if each in modules else str(node.module) for each in full}
        graph[name] = graph[name] & modules.keys() - {name}
    return graph


def _layers(graph: dict[str, set[str]]) -> dict[str, int]:
    """Returns the layer of each node: one above the highest that it imports; CycleError where there is a circle."""
    layers: dict[str, int] = {}
    for name in TopologicalSorter(graph).static_order():
        layers[name] = 1 + max((layers[need] for need in graph[name]), default=0)
    return layers


def _loaded_after(repository: Path, *modules: str) -> set[str]:
    """Every module that a fresh interpreter did not have before it imported these."""
    imports = "".join(f"import {module}\n" for module in sorted(modules))
    program = f"import json, sys\nbefore = set(sys.modules)\n{imports}print(json.dumps([*set(sys.modules) - before]))"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=repository, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout))


def test_importing_tokenizer_brings_neither_beam_nor_pipeline(repository: Path) -> None:
    names = _loaded_after(repository, "tokenmill.tokenizer")
    loaded = {name.partition(".")[0] for name in names}
    assert "apache_beam" not in loaded
    assert "tokenmill.pipeline" not in names
    foreign = loaded - sys.stdlib_module_names - TOKENIZER_NEEDS
    assert {name for name in foreign if not name.startswith("_")} == set()


def test_tokenizer_never_names_beam_or_pipeline(repository: Path) -> None:
    for name, path in _modules(repository, "tokenizer").items():
        assert not [each for each in _imports(path) if each.startswith(("apache_beam", "tokenmill.pipeline"))], name


def test_only_beam_modules_load_beam(repository: Path) -> None:
    modules = _modules(repository, "pipeline")
    assert modules.keys() >= BEAM_MODULES, "a Beam module has gone; take it off the list"
    rows = {name for name in modules if name.startswith("tokenmill.pipeline.rows.")}  # all of it is Beam's
    loaded = _loaded_after(repository, *(modules.keys() - BEAM_MODULES - rows))
    assert "apache_beam" not in loaded
    assert "pandas" not in loaded, "it takes 0.4 s"
    for name in BEAM_MODULES:
        assert "apache_beam" in {i.partition(".")[0] for i in _imports(modules[name])}, name


@pytest.mark.parametrize("package", ["tokenizer", "pipeline", "tokenmill", "benchmarks"])
def test_files_do_not_import_each_other_in_circles(repository: Path, package: str) -> None:
    graph = _import_graph(repository, package)
    assert _layers(graph).keys() == graph.keys()


def test_packages_of_the_pipeline_are_in_twelve_layers(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A package is a folder of `pipeline/`, or a file beside the folders. Each imports only packages below it."""
    graph = _import_graph(repository, "pipeline")
    packages: dict[str, set[str]] = {}
    for name, needs in graph.items():
        package = _package(name)
        packages.setdefault(package, set()).update({_package(need) for need in needs} - {package})
    layers = _layers(packages)
    with capsys.disabled():
        print(f"\n  pipeline: {len(graph)} files, {len(packages)} packages on {max(layers.values())} layers:")
        for layer in range(max(layers.values()), 0, -1):
            print(f"    {layer:2} {' '.join(sorted(package for package, its in layers.items() if its == layer))}")
    assert max(layers.values()) <= 12
    for folder in (path for path in (repository / "pipeline").rglob("*") if path.is_dir() and any(path.glob("*.py"))):
        lines = (ast.get_docstring(ast.parse((folder / "__init__.py").read_text("utf-8"))) or "").splitlines()
        assert lines, f"{folder} does not say what it is"
        assert lines[0].count(" In: ") == lines[0].count(" Out: ") == 1, f"{folder}: one line says what goes in and out"


def _package(name: str) -> str:
    return [*name.split("."), "__init__"][2]


def test_an_optional_feature_is_imported_by_what_uses_it(repository: Path) -> None:
    graph = _import_graph(repository, "pipeline")
    for feature, users in OPTIONAL.items():
        importers = {
            _package(name) for name, needs in graph.items() if any(_package(need) == feature for need in needs)
        }
        assert importers - {feature} == users, feature


def test_pipeline_uses_public_names_of_tokenizer_only(repository: Path) -> None:
    for name, path in _modules(repository, "pipeline").items():
        used = {i for i in _imports(path) if i.startswith("tokenmill.tokenizer")}
        for imported in used:
            head = imported if imported in PUBLIC_MODULES else imported.rpartition(".")[0]
            assert head in PUBLIC_MODULES, f"{name} imports {imported}"
            assert not imported.rpartition(".")[2].startswith("_"), f"{name} imports {imported}"


@pytest.mark.parametrize("name", PUBLIC_NAMES)
def test_public_names_are_these(name: str) -> None:
    module = importlib.import_module(name)
    # `dir`, as some are imported when they are asked for.
    found = {key for key in dir(module) if not key.startswith("_") and not inspect.ismodule(getattr(module, key))}
    assert found == PUBLIC_NAMES[name]


def test_alias_has_every_public_name_and_imports_nothing_before_it_is_asked_for(repository: Path) -> None:
    alias = importlib.import_module("tokenmill")
    names = set(dir(alias))
    modules = {"data", "languages", "text", "trainers", "vocabulary"}
    assert names == PUBLIC_NAMES["tokenmill.tokenizer"] | modules | PIPELINE_NAMES
    for name in PUBLIC_NAMES["tokenmill.tokenizer"]:
        assert getattr(alias, name) is getattr(importlib.import_module("tokenmill.tokenizer"), name)
    assert all(hasattr(alias, name) for name in names)
    imported: dict[str, object] = {}
    exec("from tokenmill import *", imported)
    assert imported.keys() - {"__builtins__"} == names
    assert alias.__version__ == alias.VERSION == importlib.import_module("tokenmill.pipeline").VERSION
    with pytest.raises(ImportError, match="cannot import name 'Tokenzier'"):
        exec("from tokenmill import Tokenzier")
    loaded = _loaded_after(repository, "tokenmill")
    assert loaded.isdisjoint({"apache_beam", "numba", "numpy", "pyarrow", "tokenmill.pipeline", "tokenmill.tokenizer"})
    one_name = _loaded_after(repository, "tokenmill; tokenmill.Tokenizer")
    assert one_name.isdisjoint({"tokenmill.tokenizer.trainers", "pyarrow.compute"})


def test_every_source_names_its_licence_and_its_subject(repository: Path) -> None:
    folders = ("tokenizer", "pipeline", "tokenmill", "tests", "benchmarks", "tools")
    paths = [path for folder in folders for path in (repository / folder).rglob("*.py")]
    assert len(paths) > 20
    for path in paths:
        text = path.read_text(encoding="utf-8")
        assert text.startswith("# SPDX-License-Identifier: Apache-2.0\n"), path
        assert ast.get_docstring(ast.parse(text)), f"{path} lacks a module docstring"
    for script in ("run.sh", ".ci/run"):
        assert (repository / script).read_text(encoding="utf-8").splitlines()[
            1
        ] == "# SPDX-License-Identifier: Apache-2.0"


def test_no_module_of_the_tokenizer_is_long_and_no_kernel_has_many_parameters(repository: Path) -> None:
    too_much = []
    for path in sorted((repository / "tokenizer").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if (n_lines := text.count("\n")) > 500:
            too_much.append(f"{path}: {n_lines} lines")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef) and "kernel" in "".join(map(ast.unparse, node.decorator_list)):
                n = len(node.args.posonlyargs + node.args.args + node.args.kwonlyargs)
                too_much += [f"{path}: {node.name} has {n} parameters"] * (n > 12)
    assert too_much == []


def test_no_parser_takes_an_option_by_part_of_its_name(repository: Path) -> None:
    for folder in ("pipeline", "tokenmill", "benchmarks", "tools"):
        for path in (repository / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("ArgumentParser"):
                    assert "allow_abbrev=False" in ast.unparse(node), f"{path}, line {node.lineno}"


# Kernels that are longer: called for each byte or sample, their state in local variables costs nothing.
LONG_KERNELS = {"scan_rows", "scan_elements", "choose"}


def test_functions_of_the_pipeline_fit_on_a_screen_and_say_what_they_return(repository: Path) -> None:
    n_any = 0
    for path in sorted((repository / "pipeline").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef):
                n_lines = (node.end_lineno or 0) - node.lineno + 1
                assert n_lines <= 60 or node.name in LONG_KERNELS, f"{path}: {node.name} has {n_lines} lines"
                n_any += node.returns is not None and ast.unparse(node.returns) == "Any"
    assert n_any < 10, "JSON of any shape, and what stands for another object, are Any; nothing else need be"


def test_tests_have_no_packages(repository: Path) -> None:
    # With one, tests/tokenizer would shadow tokenizer.
    assert list((repository / "tests").rglob("__init__.py")) == []


def test_sources_speak_of_no_machine(repository: Path) -> None:
    """No absolute path of somebody's machine and no package index in anything we ship."""
    suffixes = {".py", ".sh", ".md", ".toml", ".yaml", ".yml", ".lock", ""}
    words = ["/" + "root/", "/" + "home/", "/" + "work/", "index-" + "url", "extra-" + "index"]
    for folder in (
        "tokenizer",
        "pipeline",
        "tokenmill",
        "tests",
        "benchmarks",
        "configs",
        "docs",
        "locks",
        "tools",
        ".ci",
        ".github",
        ".",
    ):
        for path in (repository / folder).glob("*" if folder == "." else "**/*"):
            if path.is_file() and path.suffix in suffixes and not path.name.startswith(".git"):
                # The option that keeps indexes out of the locks may be named.
                text = path.read_text(encoding="utf-8").replace("--no-emit-index-" + "url", "")
                assert not [word for word in words if word in text], path


def test_no_code_asks_for_an_input_format_by_its_name(repository: Path) -> None:
    """What depends on a format is in `config.formats`, and its reader in `input.readers`."""
    asks = [
        f"{path.relative_to(repository)}:{node.lineno}"
        for path in sorted((repository / "pipeline").rglob("*.py"))
        if path.name not in ("formats.py", "shards.py") and "output" not in path.parts  # outputs have the same names
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Compare | ast.match_case) and re.search("format|kind", ast.unparse(node))
        if any(isinstance(each, ast.Constant) and each.value in (*FORMATS, *SUFFIXES) for each in ast.walk(node))
    ]
    assert asks == []
