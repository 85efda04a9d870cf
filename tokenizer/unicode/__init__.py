# SPDX-License-Identifier: Apache-2.0
"""What is known of characters: `data.npz`, made by `python -m tools.unicode`, its reader `data`, and tables of it."""
