# SPDX-License-Identifier: Apache-2.0
"""Reports for people. In: a finished folder, or a config. Out: tables, rows as text, `stats.json`."""
