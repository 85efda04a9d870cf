# SPDX-License-Identifier: Apache-2.0
"""The commands, a module for each group. In: arguments. Out: an exit code, and lines on stdout and stderr.

A command imports what it needs when it runs: `--help` must not wait for Beam, Arrow or kernels.
"""
