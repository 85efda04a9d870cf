# SPDX-License-Identifier: Apache-2.0
"""What a person types. In: arguments. Out: an exit code, and what is said on the way; a module for each group.

Whatever a command needs it imports itself: `--help` must not wait for Beam, Arrow or kernels.
"""
