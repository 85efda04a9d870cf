# SPDX-License-Identifier: Apache-2.0
"""The graph of a job as text: the composites of this package, their steps, and what flows out of each."""

import re

import apache_beam as beam
from apache_beam.pipeline import AppliedPTransform, PipelineVisitor

from tokenmill.pipeline.jobs.planning import JobPlan
from tokenmill.pipeline.transforms import jobs

_PACKAGE = __name__.rpartition(".")[0]


def outline(plan: JobPlan) -> list[str]:
    """Returns a line for each step of a job, inside its composite, with the elements that it gives."""
    pipeline = beam.Pipeline(runner="FnApiRunner")  # which builds the graph and runs nothing
    jobs.build(pipeline, plan)
    found = _Outline()
    pipeline.visit(found)
    return found.lines


class _Outline(PipelineVisitor):
    """Collects the lines; what is inside of Beam's own composites, such as Reshuffle, is left out."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._n_foreign = 0

    def enter_composite_transform(self, node: AppliedPTransform) -> None:
        if node.full_label:
            self.visit_transform(node)
        self._n_foreign += _is_foreign(node)

    def leave_composite_transform(self, node: AppliedPTransform) -> None:
        self._n_foreign -= _is_foreign(node)

    def visit_transform(self, node: AppliedPTransform) -> None:
        if not self._n_foreign:
            self.lines.append(_line(node))


def _is_foreign(node: AppliedPTransform) -> bool:
    return node.transform is not None and not type(node.transform).__module__.startswith(_PACKAGE)


def _line(node: AppliedPTransform) -> str:
    *above, name = node.full_label.split("/")
    made = ", ".join(dict.fromkeys(_shown(each.element_type) for each in node.outputs.values()))
    return f"{'  ' * len(above)}{name}{f' -> {made}' if made else ''}"


def _shown(kind: object) -> str:
    """Returns the name of a type, without the modules that it and its arguments are from."""
    name = kind.__name__ if isinstance(kind, type) else str(kind)
    return re.sub(r"<class '(?:\w+\.)*(\w+)'>", r"\1", name).replace("List[", "list[").replace("Tuple[", "tuple[")
