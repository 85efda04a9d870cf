# SPDX-License-Identifier: Apache-2.0
"""The graph of a job as text, which `tokenmill plan --graph` prints.

      FindCommitted -> Done, Todo   with Tokenizer

A line is a step, inside its composite, with the elements that it gives. `from` says where its input comes from, if that
is not the step above, `with` what its side inputs are, and `shuffled` that what goes in, or is made of it, is grouped.
"""

import re
from collections.abc import Iterator

import apache_beam as beam
from apache_beam.pipeline import AppliedPTransform, PipelineVisitor

from tokenmill.pipeline.jobs.planning import JobPlan
from tokenmill.pipeline.transforms import jobs

_PACKAGE = __name__.rpartition(".")[0]


def outline(plan: JobPlan) -> list[str]:
    """Returns a line for each step of a job."""
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
        self._above = ""

    def enter_composite_transform(self, node: AppliedPTransform) -> None:
        if node.full_label and not self._n_foreign:
            self._add(node, has_sources=_is_foreign(node))
        self._n_foreign += _is_foreign(node)

    def leave_composite_transform(self, node: AppliedPTransform) -> None:
        self._n_foreign -= _is_foreign(node)

    def visit_transform(self, node: AppliedPTransform) -> None:
        if not self._n_foreign:
            self._add(node, has_sources=True)

    def _add(self, node: AppliedPTransform, has_sources: bool) -> None:
        *around, name = node.full_label.split("/")
        made = ", ".join(dict.fromkeys(_shown(each.element_type) for each in node.outputs.values()))
        line = f"{'  ' * len(around)}{name}{f' -> {made}' if made else ''}"
        if has_sources:
            inputs = [_maker(each.producer) for each in node.main_inputs.values() if each.producer is not None]
            beside = [*dict.fromkeys(_beside(node))]
            told = [f"from {', '.join(inputs)}"] if inputs not in ([], [self._above]) else []
            told += [f"with {', '.join(beside)}"] if beside else []
            told += ["shuffled"] if _groups(node) else []
            line += f"   {', '.join(told)}" if told else ""
            self._above = name
        self.lines.append(line)


def _is_foreign(node: AppliedPTransform) -> bool:
    return node.transform is not None and not type(node.transform).__module__.startswith(_PACKAGE)


def _beside(node: AppliedPTransform) -> Iterator[str]:
    """Yields the makers of the side inputs of a step, and of those that it is made of."""
    yield from (_maker(each.pvalue.producer) for each in node.side_inputs)
    for part in node.parts:
        yield from _beside(part)


def _groups(node: AppliedPTransform) -> bool:
    return isinstance(node.transform, beam.GroupByKey) or any(map(_groups, node.parts))


def _maker(node: AppliedPTransform) -> str:
    """Returns the name of a step; of one inside of Beam's own composites, theirs."""
    while node.parent is not None and _is_foreign(node.parent):
        node = node.parent
    return str(node.full_label.rpartition("/")[2])


def _shown(kind: object) -> str:
    """Returns the name of a type, without the modules that it and its arguments are from."""
    name = kind.__name__ if isinstance(kind, type) else str(kind)
    return re.sub(r"<class '(?:\w+\.)*(\w+)'>", r"\1", name).replace("List[", "list[").replace("Tuple[", "tuple[")
