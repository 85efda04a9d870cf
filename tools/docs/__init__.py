# SPDX-License-Identifier: Apache-2.0
"""What makes the documentation: pages of the reference from the code, snippets that are run, the site.

`python -m tools.docs` lists what it does; `./run.sh docs` calls it. Pages are read by people, so each is written by a
module of its own (`config_reference`, `command_reference`, `python_reference`, `error_reference`), and `pages` says
where each of them goes.
"""
