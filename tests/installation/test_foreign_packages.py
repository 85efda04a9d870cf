# SPDX-License-Identifier: Apache-2.0
"""Other packages that are called `tokenizer` or `pipeline`: what pip and Python do with them, and what we say of it."""

import sys
from pathlib import Path

import pytest

from pipeline import VERSION
from tests.installing import checked, install, make_wheel, run, uninstall

# What the package `tokenizer` of the Python Package Index has: an __init__ of its own, and modules that we have not.
FOREIGN = {"tokenizer/__init__.py": "def split_into_sentences(): ...\n", "tokenizer/abbrev.py": "ABBREVIATIONS = {}\n"}


def test_a_package_that_is_installed_over_ours_is_named_with_what_to_do(
    wheel: Path, empty_python: Path, tmp_path: Path
) -> None:
    command = empty_python.parent / "tokenmill"
    foreign = make_wheel(tmp_path, "tokenizer", FOREIGN)
    install(empty_python, wheel)
    done = run(command, "--version", cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"tokenmill {VERSION}\n", "")
    assert "split_into" not in checked(empty_python, "-c", "import tokenmill; tokenmill.VERSION", cwd=tmp_path)

    install(empty_python, foreign)
    done = run(command, "--version", cwd=tmp_path)
    (line,) = done.stderr.splitlines()
    assert done.returncode == 2
    assert "tokenizer/__init__.py' is not the file that TokenMill installed; tokenizer 3.5.6 also has it" in line
    assert "uninstall the other, then install TokenMill again with --force-reinstall" in line
    done = run(empty_python, "-c", "from tokenmill import Tokenizer", cwd=tmp_path)
    assert done.stderr.splitlines()[-1] == line.replace("tokenmill: ", "ImportError: ", 1)

    uninstall(empty_python, "tokenizer")
    done = run(command, "--version", cwd=tmp_path)
    assert done.returncode == 2
    assert "tokenizer/__init__.py' of TokenMill is missing" in done.stderr

    install(empty_python, wheel)
    done = run(command, "--version", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_package_that_ours_is_installed_over_is_named_and_we_work(
    wheel: Path, empty_python: Path, tmp_path: Path
) -> None:
    install(empty_python, make_wheel(tmp_path, "tokenizer", FOREIGN))
    install(empty_python, wheel)
    done = run(empty_python.parent / "tokenmill", "--version", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, f"tokenmill {VERSION}\n")
    assert done.stderr.startswith("tokenmill: TokenMill was installed over tokenizer 3.5.6, which cannot work any more")
    done = run(empty_python, "-c", "import tokenmill; tokenmill.VERSION", cwd=tmp_path)
    assert done.returncode == 0
    assert "UserWarning: TokenMill was installed over tokenizer 3.5.6" in done.stderr


def test_many_changed_files_are_a_few_lines(wheel: Path, empty_python: Path, tmp_path: Path) -> None:
    names = ["__init__", "cli", "columns", "schemas", "storage"]
    install(empty_python, wheel)
    install(empty_python, make_wheel(tmp_path, "pipeline", {f"pipeline/{name}.py": "\n" for name in names}))
    done = run(empty_python.parent / "tokenmill", "--version", cwd=tmp_path)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 4
    assert done.stderr.splitlines()[-1] == "tokenmill: ... and 2 more"


@pytest.mark.parametrize("place", ["tokenizer/__init__.py", "tokenizer.py", "tokenizer/words.txt"])
def test_a_name_of_ours_in_the_working_directory_is_named(repository: Path, tmp_path: Path, place: str) -> None:
    (tmp_path / place).parent.mkdir(exist_ok=True)
    (tmp_path / place).write_text("")
    is_package = place.endswith(".py")  # a folder without Python in it hides nothing
    for program in (["-m", "tokenmill", "--version"], ["-m", "pipeline", "--version"]):
        done = run(sys.executable, *program, cwd=tmp_path, PYTHONPATH=str(repository))
        assert done.returncode == (2 if is_package else 0), done.stderr
        if is_package:
            assert done.stderr.startswith("tokenmill: the package 'tokenizer' that Python finds is ")
            assert str(tmp_path / Path(place).parts[0]) in done.stderr
            assert "start from another folder" in done.stderr
    code = "import tokenmill; print(tokenmill.VERSION)"
    done = run(sys.executable, "-c", code, cwd=tmp_path, PYTHONPATH=str(repository))
    assert ("ImportError: the package 'tokenizer' that Python finds" in done.stderr) == is_package
