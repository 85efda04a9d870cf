# SPDX-License-Identifier: Apache-2.0
"""Compiled loops over Arrow buffers; each has its slow twin in `tokenizer.reference`."""
