"""A bidirectional LSTM (Hochreiter and Schmidhuber 1997; Graves and Schmidhuber 2005) on the states of a text's tokens.

Each direction is a `layers.LSTM`: one product for the inputs of all steps, then a scan. Where the mask is 0 the state
stays as it is, so that the backward direction starts at the last real token, wherever the padding is.
"""

import jax.numpy as jnp
from flax import nnx

from dpnlp import checks
from dpnlp.bookkeeping import Array
from dpnlp.models.layers import LSTM


class BiLSTM(nnx.Module):
    """One LSTM reads the text forwards and another one backwards; a token's state is both of theirs."""

    def __init__(self, inputs: int, hidden: int, *, rngs: nnx.Rngs) -> None:
        checks.count("hidden", hidden)
        self.forward = LSTM(inputs, hidden, rngs=rngs)
        self.backward = LSTM(inputs, hidden, reverse=True, rngs=rngs)

    def __call__(self, x: Array, mask: Array) -> Array:
        """[batch, length, inputs] and the mask [batch, length] -> [batch, length, 2·hidden]."""
        return jnp.concatenate([self.forward(x, mask), self.backward(x, mask)], axis=-1)


def remembering(inputs: int, hidden: int, *, rngs: nnx.Rngs) -> LSTM:
    """An LSTM whose forget gates start open, with a bias of 1, so that a text is not forgotten before it is learned."""
    lstm = LSTM(inputs, hidden, rngs=rngs)
    bias = lstm.input.bias
    assert bias is not None
    bias.value.set_value(bias.value[...].at[hidden : 2 * hidden].set(1.0))
    return lstm


def mean(states: Array, mask: Array) -> Array:  # [batch, length, width] -> [batch, width]
    """The mean of the states of a text's real tokens, in float32."""
    real = mask[..., None] > 0
    total = jnp.sum(jnp.where(real, states.astype(jnp.float32), 0), axis=1)
    return total / jnp.maximum(jnp.sum(real, axis=1), 1)
