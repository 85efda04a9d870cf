# SPDX-License-Identifier: Apache-2.0
"""Stages the site: all documents, and the files that they link to, under their paths in the repository.

So a link is the same on the site and in the repository. README is the home page.
"""

import shutil
from pathlib import Path

from tools.docs.documents import documents, links

SOURCE = "build/site-source"
"""The folder that mkdocs reads; `mkdocs.yml` next to this file names it too."""


def stage(repository: Path) -> Path:
    """Copies the documents to where mkdocs reads them; returns the folder."""
    source = repository / SOURCE
    shutil.rmtree(source, ignore_errors=True)
    for document in documents(repository):
        _copy(repository, document, source)
        for target in links(document):
            linked = (document.parent / target.partition("#")[0]).resolve()
            if linked.is_file():
                _copy(repository, linked, source)
    return source


def _copy(repository: Path, file: Path, source: Path) -> None:
    place = source / file.relative_to(repository)
    place.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(file, place)
