"""A model taken apart and put together again is the same model."""

import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from dpnlp.checks import BadInput
from dpnlp.models.layers import Embedding, Linear
from dpnlp.training.parameters import apart

from .networks import Zoo, tagger_case, translator_case
from .oracle import assert_same, flat


class Shared(nnx.Module):
    """One table under two names, and layers in a list."""

    def __init__(self, rngs):
        self.source = Embedding(5, 4, rngs=rngs)
        self.target = self.source
        self.layers = nnx.List([Linear(4, 4, rngs=rngs), Linear(4, 4, bias=False, rngs=rngs)])
        self.count = nnx.Variable(jnp.zeros(()))


def test_parameters_are_named_by_their_path_and_a_shared_one_stands_once():
    parts = apart(Shared(nnx.Rngs(0)))
    assert sorted(parts.parameters) == [
        "layers.0.bias.value",
        "layers.0.kernel",
        "layers.1.kernel",
        "source.table",
    ]


def test_a_shared_parameter_is_still_one_when_put_together():
    parts = apart(Shared(nnx.Rngs(0)))
    model = parts.model(parts.parameters | {"source.table": jnp.full((5, 4), 7.0)})
    assert model.source is model.target
    assert (model.target.table[...] == 7).all()


def test_taking_apart_and_putting_together_gives_the_same_outputs():
    model, loss, batch = translator_case(3, 4, 4, 7, 0)
    parts = apart(model)
    again = parts.model()
    assert again is not model
    assert_same(flat(again), flat(model))
    np.testing.assert_array_equal(loss(again, batch), loss(model, batch))


def test_other_parameters_take_their_places():
    model, _, _ = tagger_case(2, 3, 4, 5, 0)
    parts = apart(model)
    doubled = {name: 2 * value for name, value in parts.parameters.items()}
    before = flat(model)
    assert_same(flat(parts.model(doubled)), {name: 2 * value for name, value in before.items()})
    assert_same(flat(model), before)


@pytest.mark.parametrize(
    ("trains", "names"),
    [
        (nnx.LoRAParam, ["adapted.A", "adapted.B"]),
        (lambda path, value: path[0] == "stray", ["stray"]),
        (
            lambda path, value: path[-1] == "scale",
            ["norm.scale", "rms.scale"],
        ),
    ],
)
def test_what_is_not_trained_is_kept_in_the_rest(trains, names):
    model = Zoo(4, nnx.Rngs(0))
    parts = apart(model, trains)
    assert sorted(parts.parameters) == names
    zeroed = flat(parts.model({name: 0 * value for name, value in parts.parameters.items()}))
    for name, value in flat(model).items():
        np.testing.assert_array_equal(zeroed[name], 0 * value if name in names else value)


def test_the_frame_finds_the_trained_variables_of_a_model():
    parts = apart(Shared(nnx.Rngs(0)), lambda path, value: path[-1] == "table")
    model = parts.model()
    assert parts.frame.names(model) == {id(model.source.table): "source.table"}


def test_functions_of_a_model_are_compiled_once_for_each_frame():
    """So a frame can be looked up, and equal models have equal ones."""
    frames = {apart(Shared(nnx.Rngs(seed))).frame for seed in (0, 0, 1)}
    assert len(frames) == 1


def test_nothing_to_train_is_refused():
    with pytest.raises(BadInput) as refusal:
        apart(Shared(nnx.Rngs(0)), nnx.LoRAParam)
    assert str(refusal.value) == (
        "trains = LoRAParam: the model has no such parameter, so that nothing would be trained."
    )
