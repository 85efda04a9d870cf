# SPDX-License-Identifier: Apache-2.0
"""Tokenizer files: read and written, one format per module. A file is data; reading one never runs anything."""
