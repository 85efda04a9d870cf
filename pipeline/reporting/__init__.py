# SPDX-License-Identifier: Apache-2.0
"""Reports for people. In: a finished folder. Out: tables, a page, `stats.json`.

`stats` makes `stats.json`, `summary` the table at the end of a job. `page` makes `report.html` from what `facts`
gathers; `html` renders it and all other pages from templates, `*.html.jinja`; `advice` writes its first section.
`stats_file` is the schema of `stats.json`.
"""
