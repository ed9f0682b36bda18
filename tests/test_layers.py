"""Who may import whom, read from the syntax tree of every file: data goes one way, and only the command line wires."""

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src"

VOCABULARY = {"checks", "events", "guarantee"}
KEEPING = {"atomic", "home", "foreign"}
MATERIAL = {"data", "models", "metrics"}
ENGINE = {"accounting", "mechanisms", "training"}
MAY_IMPORT = {
    "__init__": set(),
    "__main__": {"cli"},
    "checks": set(),
    "events": {"checks"},
    "guarantee": {"checks"},
    "bookkeeping": set(),
    "dropout": set(),
    "atomic": {"checks"},
    "home": {"checks", "atomic", "foreign"},
    "foreign": {"checks"},
    "accounting": VOCABULARY | KEEPING,
    "mechanisms": VOCABULARY,
    "data": VOCABULARY | KEEPING | {"accounting"},
    "models": {"checks", "guarantee", "bookkeeping", "dropout"} | KEEPING,
    "metrics": {"checks", "guarantee"},
    "tasks": {"checks", "guarantee", "foreign"} | MATERIAL,
    "training": VOCABULARY | KEEPING | {"accounting", "mechanisms", "bookkeeping", "dropout"},
    "rewriting": VOCABULARY | KEEPING | MATERIAL | ENGINE | {"dropout", "tasks", "runs"},
    "federated": VOCABULARY | ENGINE | {"bookkeeping"},
    "audit": VOCABULARY | KEEPING | MATERIAL | ENGINE | {"tasks", "rewriting", "federated", "runs"},
    "demo": {"checks", "data", "models", "tasks", "audit"},
    "runs": VOCABULARY | KEEPING | {"accounting"} | MATERIAL,
    "cli": VOCABULARY | KEEPING | MATERIAL | ENGINE | {"tasks", "rewriting", "federated", "audit", "demo", "runs"},
}
"""Each part of dpnlp, that is, each file or folder in it, and the other parts that it may import."""

WITHOUT_JAX = {"checks", "events", "guarantee", "atomic", "home", "foreign", "accounting", "mechanisms"}
JAX = {"jax", "jaxlib", "flax", "optax", "orbax", "jax_privacy"}
EMPTY_NAMES = {"utils", "util", "helpers", "helper", "misc", "common"}


