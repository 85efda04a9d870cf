# SPDX-License-Identifier: Apache-2.0
"""Reading and writing tokenizer files, one format per module. A file is only data: reading it never runs code."""
