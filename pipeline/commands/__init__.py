# SPDX-License-Identifier: Apache-2.0
"""The commands, a module for each group. In: arguments. Out: an exit code, and lines on stdout and stderr.

    arguments -> jobs ----> execution.Request -> plan | estimate | run -> summary, --json, exit code
    Python    -> python -/

- `jobs`: run, count, train, tokenize, plan; `looking`: inspect, viz, diff, trace; `results`: verify, replay, report;
- `counts`: add and subtract word counts; `tokenizers`: convert, compare, chat check; `machines`: warm, attach, workers.
- Those for editors and shells, schema and completion, are in `cli`; `python` has run, plan and verify as functions.

`arguments` has arguments that several commands share, `reporting` exit codes and messages. A command imports
what it needs when it runs: `--help` must not wait for Beam, Arrow or kernels.
"""
