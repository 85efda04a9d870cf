# SPDX-License-Identifier: Apache-2.0
"""Engines: what a composition of components is lowered to.

`choose` takes the most fused one that gives the same ids.
"""

from tokenizer.engines.choice import choose as choose