def imports(tree: ast.AST) -> list[tuple[int, str]]:
    """Every import with its line: what is imported from a package by name counts as a module of it."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            origin = "." * node.level + (node.module or "")
            joint = "" if origin.endswith(".") else "."
            found += [(node.lineno, f"{origin}{joint}{alias.name}") for alias in node.names]
    return found


def wrong_import(part: str, name: str) -> str:
    """What is wrong with a part importing this, or nothing."""
    if name.startswith("."):
        return f"{name} is a relative import; write dpnlp.… in full"
    root, _, rest = name.partition(".")
    if root in JAX and part in WITHOUT_JAX:
        return f"{part} must do without JAX, but imports {name}"
    other = rest.partition(".")[0]
    if root != "dpnlp" or other == part or other in MAY_IMPORT.get(part, set()):
        return ""
    return f"{part} must not import {name}"


def violations(source: Path) -> list[str]:
    """A sentence for every breach of the rules in the package under this folder."""
    found = []
    for path in sorted((source / "dpnlp").rglob("*.py")):
        place, parts = path.relative_to(source).as_posix(), path.relative_to(source / "dpnlp").with_suffix("").parts
        found += [f"{place}: the name {name} says nothing; name what it does" for name in EMPTY_NAMES & set(parts)]
        if parts[0] not in MAY_IMPORT:
            found.append(f"{place}: {parts[0]} is a new part; add it to MAY_IMPORT, with what it may import")
            continue
        for line, name in imports(ast.parse(path.read_text(encoding="utf-8"))):
            if wrong := wrong_import(parts[0], name):
                found.append(f"{place}:{line}: {wrong}")
    return found


def test_every_part_imports_only_what_it_may():
    assert violations(SOURCE) == []


def test_there_is_something_to_read():
    assert len(list((SOURCE / "dpnlp").rglob("*.py"))) > 20


def test_the_table_has_no_circle():
    """Each part stands only on parts that are complete without it."""
    done: set[str] = set()
    while ready := {part for part, others in MAY_IMPORT.items() if part not in done and others <= done}:
        done |= ready
    assert done == set(MAY_IMPORT)


@pytest.mark.parametrize(
    ("part", "never"),
    [
        ("accounting", {"mechanisms", "training"}),
        ("mechanisms", {"accounting", "training"}),
        ("data", {"training", "tasks", "rewriting", "federated", "audit", "runs", "cli"}),
        ("models", {"training", "tasks", "rewriting", "federated", "audit", "runs", "cli", "data"}),
        ("metrics", {"training", "tasks", "rewriting", "federated", "audit", "runs", "cli"}),
        ("tasks", {"training", "rewriting", "federated", "audit", "runs", "cli"}),
        ("training", {"tasks", "models", "data", "metrics", "federated"}),
        ("federated", {"tasks", "models", "data", "metrics"}),
        ("runs", {"tasks", "rewriting", "audit", "cli"}),
    ],
)
def test_the_table_says_what_the_design_says(part, never):
    assert MAY_IMPORT[part].isdisjoint(never)


@pytest.mark.parametrize(("part", "importers"), [("cli", ["__main__"]), ("demo", ["cli"]), ("__main__", [])])
def test_what_stands_on_top_is_imported_only_by_what_starts_it(part, importers):
    assert [other for other, others in MAY_IMPORT.items() if part in others] == importers


@pytest.mark.parametrize(
    ("path", "code", "sentence"),
    [
        ("checks.py", "from dpnlp.events import Event", ":1: checks must not import dpnlp.events.Event"),
        ("checks.py", "import dpnlp.events", ":1: checks must not import dpnlp.events"),
        ("guarantee.py", "from dpnlp import checks, events", ":1: guarantee must not import dpnlp.events"),
        ("events.py", "from dpnlp import *", ":1: events must not import dpnlp.*"),
        ("accounting/rdp.py", "import jax.numpy as jnp", ":1: accounting must do without JAX, but imports jax.numpy"),
        ("mechanisms/a.py", "from jax import random", ":1: mechanisms must do without JAX, but imports jax.random"),
        ("mechanisms/a.py", "import dpnlp.accounting", ":1: mechanisms must not import dpnlp.accounting"),
        ("training/step.py", "from dpnlp.models.t5 import T5", ":1: training must not import dpnlp.models.t5.T5"),
        ("data/text.py", "def f():\n    import dpnlp.cli.main", ":2: data must not import dpnlp.cli.main"),
        ("runs/a/b.py", "\n\nfrom dpnlp import training", ":3: runs must not import dpnlp.training"),
        (
            "accounting/pld.py",
            "from .rdp import no_bound",
            ":1: .rdp.no_bound is a relative import; write dpnlp.… in full",
        ),
        ("cli/main.py", "from . import config", ":1: .config is a relative import; write dpnlp.… in full"),
        ("__init__.py", "from dpnlp import checks", ":1: __init__ must not import dpnlp.checks"),
        ("data/utils.py", "", ": the name utils says nothing; name what it does"),
        ("data/common/text.py", "", ": the name common says nothing; name what it does"),
        ("novelty/a.py", "import jax", ": novelty is a new part; add it to MAY_IMPORT, with what it may import"),
        ("novelty.py", "", ": novelty is a new part; add it to MAY_IMPORT, with what it may import"),
    ],
)
def test_a_breach_is_reported(tmp_path, path, code, sentence):
    planted = tmp_path / "dpnlp" / path
    planted.parent.mkdir(parents=True)
    planted.write_text(code, encoding="utf-8")
    assert violations(tmp_path) == [f"dpnlp/{path}{sentence}"]


def test_what_is_allowed_is_not_reported(tmp_path):
    for path, code in {
        "accounting/rdp.py": "import math, numpy as np\nfrom dpnlp import checks\nfrom dpnlp.accounting import pld",
        "training/step.py": "import jax\nfrom dpnlp.mechanisms.gaussian import Gaussian",
        "cli/train.py": "from dpnlp.runs.record import Record\nfrom dpnlp.cli.config import Config",
        "tasks/translation.py": "from dpnlp.metrics import bleu\nimport jax_like, dpnlpx.cli",
    }.items():
        (tmp_path / "dpnlp" / path).parent.mkdir(parents=True)
        (tmp_path / "dpnlp" / path).write_text(code, encoding="utf-8")
    assert violations(tmp_path) == []
