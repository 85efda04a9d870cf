# SPDX-License-Identifier: Apache-2.0
"""Kernels of normalizers; those that encode and count are in `tokenmill.tokenizer.kernels`."""
