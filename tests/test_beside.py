# SPDX-License-Identifier: Apache-2.0
"""`python -m tools beside`, with a stand-in for pip: who holds back what, and what does not resolve."""

import pytest
from packaging.requirements import Requirement

from tools import beside


def answers(monkeypatch, **needs):
    def resolve(*requirements):
        if len(requirements) > 1 and "old" in requirements[0]:
            raise beside.NotResolvedError("old 1 needs numpy<1")
        return {name: (version, [Requirement(each) for each in wants]) for name, (version, *wants) in needs.items()}

    monkeypatch.setattr(beside, "resolve", resolve)


def test_it_says_who_holds_back_what(monkeypatch):
    answers(monkeypatch, peer=("3", "numpy<2.2", "pyarrow>=1", 'numba<0.1; extra == "gpu"'), numpy=("2.1",))
    assert beside.told("peer", {"numpy": "2.4"}) == "peer 3: resolves\n  numpy 2.1, not 2.4: peer (<2.2)"


def test_what_does_not_resolve_ends_with_pips_reason_and_one(monkeypatch, capsys):
    answers(monkeypatch, old=("1",), numpy=("2",))
    monkeypatch.setattr(beside, "ours", lambda: (Requirement("numpy>=2"),))
    with pytest.raises(SystemExit) as ended:
        beside.main(["old"])
    assert ended.value.code == 1
    assert "old 1: does not resolve\nold 1 needs numpy<1" in capsys.readouterr().out


def test_ranges_leave_room_above_what_the_locks_hold():
    for each in beside.ours():
        assert not [bound for bound in each.specifier if bound.operator in ("==", "~=", "<=", "===")], each
