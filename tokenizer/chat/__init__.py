# SPDX-License-Identifier: Apache-2.0
"""Conversations: JSON records become text by a chat template, and tokens of which some are trained.

`conversations` finds the messages of a record; `templates` has them rendered by the process of `renderer`, in which
`rendering` runs a template in a sandbox; `traced` keeps track of which character came from which message; `spans`
decides what is trained, and `shapes` saves it from tracing every time; `masks` maps that to tokens; `check` shows all.
"""
