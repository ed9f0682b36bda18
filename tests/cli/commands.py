"""Commands, run in this process as a person runs them in a folder."""

import contextlib
import io
import os
import shlex
from pathlib import Path

from dpnlp.cli.main import main


def run_in(home: Path, line: str) -> tuple[int, str, str]:
    """The exit code of a command, and what it wrote to stdout and stderr."""
    before, out, err = Path.cwd(), io.StringIO(), io.StringIO()
    os.chdir(home)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(shlex.split(line))
    finally:
        os.chdir(before)
    return code, out.getvalue(), err.getvalue()
