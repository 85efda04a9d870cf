# SPDX-License-Identifier: Apache-2.0
"""Engines: what a composition of components is lowered to.

`choose` returns the one that fuses most steps into its kernel and gives the same ids.
"""

from tokenmill.tokenizer.engines.choice import choose as choose
