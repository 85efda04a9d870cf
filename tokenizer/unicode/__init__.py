# SPDX-License-Identifier: Apache-2.0
"""Character data: `data.npz`, which `python -m tools.unicode` makes; its reader, `data`; and tables made from it."""
