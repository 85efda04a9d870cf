# SPDX-License-Identifier: Apache-2.0
"""Reports for people. In: a finished folder. Out: tables, a page, `stats.json`.

    counts of a job --stats--> StatsFile --> stats.json, its schema, the reference
    stats.json, manifest, rejects, clock --page--> facts, advice --html--> report.html
                                         --summary--> the table at the end of a job, its warnings

`stats_file` describes every number of `stats.json` once. `html` renders all pages from templates, `*.html.jinja`.
"""
