"""What the tests of commands have in common: how a command is run in the folder of a module's tests."""

import pytest

from .commands import run_in


@pytest.fixture(scope="module")
def dpnlp(home):
    """Runs a command in that folder; gives its exit code, stdout and stderr."""

    def run(line):
        return run_in(home, line)

    return run
