"""Patterns name the parameters that they should, and what is frozen costs nothing and stays as it is."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from dpnlp.accounting.subsampling import Schedule
from dpnlp.checks import BadInput
from dpnlp.data.arrays import Arrays
from dpnlp.guarantee import Adjacency
from dpnlp.mechanisms.randomness import FixedSeed
from dpnlp.models import lora
from dpnlp.models.cross_entropy import losses
from dpnlp.models.freezing import summary, trained
from dpnlp.models.t5 import T5, Config
from dpnlp.training import Clipping, Options, Plan, Secret, clipping, train
from dpnlp.training.parameters import apart
from dpnlp.training.sampling import Lots

from ..training.oracle import assert_same, flat, follow

RNG = np.random.default_rng(0)
TEXTS = {name: RNG.integers(1, 19, (8, 4)) for name in ("ids", "inputs", "targets")}
BATCH = TEXTS | {name: np.ones((8, 4), np.int32) for name in ("mask", "target_mask")}
DATA = Arrays(BATCH, lengths=np.full(8, 4))


def small(encoder=3, decoder=2):
    return T5(Config(19, 8, 2, 4, 12, encoder, decoder, buckets=4, furthest=6), rngs=nnx.Rngs(0))


MODEL = small()
NAMES = sorted(flat(MODEL))


def chosen(model, *patterns):
    return sorted(one.name for one in summary(model, trained(model, *patterns)) if one.trained)


@pytest.mark.parametrize(
    ("patterns", "expression"),
    [
        ((), ".*"),
        ((["encoder.*"],), r"encoder\..*"),
        ((["encoder"],), r"encoder\..*"),
        ((["encoder.2"],), r"encoder\.2\..*"),
        ((["encoder*"],), r"encoder(\.|_norm|_positions).*"),
        ((["*.cross_attention.*"],), r".*\.cross_attention\..*"),
        ((["cross_attention"],), r".*\.cross_attention\..*"),
        (("tokens",), r"tokens\.table"),
        ((["tokens.table", "decoder_norm"],), r"tokens\.table|decoder_norm\.scale"),
        ((["last:2"],), r"encoder\.[12]\..*|decoder\.[01]\..*"),
        ((["last:1"],), r"encoder\.2\..*|decoder\.1\..*"),
        ((["last:9"],), r"(encoder|decoder)\..*"),
        ((["encoder.last:2"],), r"encoder\.[12]\..*"),
        ((["decoder.last:1.self_attention"],), r"decoder\.1\.self_attention\..*"),
        ((["*"], ["encoder*", "tokens"]), r"decoder.*"),
        ((["last:1"], ["*norm*"]), r"(encoder\.2|decoder\.1)\.(feed_forward|self_attention|cross_attention)\..*"),
    ],
)
def test_patterns_name_what_a_regular_expression_names(patterns, expression):
    assert chosen(MODEL, *patterns) == [name for name in NAMES if re.fullmatch(expression, name)]


def test_a_run_trains_what_was_chosen():
    trains = trained(MODEL, ["decoder"], ["cross_attention"])
    parts = apart(MODEL, trains)
    assert sorted(parts.parameters) == chosen(MODEL, ["decoder"], ["cross_attention"])
    np.testing.assert_array_equal(flat(parts.model())["tokens.table"], MODEL.tokens.table[...])


def test_adapters_are_chosen_by_their_names_too():
    model = small(1, 1)
    lora.adapt(model, 2, rngs=nnx.Rngs(1))
    adapters = {one.name for one in summary(model, lora.ADAPTERS) if one.trained}
    assert len(adapters) == 12
    assert set(chosen(model, ["A", "B", "*norm*"])) == adapters | {name for name in flat(model) if "norm" in name}


def test_the_summary_has_every_parameter_with_its_size():
    found = summary(MODEL, trained(MODEL, "decoder"))
    assert {one.name: one.size for one in found} == {name: value.size for name, value in flat(MODEL).items()}
    assert {one.name.split(".")[0] for one in found if one.trained} == {"decoder"}


@pytest.mark.parametrize(
    ("patterns", "sentence"),
    [
        (
            (["encodr"],),
            "trains = 'encodr': nothing in the model is named so; the nearest are encoder, decoder, encoder_norm.",
        ),
        (
            (["*"], ["*.crossattention.*"]),
            "frozen = '*.crossattention.*': nothing in the model is named so; "
            "the nearest are cross_attention, self_attention, cross_norm.",
        ),
        (
            (["decoder.7"],),
            "trains = 'decoder.7': nothing in the model is named so; the nearest are decoder.1, decoder.0, decoder.",
        ),
        (
            (["decoder"], ["last:2", "decoder"]),
            "frozen = last:2, decoder: nothing is left to be trained; freeze less.",
        ),
    ],
)
def test_a_pattern_that_names_nothing_is_refused_with_the_nearest_names(patterns, sentence):
    with pytest.raises(BadInput) as refusal:
        trained(MODEL, *patterns)
    assert str(refusal.value) == sentence


def test_a_frozen_encoder_is_not_differentiated():
    """The clipped sum has none of its gradients, and takes well below the arithmetic of the whole."""
    model = small(3, 1)

    def compiled(*patterns):
        parts = apart(model, trained(model, *patterns))

        def gradients(parameters, batch):
            at = parts._replace(parameters=parameters)
            return clipping.clipped_sum(losses, at, batch, jnp.ones(8), Clipping(1.0)).gradients

        lowered = jax.jit(gradients).lower(parts.parameters, BATCH)
        return set(lowered.out_info), lowered.compile().cost_analysis()["flops"]

    everything, whole = compiled(["*"], ["tokens"])
    rest, less = compiled(["*"], ["tokens", "encoder*"])
    assert rest == {name for name in everything if not name.startswith("encoder")}
    assert less < 0.6 * whole


def run(model, trains, noise_multiplier, optimizer):
    """The names and values of all parameters after two private steps, and the lots that these saw."""
    schedule, secret = Schedule(records=8, lot_size=4, steps=2), Secret.drawn(FixedSeed(0))
    plan = Plan(schedule, Clipping(0.5), noise_multiplier, 1e-3, Adjacency.ADD_REMOVE)
    outcome = train(model, losses, DATA, plan, optimizer, Options(physical_batch=8), trains=trains, secret=secret)
    return flat(outcome.model), [Lots(schedule, secret).draw(step) for step in range(2)]


def test_what_is_frozen_is_unchanged_by_private_steps_and_the_rest_is_not():
    """Noise moves every entry of what is trained, and none of what is not."""
    model = small(1, 1)
    after, _ = run(model, trained(model, ["*"], ["encoder*", "tokens", "*.cross_attention.key"]), 1.0, optax.sgd(0.1))
    frozen = re.compile(r"encoder.*|tokens\.table|decoder\.0\.cross_attention\.key\.kernel")
    for name, before in flat(model).items():
        assert (before != after[name]).mean() == (0 if frozen.fullmatch(name) else 1), name


def test_clipped_steps_are_those_by_hand_in_which_what_is_frozen_has_no_gradient():
    model, optimizer = small(1, 1), optax.sgd(0.1)
    trains = trained(model, ["decoder.*"], ["cross_attention"])
    after, lots = run(model, trains, 0.0, optimizer)

    def by_hand(path, value):
        return path[0] == "decoder" and path[2] != "cross_attention"

    expected = follow(model, losses, DATA, lots, optimizer, 4, 0.5, by_hand, length=4)[-1]
    assert_same({name: after[name] for name in expected}, expected)
    assert {name for name, before in flat(model).items() if (before != after[name]).any()} == set(expected)
