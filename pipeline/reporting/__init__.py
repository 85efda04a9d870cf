# SPDX-License-Identifier: Apache-2.0
"""What people are told. In: a finished folder, or a config. Out: tables, rows as text, `stats.json`."""
