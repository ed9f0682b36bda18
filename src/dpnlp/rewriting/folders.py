"""A rewriter in a folder: rewriter.json says which method it is, and provenance.json what it was made of."""

import json
from importlib import import_module
from pathlib import Path

from dpnlp.checks import BadInput
from dpnlp.foreign import parse_json, text_in
from dpnlp.mechanisms.randomness import OS_ENTROPY, Source
from dpnlp.rewriting.base import Rewriter
from dpnlp.runs.provenance import Door

METHODS = {
    "adept": "dpnlp.rewriting.adept",
    "dp-bart": "dpnlp.rewriting.dp_bart",
    "echo": "dpnlp.rewriting.echo",
    "noisy-echo": "dpnlp.rewriting.noisy_echo",
    "retell": "dpnlp.rewriting.retell",
    "sampling": "dpnlp.rewriting.clipped_sampling",
    "words": "dpnlp.rewriting.word_metric",
}
"""The module of each method; it has `load(folder, epsilon, delta, source)`, and is imported when it is used."""

_NAME = "rewriter.json"


def describe(folder: Path, method: str) -> None:
    """Writes what the folder is; it comes last, so that a folder with it is whole."""
    (folder / _NAME).write_text(json.dumps({"method": method}, indent=2) + "\n", encoding="utf-8")


def load(folder: Path, epsilon: float, delta: float = 0.0, source: Source = OS_ENTROPY) -> Rewriter:
    """The rewriter in a folder, at this ε and δ, with what it was made of."""
    door = Door()
    return door.open(_load, folder, epsilon, delta, source).made_of(door.provenance)


def _load(folder: Path, epsilon: float, delta: float, source: Source) -> Rewriter:
    method = _described(folder)["method"]
    if method not in METHODS:
        raise BadInput(f"{folder / _NAME}: method = {method}: it must be one of {', '.join(METHODS)}.")
    found: Rewriter = import_module(METHODS[method]).load(folder, epsilon, delta, source)
    return found


def method_of(folder: Path) -> str:
    """The name of the method in a folder."""
    return str(_described(folder)["method"])


def _described(folder: Path) -> dict[str, str]:
    try:
        entry = parse_json(text_in(folder / _NAME))
    except OSError:
        raise BadInput(
            f"{folder}: there is no rewriter in it, for it has no {_NAME}; dpnlp pretrain makes one."
        ) from None
    except ValueError:
        entry = None
    if not isinstance(entry, dict) or not isinstance(entry.get("method"), str):
        raise BadInput(f"{folder / _NAME}: it does not say what the rewriter is; make the rewriter again.")
    return entry
