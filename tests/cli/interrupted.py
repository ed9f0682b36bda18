"""A command that somebody stops with Ctrl-C once its run has begun."""

import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path


def interrupted(home: Path, command: str, run: str) -> str:
    """Stops the command that trains this run, when it has its first checkpoint, and returns what it said then."""
    words = [sys.executable, "-m", "dpnlp", *shlex.split(command)]
    process = subprocess.Popen(words, cwd=home, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    while not (home / "runs" / run / "checkpoints" / "0").exists() and process.poll() is None:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    return err
