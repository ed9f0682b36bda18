"""Real pre-trained weights, which a tool outside the project lays out; kept in .cache once they are there."""

import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOOL, KEPT = ROOT.parent / "shared" / "tools" / "real-weights", ROOT / ".cache" / "real-weights"


@cache
def minilm():
    """The folder of a MiniLM (Wang et al. 2020), a small BERT."""
    folder = KEPT / "minilm"
    if not (folder / "config.json").exists():
        if not TOOL.exists():
            pytest.skip("there is no tool for real weights beside the project")
        made = subprocess.run([sys.executable, TOOL, KEPT], capture_output=True, text=True)
        if not (folder / "config.json").exists():
            pytest.skip(f"the real weights cannot be had: {made.stderr.strip().splitlines()[-1]}")
    return folder
