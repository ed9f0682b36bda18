"""What every file keeps to, read from the syntax tree: docstrings, no forgotten f, no print, no path of one machine."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILES = sorted((ROOT / "src" / "dpnlp").rglob("*.py"))
TEXTS = [*FILES, *sorted((ROOT / "docs").rglob("*.md")), *ROOT.glob("README*")]


def undocumented(tree: ast.Module) -> Iterator[str]:
    """The module, public classes and public functions without a docstring."""
    for node in (tree, *tree.body):
        name = getattr(node, "name", "the module")
        documentable = isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
        if documentable and not name.startswith("_") and not ast.get_docstring(node):
            yield f"{name} has no docstring"


def forgotten_f(tree: ast.Module) -> Iterator[str]:
    """Strings in a raise that hold a {placeholder} as text: it would be shown to the user as it stands."""
    for raised in (node for node in ast.walk(tree) if isinstance(node, ast.Raise)):
        for node in ast.walk(raised):
            text = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
            if re.search(r"\{[a-z_][\w.]*[^{}]*\}", text):
                yield f"line {raised.lineno}: the f is missing before {text!r}"


def prints(tree: ast.Module) -> Iterator[str]:
    """Calls of print."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print":
            yield f"line {node.lineno}: print is for the command line"


def machine_paths(text: str) -> list[str]:
    """Paths that exist on one machine only."""
    return re.findall(r"(?<![\w.~])/(?:work|root|home|Users)/\S*", text)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT / "src").as_posix())
def test_the_style_of_a_file(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    wrong = [*undocumented(tree), *forgotten_f(tree)]
    if not path.is_relative_to(ROOT / "src" / "dpnlp" / "cli"):
        wrong += prints(tree)
    assert wrong == []


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_no_path_of_one_machine(path):
    assert machine_paths(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("rule", "bad", "good"),
    [
        (undocumented, "x = 1", '"""A module."""\ndef _f(): ...'),
        (undocumented, '"""A module."""\ndef f(): ...', '"""A module."""\ndef f():\n    """It is."""'),
        (undocumented, '"""A module."""\nasync def f(): ...', '"""A module."""\nclass A:\n    """It is."""'),
        (undocumented, '"""A module."""\nclass A: ...', '"""A module."""\nclass _A: ...'),
        (forgotten_f, 'raise BadInput("{name} = {value}")', 'raise BadInput(f"{name} = {value}")'),
        (forgotten_f, 'raise BadInput(f"{x}" "{y.z!r}")', 'raise BadInput(f"{x} = {y:.{digits}g}" "{}")'),
        (forgotten_f, 'raise E("no" + "{x:.2f}")', 'help = "{x}"\nraise E("a set {1, 2}")'),
        (prints, "def f():\n    print(1)", "def f():\n    console.print(pprint(1))"),
    ],
)
def test_a_breach_is_reported(rule, bad, good):
    assert len(list(rule(ast.parse(bad)))) == 1
    assert list(rule(ast.parse(good))) == []


def test_a_machine_path_is_reported():
    planted = "see /" + "work/main and `/" + "root/x`, not runs/work/a, ~/work/b or https://a.org/home/c"
    assert machine_paths(planted) == ["/" + "work/main", "/" + "root/x`,"]
