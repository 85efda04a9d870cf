# SPDX-License-Identifier: Apache-2.0
"""What can be wrong with a chat template."""


class TemplateError(ValueError):
    """A template is broken, or fails on a conversation."""


class RefusedError(TemplateError):
    """A template says itself, by `raise_exception`, that it does not take this conversation."""


class TemplateLimitError(TemplateError):
    """A template takes more time or memory than it may."""
