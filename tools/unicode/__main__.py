# SPDX-License-Identifier: Apache-2.0
"""Writes the file, and says which of its arrays have changed."""

import numpy as np

from tokenmill.tokenizer.unicode import data
from tools.unicode import bert, normalization, packing, patterns, scripts, text


def main() -> None:
    """Makes the arrays, compares them with the file, and writes it."""
    arrays = bert.arrays() | patterns.arrays() | normalization.arrays() | scripts.arrays()
    arrays |= text.arrays(arrays)
    if missing := arrays.keys() ^ data.CONTENTS.keys():
        raise ValueError(f"tokenizer/unicode/data.py lists other arrays: {sorted(missing)}")
    before = dict(np.load(data.PATH)) if data.PATH.exists() else {}
    for name, array in arrays.items():
        if name not in before or not np.array_equal(before[name], array):
            print(f"{name} has changed: {data.CONTENTS[name]}")
    packing.write(data.PATH, arrays)
    print(f"{data.PATH}: {len(arrays)} arrays, {data.PATH.stat().st_size} bytes")


if __name__ == "__main__":
    main()
