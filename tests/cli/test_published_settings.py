"""The files under configs/ are settings that the command takes."""

from pathlib import Path

import pytest

from dpnlp.cli.config import parse
from dpnlp.cli.sweep import planned
from dpnlp.cli.train import Train

CONFIGS = Path(__file__).parents[2] / "configs"
GRIDS = sorted(CONFIGS.rglob("*-grid.yaml"))
SETTINGS = sorted(set(CONFIGS.rglob("*.yaml")) - set(GRIDS))


@pytest.mark.parametrize("file", SETTINGS, ids=lambda file: file.stem)
def test_a_file_is_a_run_and_says_how_to_make_it(file):
    run = parse(Train.chosen([str(file)]), [str(file)], "train")
    assert run.name == file.stem
    assert run.privacy.is_private
    assert f"dpnlp train {file.relative_to(CONFIGS.parent)}" in file.read_text(encoding="utf-8")


@pytest.mark.parametrize("file", GRIDS, ids=lambda file: file.stem)
def test_a_grid_goes_over_every_epsilon_and_says_how_to_make_it(file):
    runs = list(planned(file, Path("runs")))
    assert len({run.name for run in runs}) == len(runs)
    assert len({run.privacy.epsilon for run in runs}) > 2
    assert f"dpnlp sweep {file.relative_to(CONFIGS.parent)}" in file.read_text(encoding="utf-8")
