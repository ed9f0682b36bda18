"""Graph convolutional networks (Kipf and Welling 2017, arXiv 1609.02907), on graphs of different sizes side by side.

A batch holds graphs that know nothing of each other: `features` [batch, nodes, features] and `edges` [batch, edges, 2],
undirected, each once and without loops. An edge with an end outside the graph is padding, and carries nothing.
"""

import itertools
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from flax import nnx

from dpnlp import checks
from dpnlp.bookkeeping import Array
from dpnlp.models.layers import Dropout, Linear, relu


@dataclass(frozen=True)
class Config:
    """The shape of a network. `hops` says how often each layer averages over neighbours.

    2 layers of 1 hop are the network of Kipf and Welling, and 1 layer of k hops is that of Wu et al. (2019), Âᵏ X W.
    Without hops no message is passed, and the network is a plain one for each node by itself.
    """

    features: int
    classes: int
    hidden: int = 32
    layers: int = 2
    hops: int = 1
    dropout: float = 0.5

    def __post_init__(self) -> None:
        for name in ("features", "hidden", "layers"):
            checks.count(name, getattr(self, name))
        checks.count("classes", self.classes, least=2)
        checks.count("hops", self.hops, least=0)


class GCN(nnx.Module):
    """H^(l+1) = σ(Â H^(l) Φ^(l)), with Â = D̂^−½ (A + I) D̂^−½ and D̂ the degrees of A + I (Eqn 2); there is no bias."""

    def __init__(self, config: Config, *, rngs: nnx.Rngs) -> None:
        self.config = config
        widths = [config.features, *[config.hidden] * (config.layers - 1), config.classes]
        self.linear = nnx.List(
            Linear(inputs, outputs, bias=False, rngs=rngs) for inputs, outputs in itertools.pairwise(widths)
        )
        self.dropout = Dropout(config.dropout)

    def __call__(self, batch: dict[str, Array]) -> Array:  # {features, edges} -> [batch, nodes, classes]
        states, edges = batch["features"], batch["edges"]
        for number, linear in enumerate(self.linear):
            states = linear(self.dropout(relu(states) if number else states))
            for _ in range(self.config.hops):
                states = averaged(states, edges)
        return states


@jax.vmap
def averaged(states: Array, edges: Array) -> Array:  # [nodes, width], [edges, 2] -> [nodes, width]
    """Â H, each graph by itself, at a cost that grows with the edges."""
    nodes = len(states)
    first, second = edges.T
    real = (first < nodes) & (second < nodes)
    first, second = (jnp.where(real, end, nodes) for end in (first, second))  # where nothing is written to
    ends = jnp.concatenate([first, second])
    shrunk = jax.lax.rsqrt(jnp.ones(nodes).at[ends].add(1.0, mode="drop"))[:, None].astype(states.dtype)  # D̂^−½
    sent = shrunk * states
    messages = jnp.take(sent, jnp.concatenate([second, first]), axis=0, mode="fill", fill_value=0)
    return shrunk * sent.at[ends].add(messages, mode="drop")
