# SPDX-License-Identifier: Apache-2.0
"""A tokenizer behind the interface of another library, so that a program changes in one line."""
