"""The files under configs/ are settings that the command takes."""

import math
from pathlib import Path

import pytest

from dpnlp.cli.config import parse
from dpnlp.cli.rewrite import Rewrite
from dpnlp.cli.sweep import planned
from dpnlp.cli.train import Train

CONFIGS = Path(__file__).parents[2] / "configs"
GRIDS = sorted(CONFIGS.rglob("*-grid.yaml"))
SETTINGS = sorted(set(CONFIGS.rglob("*.yaml")) - set(GRIDS))


def head(file):
    """The first line, which says what the file is about."""
    return file.read_text(encoding="utf-8").partition("\n")[0]


@pytest.mark.parametrize("file", SETTINGS, ids=lambda file: file.stem)
def test_a_file_is_a_run_and_says_how_to_make_it(file):
    verb = Rewrite if file.parent.name == "rewriting" else Train.chosen([str(file)])
    run = parse(verb, [str(file)], verb.VERB)
    assert run.name == file.stem
    assert math.isfinite(run.privacy.epsilon) or "without privacy" in head(file)
    assert f"dpnlp {verb.VERB} {file.relative_to(CONFIGS.parent)}" in file.read_text(encoding="utf-8")


@pytest.mark.parametrize("file", GRIDS, ids=lambda file: file.stem)
def test_a_grid_goes_over_every_epsilon_and_says_how_to_make_it(file):
    runs = list(planned(file, Path("runs")))
    assert len({run.name for run in runs}) == len(runs)
    assert len({run.privacy.epsilon for run in runs}) > 2 or "without privacy" in head(file)
    assert f"dpnlp sweep {file.relative_to(CONFIGS.parent)}" in file.read_text(encoding="utf-8")
