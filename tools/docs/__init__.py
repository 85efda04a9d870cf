# SPDX-License-Identifier: Apache-2.0
"""Makes the documentation: writes the pages of the reference from the code, runs snippets, builds the site.

`python -m tools.docs` lists its steps; `./run.sh docs` calls it. Each page of the reference is written by a module of
its own (`config_reference`, `command_reference`, `python_reference`, `error_reference`, `stats_reference`), and `pages`
says where each of them goes.
"""
