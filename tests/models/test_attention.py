"""Which kernel attention runs in, and that it makes no difference but time."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from dpnlp import dropout
from dpnlp.models import attention

GPU = jax.devices()[0].device_kind.startswith("NVIDIA")


@pytest.fixture
def on_a_gpu(monkeypatch):
    monkeypatch.setattr(jax, "devices", lambda: [SimpleNamespace(device_kind="NVIDIA H200")])


def states(queries=128, keys=128, width=64, dtype=jnp.bfloat16):
    return jnp.zeros((2, queries, 3, width), dtype), jnp.zeros((2, keys, 3, width), dtype)


@pytest.mark.parametrize("shape", [{}, {"queries": 512}, {"width": 128}, {"dtype": jnp.float16}])
def test_long_texts_go_to_the_fused_kernel(on_a_gpu, shape):
    assert attention.fused(*states(**shape), None)


@pytest.mark.parametrize(
    "shape", [{"queries": 64}, {"keys": 64}, {"keys": 129}, {"width": 130}, {"width": 20}, {"dtype": jnp.float32}]
)
def test_what_the_fused_kernel_is_slower_at_or_cannot_do_stays_with_xla(on_a_gpu, shape):
    assert not attention.fused(*states(**shape), None)


def test_a_bias_stays_with_xla(on_a_gpu):
    assert not attention.fused(*states(), jnp.zeros((1, 3, 128, 128)))


def test_another_device_stays_with_xla(monkeypatch):
    monkeypatch.setattr(jax, "devices", lambda: [SimpleNamespace(device_kind="cpu")])
    assert not attention.fused(*states(), None)


def test_what_attention_drops_does_not_depend_on_how_far_a_text_is_padded():
    layer = attention.Attention(12, 3, 4, bias=True, scale=0.5, dropout=0.5, rngs=nnx.Rngs(0))
    x, keys = jax.random.normal(jax.random.key(1), (4, 9, 12)), jax.random.split(jax.random.key(0), 4)

    @jax.jit
    def states(x):
        with dropout.dropping(keys):
            return layer(x, layer.keys_values(x), attention.real(jnp.arange(x.shape[1])[None] < 5))

    np.testing.assert_allclose(states(x)[:, :5], states(x[:, :5]), rtol=1e-5, atol=1e-6)


@pytest.mark.skipif(not GPU, reason="needs an NVIDIA GPU")
@pytest.mark.parametrize("causal", [False, True])
def test_the_fused_kernel_gives_the_same_states_and_gradients(monkeypatch, causal):
    layer = attention.Attention(192, 3, 64, bias=True, scale=attention.scaled(64), rngs=nnx.Rngs(0))
    x = jax.random.normal(jax.random.key(1), (4, 128, 192), jnp.bfloat16)
    mask = attention.real(jnp.arange(128)[None] < jnp.asarray([128, 70, 3, 0])[:, None])
    if causal:
        mask &= attention.past(jnp.arange(128), 128)

    def both():
        def loss(x):
            found = layer(x, layer.keys_values(x), mask)[:3]  # the last one has nothing to look at
            return jnp.sum(jnp.sin(found.astype(jnp.float32))), found

        gradient, found = jax.jit(jax.grad(loss, has_aux=True))(x)
        return [np.asarray(value, np.float32) for value in (gradient, found)]

    assert attention.fused(*states(), None)
    ours = both()
    monkeypatch.setattr(attention, "fused", lambda *_: False)
    for fused, plain in zip(ours, both(), strict=True):
        assert np.linalg.norm(fused - plain) < 0.02 * np.linalg.norm(plain)
