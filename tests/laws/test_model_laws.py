"""Law 4 in every architecture: an example's loss is its own, whoever shares its batch and however it is padded."""

import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from dpnlp.models import bart, m2m100, marian, t5
from dpnlp.models.cross_entropy import losses
from dpnlp.models.seq2seq import shifted

VOCABULARY = 29
SHAPE = {"width": 8, "encoder_layers": 2, "decoder_layers": 1, "positions": 10}
SHAPE |= {f"{side}_{part}": size for side in ("encoder", "decoder") for part, size in (("heads", 2), ("hidden", 12))}
T5 = {"width": 8, "heads": 2, "head_width": 4, "hidden": 12, "encoder_layers": 2, "decoder_layers": 1}

MODELS = {
    "T5": (t5.T5, t5.Config(VOCABULARY, **T5, buckets=4, furthest=6)),
    "mT5": (t5.T5, t5.Config(VOCABULARY, **T5, buckets=4, furthest=6, tied=False, gated=True)),
    "BART": (bart.BART, bart.Config(VOCABULARY, **SHAPE)),
    "mBART": (bart.BART, bart.Config(VOCABULARY, **SHAPE, norm_first=True, scaled=True)),
    "Marian": (marian.Marian, marian.Config(VOCABULARY, **SHAPE, decoder_vocabulary=VOCABULARY, tied=False)),
    "M2M100": (m2m100.M2M100, m2m100.Config(VOCABULARY, **SHAPE)),
}


def texts():
    """Three pairs of different lengths."""
    rng = np.random.default_rng(0)
    (ids, targets), lengths = rng.integers(3, VOCABULARY, (2, 3, 5)), np.array([[5], [4], [3]])
    mask = jnp.arange(5) < lengths
    ids, targets = jnp.asarray(ids), jnp.asarray(targets)
    return {"ids": ids, "mask": mask, "inputs": shifted(targets, 2), "targets": targets, "target_mask": mask}


@pytest.mark.parametrize("name", MODELS)
def test_law_4_batchmates_and_padding_change_nothing(name):
    make, config = MODELS[name]
    model, batch, computed = make(config, rngs=nnx.Rngs(0)), texts(), nnx.jit(losses)
    together = computed(model, batch)
    assert len(set(map(float, together))) == 3
    junk = {key: jnp.pad(a, ((0, 0), (0, 3)), constant_values=0 if "mask" in key else 7) for key, a in batch.items()}
    np.testing.assert_allclose(computed(model, junk), together, rtol=1e-5)
    others = {key: a.at[1:].set(a[1:][::-1]) for key, a in batch.items()}
    np.testing.assert_allclose(computed(model, others)[0], together[0], rtol=1e-6)
    np.testing.assert_allclose(computed(model, {key: a[1:2] for key, a in batch.items()})[0], together[1], rtol=1e-5)
