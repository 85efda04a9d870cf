# SPDX-License-Identifier: Apache-2.0
"""The commands of `tokenmill`, a module for each group: it declares their arguments, calls and reports.

Whatever a command needs it imports itself: `--help` must not wait for Beam, Arrow or kernels.
"""
