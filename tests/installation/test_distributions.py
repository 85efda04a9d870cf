# SPDX-License-Identifier: Apache-2.0
"""Wheel and sdist: the same bytes twice, what is in them, and that each works alone on every Python that we support."""

import base64
import contextlib
import hashlib
import json
import os
import re
import shutil
import sys
import tarfile
import time
import tomllib
import zipfile
from pathlib import Path

import pytest

from tests.end_to_end import test_golden as golden
from tests.installing import PIP, UNREACHABLE, checked, copy_clone, run
from tools import distributions

pytestmark = pytest.mark.installation
corpus = golden.corpus

CHECKERS = ("twine==7.*", "check-wheel-contents==0.6.*")
VERSIONS = ("3.11", "3.12", "3.13")

PROGRAM = """
import tokenmill
assert tokenmill.Tokenizer.from_file("out/vocab").encode("the mill").tokens
"""


@pytest.fixture(scope="module")
def built(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> list[list[Path]]:
    """Wheel and sdist, twice: from two clones, at two times."""
    folder = tmp_path_factory.mktemp("distributions")
    for name in ("first", "second"):
        copy_clone(repository, _made(folder / name))
        command = (sys.executable, "-m", "tools.distributions", "../dist-" + name)
        checked(*command, cwd=folder / name, SOURCE_DATE_EPOCH="1700000000")
        time.sleep(1.1)
    return [sorted((folder / f"dist-{name}").iterdir()) for name in ("first", "second")]


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _with_packages(python: str | Path, folder: Path, *packages: str | Path) -> Path:
    """An environment of `python` in `folder` with packages and what they need; skips without a package registry."""
    checked(python, "-m", "venv", "--without-pip", folder, cwd=folder.parent)
    ours = folder / "bin" / "python"
    options = ("--retries", "1", "--no-compile")  # most of what is installed is never imported
    done = run(*PIP, "--python", ours, "install", *options, *packages, cwd=folder, seconds=1200)
    if done.returncode and "CI" not in os.environ and UNREACHABLE.search(done.stderr):
        pytest.skip(f"needs a package registry: {done.stderr[-300:]}")
    assert done.returncode == 0, done.stderr
    return ours


def test_the_same_sources_give_the_same_bytes(built: list[list[Path]]) -> None:
    first, second = ({path.name: path.read_bytes() for path in paths} for paths in built)
    assert len(first) == 2
    assert first == second


def test_what_they_hold(built: list[list[Path]], repository: Path) -> None:
    wheel, sdist = built[0]
    names = set(zipfile.ZipFile(wheel).namelist())
    modules = {"__init__.py", "py.typed", "tokenizer/__init__.py", "pipeline/__init__.py"}
    assert {f"tokenmill/{name}" for name in modules} <= names
    info = next(name.partition("/")[0] for name in names if name.endswith(".dist-info/METADATA"))
    assert {name.partition("/")[0] for name in names} == {"tokenmill", info}
    metadata = zipfile.ZipFile(wheel).read(f"{info}/METADATA").decode()
    extras = tomllib.loads((repository / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert re.findall(r"^Provides-Extra: (.*)$", metadata, re.MULTILINE) == [*extras]
    with tarfile.open(sdist) as archive:
        members = {name.partition("/")[2] for name in archive.getnames()}
    assert {name for name in names if not name.startswith(info)} <= members
    assert {"LICENSE", "README.md", "pyproject.toml"} <= members
    assert not [name for name in members if name.startswith("tests/")]  # which need the rest of a clone


def test_the_checkers_of_the_package_index_find_nothing(built: list[list[Path]], tmp_path: Path) -> None:
    python = _with_packages(sys.executable, tmp_path / "venv", *CHECKERS)
    checked(python, "-m", "twine", "check", "--strict", *built[0], cwd=tmp_path)
    # W009: there are three top-level packages.
    checked(python.parent / "check-wheel-contents", "--ignore", "W009", built[0][0], cwd=tmp_path)


def test_a_wheel_with_kernels_is_the_wheel_and_kernels(built: list[list[Path]], tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(distributions, "_library", lambda: b"code")
    plain = Path(shutil.copy(built[0][0], tmp_path))
    with zipfile.ZipFile(plain) as before, zipfile.ZipFile(distributions.with_kernels(plain)) as after:
        assert set(after.namelist()) - set(before.namelist()) == {"tokenmill/tokenizer/compiled/kernels.so"}
        (record,) = (name for name in after.namelist() if name.endswith("/RECORD"))
        rows = [line.split(",") for line in after.read(record).decode().splitlines()]
        assert sorted(name for name, _, _ in rows) == sorted(after.namelist())
        for name, digest, size in rows:
            content = after.read(name)
            if name != record:
                said = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
                assert (digest, size) == (f"sha256={said}", str(len(content)))
            if not name.endswith(("/RECORD", "/WHEEL")) and name in before.namelist():
                assert content == before.read(name)


def _interpreter(version: str, folder: Path) -> str:
    """A Python of a version with venv; TOKENMILL_PYTHONS has folders that are looked into too."""
    folders = [*os.environ.get("TOKENMILL_PYTHONS", "").split(os.pathsep), os.environ["PATH"]]
    found = shutil.which(f"python{version}", path=os.pathsep.join(folders))
    if found is None or run(found, "-c", "import venv", cwd=folder).returncode:
        pytest.skip(f"needs python{version} with venv on the PATH or in a folder of TOKENMILL_PYTHONS")
    return found


@pytest.mark.parametrize("version", VERSIONS)
def test_an_installed_distribution_runs_a_job(built: list[list[Path]], tmp_path: Path, version: str) -> None:
    """Python 3.12 takes the sdist, the others the wheel."""
    interpreter = _interpreter(version, tmp_path)
    wheel, sdist = built[0]
    python = _with_packages(interpreter, tmp_path / "venv", sdist if version == "3.12" else wheel)
    lines = (json.dumps({"id": str(i), "text": f"The mill grinds text {i}."}) + "\n" for i in range(200))
    (tmp_path / "in.jsonl").write_text("".join(lines))
    (tmp_path / "job.yaml").write_text(
        "{input: {paths: [in.jsonl]}, tokenizer: {train: {vocab_size: 60}}, output: {path: out}}"
    )
    checked(python.parent / "tokenmill", "run", "job.yaml", cwd=tmp_path)
    checked(python.parent / "tokenmill", "verify", "out", "--deep", cwd=tmp_path)
    checked(python, "-W", "error", "-c", PROGRAM, cwd=tmp_path)


@pytest.fixture(scope="module")
def whole(built: list[list[Path]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel with all kernels: one for every Python. It takes minutes."""
    return distributions.with_kernels(Path(shutil.copy(built[0][0], tmp_path_factory.mktemp("whole"))))


@pytest.mark.parametrize("version", VERSIONS)
def test_an_installation_with_kernels_compiles_nothing(
    whole: Path, corpus: Path, repository: Path, tmp_path: Path, version: str
) -> None:
    assert "-py3-none-" in whole.name
    python = _with_packages(_interpreter(version, tmp_path), tmp_path / "venv", whole)
    inputs = Path(shutil.copytree(corpus, tmp_path / "inputs"))
    with contextlib.chdir(inputs):
        commands = {name: golden.words(name)[0] for name in golden.JOBS}
    (inputs / "commands.json").write_text(json.dumps(commands))
    shared = Path(os.environ.get("TOKENMILL_SHARED", repository.parent / "shared"), "data", "vocab")
    vocabularies = sorted(path for path in shared.glob("*") if path.name != "gpt2-vocab.json")  # that of its merges
    program = Path(__file__).with_name("repertoire.py")
    home = {"HOME": str(_made(tmp_path / "home")), "TOKENMILL_CACHE_DIR": str(tmp_path / "home" / "cache")}
    done = run(python, program, inputs, *vocabularies, cwd=tmp_path, seconds=1800, **home)
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["compiled"] == []
    assert not found["numba"]
    assert "compiling" not in done.stderr
    assert not list((tmp_path / "home").rglob("*.kernel"))
