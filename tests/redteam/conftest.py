"""Attacks from outside on a running system: each tries to make a stated promise untrue, and reports how far it got.

One file per kind of attack. `make test` runs the quick form, `make redteam` the thorough one, which tries a hundred
times as much, and ends with a table of what was claimed and the most that was found.
"""

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

THOROUGH = os.environ.get("REDTEAM") == "thorough"
_FINDING = "redteam"


@pytest.fixture
def tries() -> Callable[[int], int]:
    """How many times to try: so many in the quick form, a hundred times as many in the thorough one."""
    return lambda quick: 100 * quick if THOROUGH else quick


@pytest.fixture
def report(request: pytest.FixtureRequest) -> Callable[[str, float, float], None]:
    """Reports the largest loss that an attack found beside what was claimed, and fails where it is larger."""

    def found(attack: str, claimed: float, largest: float) -> None:
        request.node.user_properties.append((_FINDING, (attack, claimed, largest)))
        assert largest <= claimed, f"{attack}: {claimed:.6g} is claimed, and {largest:.6g} was found."

    return found


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """The table of all findings."""
    rows = sorted(set(_findings(terminalreporter)))
    if rows and THOROUGH:
        terminalreporter.section("largest losses found")
        terminalreporter.write_line(f"{'claimed':>12}  {'found':>12}  attack")
        for attack, claimed, largest in rows:
            terminalreporter.write_line(f"{claimed:12.6g}  {largest:12.6g}  {attack}")


def _findings(terminalreporter: Any) -> Iterator[tuple[str, float, float]]:
    for outcome in ("passed", "failed"):
        for test in terminalreporter.stats.get(outcome, ()):
            yield from (tuple(value) for name, value in test.user_properties if name == _FINDING)
