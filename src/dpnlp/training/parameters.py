"""A model taken apart: the parameters that a run trains, by name, and the frame that they are put back into."""

from dataclasses import dataclass
from typing import Any, NamedTuple

from flax import nnx

from dpnlp.bookkeeping import Array
from dpnlp.checks import BadInput

Parameters = dict[str, Array]
"""Trained parameters by name, such as "encoder.0.query.kernel". One that is shared stands under its first name."""

Filter = nnx.filterlib.Filter
"""Which parameters are trained: a type of variable, or a predicate of path and variable."""


@dataclass(frozen=True)
class Frame:
    """All of a model that is fixed when a function of it is compiled. `paths` lead to what is trained."""

    structure: nnx.GraphDef[nnx.Module]
    paths: tuple[tuple[Any, ...], ...]

    def names(self, model: nnx.Module) -> dict[int, str]:
        """The trained variables of a model in this frame, by identity."""
        paths = set(self.paths)
        return {id(node): _name(path) for path, node in nnx.graph.iter_graph(model) if path in paths}


class Parts(NamedTuple):
    """A model taken apart. `rest` is the state that is not trained."""

    frame: Frame
    parameters: Parameters
    rest: Any

    def model(self, parameters: Parameters | None = None) -> nnx.Module:
        """The model put together again, with these parameters or its own."""
        chosen = self.parameters if parameters is None else parameters
        trained = nnx.from_flat_state([(path, chosen[_name(path)]) for path in self.frame.paths])
        return nnx.merge(self.frame.structure, trained, self.rest)


def apart(model: nnx.Module, trains: Filter = nnx.Param) -> Parts:
    """The model's frame, the parameters that `trains` selects, and the rest of its state."""
    structure, *states = nnx.split(model, trains, ...)
    trained, rest = states
    flat = nnx.to_flat_state(trained)
    if not flat:
        name = getattr(trains, "__name__", trains)
        raise BadInput(f"trains = {name}: the model has no such parameter, so that nothing would be trained.")
    parameters = {_name(path): variable[...] for path, variable in flat}
    return Parts(Frame(structure, tuple(path for path, _ in flat)), parameters, rest)


def _name(path: tuple[Any, ...]) -> str:
    return ".".join(map(str, path))
