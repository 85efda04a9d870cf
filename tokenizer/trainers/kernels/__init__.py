# SPDX-License-Identifier: Apache-2.0
"""Kernels of trainers; those that encode and count are in `tokenmill.tokenizer.kernels`."""
