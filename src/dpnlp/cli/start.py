"""What a run starts from: a model, and which of it is trained; and how an earlier run read its texts."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dpnlp.checks import BadInput
from dpnlp.cli.config import C, from_dict
from dpnlp.runs.folder import CONFIG, Run

PUBLIC = "Say that weights, tokenizer or encoder it starts from were made of public data alone, where nothing tells"


@dataclass(frozen=True)
class Start:
    """A model to be trained."""

    model: Any
    trains: Any  # which of its parameters


def data_of(run: Run, task: str, settings: type[C]) -> C:
    """How a run read its texts, if it learned this task."""
    if (learned := run.config.get("task", "translation")) != task:
        raise BadInput(f"task = {task}: the run in {run.path} has learned {learned}; leave --task out.")
    place, data = run.path / CONFIG, run.config.get("data")
    if not isinstance(data, Mapping):
        raise BadInput(f"{place}: it does not say under data how texts are read; restore the file that the run wrote.")
    try:
        return from_dict(settings, data)
    except BadInput as error:
        raise BadInput(f"{place}: data: {error}") from None
