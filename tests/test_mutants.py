"""The planted defects still fit the code that they are planted into."""

import tomllib
from collections import Counter
from pathlib import Path

import pytest

from . import mutants

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("defect", mutants.DEFECTS, ids=lambda defect: defect.what)
def test_a_planted_defect_has_its_place(defect):
    assert (ROOT / "src" / "dpnlp" / defect.file).read_text(encoding="utf-8").count(defect.old) == 1
    for test in defect.tests:
        name, _, function = test.partition("::")
        path = ROOT / "tests" / name
        assert path.exists()
        assert not function or f"def {function}" in path.read_text(encoding="utf-8")


def test_no_defect_is_planted_twice():
    assert [what for what, count in Counter(defect.what for defect in mutants.DEFECTS).items() if count > 1] == []


def test_a_survivor_that_is_explained_is_still_there():
    for survivor in tomllib.loads((ROOT / "tests" / "survivors.toml").read_text()).get("survivor", []):
        assert survivor.keys() == {"file", "old", "new", "why"}
        lines = (ROOT / "src" / "dpnlp" / survivor["file"]).read_text(encoding="utf-8").splitlines()
        assert survivor["old"] in " ".join(line.strip() for line in lines), survivor
