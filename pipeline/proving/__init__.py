# SPDX-License-Identifier: Apache-2.0
"""Proves that an output folder is what its manifest says. In: the folder, and some of the input. Out: any problems.

    files --> shards, rows ------> counted again --\
    ledger --> jobs.finish --> added up again --------> verify: equal to statistics, lists and manifest?

`from_input` reads a sample of the input again and compares every byte; `trace` follows a token back to its source, and
`replay` tokenizes rejects after a fix.
"""
