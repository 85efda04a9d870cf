# SPDX-License-Identifier: Apache-2.0
"""Kernels that models are made ready with; those that encode and count are in `tokenizer.kernels`."""
