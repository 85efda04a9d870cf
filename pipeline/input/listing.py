# SPDX-License-Identifier: Apache-2.0
"""A listing of files, tens of millions of them in little memory."""

import heapq
import itertools
import marshal
import zlib
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import itemgetter

import numpy as np

from tokenmill.pipeline import storage

_CHUNK_FILES = 4096

Named = tuple[str, storage.FileStat]
"""The name that a file has in document ids, and the file."""


class Listing:
    """Files in the order of their paths, packed: some 20 bytes for each file of a crawl; read them in order."""

    def __init__(self, files: Iterable[storage.FileStat]) -> None:
        """Reads `files`, in any order."""
        if not self._pack(files):
            # Stores list in order; other files fit in memory as objects.
            self._pack(sorted(self, key=lambda file: file.path))

    @classmethod
    def joined(cls, parts: Iterable["Listing"]) -> "Listing":
        """Returns the files of listings, each of which has only files that come after those of the one before."""
        whole = cls(())
        for part in parts:
            whole._chunks += part._chunks
            whole._n += part._n
        return whole

    def _pack(self, files: Iterable[storage.FileStat]) -> bool:
        """Replaces what is packed; returns whether it is in order."""
        files, self._chunks, self._n = iter(files), [], 0
        last, in_order = "", True
        while chunk := [(file.path, file.n_bytes, file.version) for file in itertools.islice(files, _CHUNK_FILES)]:
            paths = [last, *(path for path, _, _ in chunk)]
            in_order &= all(map(str.__le__, paths, paths[1:]))
            last = paths[-1]
            self._chunks.append(zlib.compress(marshal.dumps(chunk), 1))
            self._n += len(chunk)
        return in_order

    def __len__(self) -> int:
        return self._n

    def __iter__(self) -> Iterator[storage.FileStat]:
        for chunk in self._chunks:
            yield from itertools.starmap(storage.FileStat, marshal.loads(zlib.decompress(chunk)))


class NamedFiles:
    """The files of several listings in the order of their names, which are unique."""

    def __init__(self, listings: Sequence[tuple[Listing, Callable[[str], str]]]) -> None:
        """Takes the listings.

        Args:
          listings: files, and what returns the name of one from its path, which does not change their order.
        """
        self._listings = listings

    def __len__(self) -> int:
        return sum(len(listing) for listing, _ in self._listings)

    def __iter__(self) -> Iterator[Named]:
        runs = [_named(listing, name) for listing, name in self._listings]
        return runs[0] if len(runs) == 1 else heapq.merge(*runs, key=itemgetter(0))


def _named(listing: Listing, name: Callable[[str], str]) -> Iterator[Named]:
    return ((name(file.path), file) for file in listing)


def are_distinct(texts: Iterable[str]) -> bool:
    """Returns whether no text occurs twice; by hashes of 8 bytes, so in rare cases False although none does."""
    hashes = np.sort(np.array(array("q", map(hash, texts)), np.int64))
    return bool((hashes[1:] != hashes[:-1]).all())
