# SPDX-License-Identifier: Apache-2.0
"""Kernels that prepare models; those that encode and count are in `tokenmill.tokenizer.kernels`."""
