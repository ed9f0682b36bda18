"""One door (law 14), read from the syntax tree: nothing made of data is opened but through `runs.provenance.Door`."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "dpnlp"

OPENS = {
    *("load", "load_reader", "load_language_model", "load_network", "load_autoencoder", "load_tokenizer"),
    *("load_encoder", "load_adapters", "read_vectors", "from_pretrained", "safe_open", "load_file", "tokenizer_in"),
    *("snapshot_download", "hf_hub_download", "pipeline"),
}
"""What reads models, tokenizers, encoders, rewriters, vectors and weights. Handed to the door it is no call."""
BELOW = ("models",)
"""Where these are made; nothing there knows what a thing cost."""
OTHERS = {
    "rewriting/folders.py: import_module(METHODS[method]).load": "what the door itself calls",
    "runs/provenance.py: load": "the door",
    "training/contractions.py: triton.load": "a program for a GPU",
    "training/loop.py: checkpoints.load": "the run's own state, which it refuses if it is another run's",
    "data/corpora/planetoid.py: _Unpickler(file, encoding='latin1').load": "a graph that is published",
    "data/corpora/reddit.py: np.load": "a graph that is published",
    "data/learned.py: np.load": "fingerprints, in the owner's folder",
    "cli/audit.py: folders.load": "a door of its own",
    "cli/rewriting.py: folders.load": "a door of its own",
}
"""Calls of these names that open nothing that was made of somebody's data, or are a door, and why."""


def opened(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """The calls that open something, each with the function that it is in."""
    inside = {}
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef):
            inside |= dict.fromkeys(ast.walk(function), function.name)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, (ast.Name, ast.Attribute)):
            name = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
            if name in OPENS:
                yield ast.unparse(node.func), inside.get(node, "")


def passing_by(package: Path) -> list[str]:
    """What is opened without going through the door."""
    found = []
    for path in sorted(package.rglob("*.py")):
        place = path.relative_to(package).as_posix()
        if place.startswith(BELOW):
            continue
        for call, function in opened(ast.parse(path.read_text(encoding="utf-8"))):
            # A rewriter's own `load` reads the parts of a folder that the door has opened.
            part = place.startswith("rewriting/") and function in ("load", "opened")
            if not part and f"{place}: {call}" not in OTHERS:
                found.append(f"{place}: {call} in {function or 'the module'}")
    return found


def test_nothing_made_of_data_is_opened_but_through_the_door():
    assert passing_by(PACKAGE) == []


@pytest.mark.parametrize(
    ("place", "code"),
    [
        ("cli/a.py", "from dpnlp.models.pretrained import load\ndef f(x):\n    return load(x)"),
        ("cli/a.py", "def f(x):\n    return SentenceEncoder.load(x)"),
        (
            "tasks/a.py",
            "def f(x):\n    return AutoTokenizer.from_pretrained(x)",
        ),
        ("rewriting/a.py", "def rewrite(x):\n    return load_file(x)"),
        ("audit/a.py", "vectors = read_vectors('glove.txt')"),
    ],
)
def test_whoever_passes_by_the_door_is_noticed(tmp_path, place, code):
    (tmp_path / place).parent.mkdir()
    (tmp_path / place).write_text(code, encoding="utf-8")
    assert len(passing_by(tmp_path)) == 1


def test_what_is_handed_to_the_door_is_not():
    assert list(opened(ast.parse("door.open(load, source)\ndoor.open(SentenceEncoder.load, source)"))) == []


def test_the_exceptions_are_still_there():
    calls = {
        f"{path.relative_to(PACKAGE).as_posix()}: {call}"
        for path in PACKAGE.rglob("*.py")
        for call, _ in opened(ast.parse(path.read_text(encoding="utf-8")))
    }
    assert calls >= {*OTHERS}
