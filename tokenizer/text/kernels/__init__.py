# SPDX-License-Identifier: Apache-2.0
"""Kernels of text steps; those that encode and count are in `tokenmill.tokenizer.kernels`."""
