"""Adapters of low rank (Hu et al. 2021, arXiv 2106.09685): a large model is trained through a few small matrices.

`adapt` puts them into a model, a run that trains `ADAPTERS` trains nothing else, and `merge` folds them into the
weights, so that what is saved is an ordinary model.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from dpnlp import checks
from dpnlp.bookkeeping import Array
from dpnlp.checks import BadInput
from dpnlp.models.freezing import dotted, matching
from dpnlp.models.layers import Linear, times

ADAPTERS = nnx.LoRAParam
"""What a run trains that trains only adapters."""


class LoRA(nnx.Module):
    """y = xW + b + (α/r) xAB with A and B of rank r. B is zero at first, so that nothing changes."""

    def __init__(self, base: Linear, rank: int, *, alpha: float = 16.0, rngs: nnx.Rngs) -> None:
        inputs, outputs = base.kernel.shape
        self.base = base
        self.A = nnx.LoRAParam(jax.random.normal(rngs.params(), (inputs, rank)) / math.sqrt(inputs))
        self.B = nnx.LoRAParam(jnp.zeros((rank, outputs)))
        self.rank, self.alpha = rank, alpha

    def __call__(self, x: Array) -> Array:  # [batch, …, inputs] -> [batch, …, *outputs]
        y = self.base(x)
        return y + self.scale * times(times(x, self.A), self.B).reshape(y.shape)

    @property
    def scale(self) -> float:
        """α/r."""
        return self.alpha / self.rank

    def weight(self) -> Array:  # [inputs, outputs]
        """W + (α/r) AB, in the type of W."""
        change = jnp.matmul(self.A[...], self.B[...], precision=jax.lax.Precision.HIGHEST)
        return (self.base.kernel[...] + self.scale * change).astype(self.base.kernel.dtype)

    def merged(self) -> Linear:
        """The layer alone, with W + (α/r) AB for its weight W from now on."""
        self.base.kernel.set_value(self.weight())
        return self.base


def adapt(
    model: nnx.Module,
    rank: int,
    *,
    alpha: float = 16.0,
    where: Sequence[str] = ("query", "value"),
    rngs: nnx.Rngs,
) -> list[str]:
    """Puts adapters around the linear layers that the patterns `where` name, and says which these are.

    A pattern is one of `freezing`; by default those that make queries and values of attention are adapted.
    """
    checks.count("rank", rank)
    checks.positive("alpha", alpha)
    layers = linear(model)
    chosen = sorted(matching("where", where, layers))
    _replace(model, {id(layers[name]): LoRA(layers[name], rank, alpha=alpha, rngs=rngs) for name in chosen})
    return chosen


def merge(model: nnx.Module) -> None:
    """Takes all adapters out of a model, which computes the same without them."""
    _replace(model, {id(layer): layer.merged() for layer in adapted(model).values()})


def adapted(model: nnx.Module) -> dict[str, LoRA]:
    """The layers that have adapters, by the names that they have without them too."""
    return dict(_modules(model, LoRA))


def linear(model: nnx.Module) -> dict[str, Linear]:
    """The linear layers of a model, by name: those that can be adapted, if none is yet."""
    if adapted(model):
        raise BadInput("adapters: the model has some already; merge them before it gets others.")
    return dict(_modules(model, Linear))


def _modules(model: nnx.Module, kind: type[Any]) -> Iterator[tuple[str, Any]]:
    """The parts of a model that are of this kind, each under one name."""
    return ((dotted(path), node) for path, node in nnx.graph.iter_graph(model) if isinstance(node, kind))


def _replace(model: nnx.Module, others: Mapping[int, nnx.Module]) -> None:
    """Puts other modules in the place of some, given by identity, wherever they are used."""
    for _, parent in list(_modules(model, nnx.Module)):
        children: Any
        put: Callable[[Any, nnx.Module], None]
        if isinstance(parent, nnx.List):
            children, put = enumerate(parent), parent.__setitem__
        else:
            children, put = vars(parent).items(), parent.__setattr__
        for key, child in list(children):
            if id(child) in others:
                put(key, others[id(child)])
