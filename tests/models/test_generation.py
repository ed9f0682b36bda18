"""Generation against transformers' own, token for token; drawing against its distribution; and batches against none."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from flax import nnx
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.extend.core import jaxprs_in_params
from jax.sharding import Mesh
from transformers import generation as hf

from dpnlp.checks import BadInput
from dpnlp.models import generation, t5
from dpnlp.models.generation import Generation, compiled, generate, generate_from, search

from .generation_oracle import VOCABULARY, generated, pair, probabilities, torch

MARKS = {"t5": (0, 1, 0), "mt5": (0, 1, 0)}  # start, end, padding
LENGTH = 10


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    """More would only wait for each other on models as small as these."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def options(kind="mt5", **changes):
    start, end, pad = MARKS.get(kind, (2, 2, 1))
    return Generation(**{"max_length": LENGTH, "start": start, "end": end, "pad": pad} | changes)


def texts(seed=0, lengths=(3, 7, 12, 5, 16, 9)):
    rng = np.random.default_rng(seed)
    return [rng.integers(3, VOCABULARY, length).tolist() for length in lengths]


def drawing_keys(count, seed=0):
    return jax.vmap(lambda index: jax.random.fold_in(jax.random.key(seed), index))(np.arange(count))


def assert_same(ours, theirs, kind="mt5"):
    """What we generate with options of ours is what transformers does with its own. Returns what that is."""
    seen = []
    for seed in range(2):
        their_model, our_model = pair(kind, seed)
        expected = generated(their_model, texts(seed), max_new_tokens=LENGTH, **theirs)
        assert generate(our_model, texts(seed), options(kind, **ours), batch=8) == expected
        seen += expected
    assert len({tuple(text) for text in seen}) > 3
    return seen


@pytest.mark.parametrize("kind", ["mt5", "t5", "bart"])
def test_greedy_texts_are_those_of_transformers(kind):
    assert_same({}, {}, kind)


@pytest.mark.parametrize("kind", ["t5", "bart", "mbart", "marian", "m2m_100"])
def test_beam_search_gives_the_texts_of_transformers_for_every_model(kind):
    assert_same({"beams": 3}, {"num_beams": 3}, kind)


@pytest.mark.parametrize(
    ("beams", "length_penalty", "early_stopping"),
    [
        *((4, 0.6, False), (2, 0.6, True), (4, 0.6, "never"), (2, 1.0, False), (4, 1.0, True), (4, 1.0, "never")),
        *((4, 2.0, False), (4, 2.0, True), (2, 2.0, "never"), (4, -1.0, "never")),
    ],
)
def test_beam_search_gives_the_texts_of_transformers(beams, length_penalty, early_stopping):
    shared = {"length_penalty": length_penalty, "early_stopping": early_stopping}
    found = assert_same(shared | {"beams": beams}, shared | {"num_beams": beams})
    assert length_penalty > 1 or len({len(text) for text in found}) > 2


@pytest.mark.parametrize(
    ("beams", "ours", "theirs"),
    [
        (4, {"forced_first": 5}, {"forced_bos_token_id": 5}),
        (4, {"forced_last": 1}, {"forced_eos_token_id": 1}),
        (1, {"suppressed": tuple(range(10, 40))}, {"suppress_tokens": list(range(10, 40))}),
        (4, {"min_length": 6}, {"min_new_tokens": 6}),
        (1, {"no_repeat_ngram": 1}, {"no_repeat_ngram_size": 1}),
        (4, {"no_repeat_ngram": 2}, {"no_repeat_ngram_size": 2}),
        (4, {"end": (1, 28, 43)}, {"eos_token_id": [1, 28, 43]}),
        *(
            (
                beams,
                {"forced_first": 5, "forced_last": 1, "suppressed": (6, 7), "min_length": 4, "no_repeat_ngram": 3},
                {"forced_bos_token_id": 5, "forced_eos_token_id": 1, "suppress_tokens": [6, 7]}
                | {"min_new_tokens": 4, "no_repeat_ngram_size": 3},
            )
            for beams in (1, 2)
        ),
    ],
)
def test_forced_and_forbidden_tokens_are_those_of_transformers(beams, ours, theirs):
    found = assert_same(ours | {"beams": beams}, theirs | {"num_beams": beams})
    plain = [generated(pair("mt5", seed)[0], texts(seed), max_new_tokens=LENGTH, num_beams=beams) for seed in range(2)]
    assert found != plain[0] + plain[1]


@settings(max_examples=10)
@given(
    seed=st.integers(0, 10**6), lengths=st.lists(st.integers(1, 16), min_size=1, max_size=8), model=st.integers(0, 1)
)
def test_any_texts_in_one_batch_become_what_they_become_in_transformers(seed, lengths, model):
    their_model, our_model = pair("mt5", model)
    inputs = texts(seed, lengths)
    expected = generated(their_model, inputs, max_new_tokens=LENGTH, num_beams=4)
    assert (
        generate(our_model, inputs + texts(1)[: 8 - len(inputs)], options(beams=4), batch=8)[: len(inputs)] == expected
    )


@pytest.mark.parametrize("changes", [{"beams": 3}, {"sample": True, "temperature": 1.5, "top_k": 20}])
def test_a_text_is_the_same_whatever_its_batchmates_and_its_padding(changes):
    model, inputs, key = pair()[1], texts(), jax.random.key(0)
    together = generate(model, inputs, options(**changes), batch=8, lengths=(16,), key=key)
    assert generate(model, inputs, options(**changes), batch=2, lengths=(8, 32), key=key) == together


@pytest.mark.parametrize("changes", [{}, {"beams": 3}])
def test_the_states_of_the_encoder_give_what_its_input_gives(changes):
    (_, model), inputs = pair("bart"), texts(2, (9,) * 6)
    ids = np.array(inputs)
    states = np.asarray(model.encode(ids, np.ones_like(ids)))
    found = generate(model, inputs, options("bart", **changes), lengths=(9,))
    assert generate_from(model, states, options("bart", **changes)) == found
    assert generate_from(model, states[::-1], options("bart", **changes), batch=4) == found[::-1]
    assert len({tuple(text) for text in found}) > 3


@pytest.mark.parametrize("changes", [{"beams": 3}, {"sample": True}])
def test_devices_of_a_mesh_give_what_one_gives(changes):
    model, inputs, key = pair()[1], texts(0, [3, 7, 12, 5, 16, 9, 2, 4, 8, 11]), jax.random.key(0)
    mesh = Mesh(np.array(jax.devices()), ("data",))
    one = generate(model, inputs, options(**changes), batch=10, key=key)
    assert mesh.size == 8
    assert generate(model, inputs, options(**changes), batch=10, key=key, mesh=mesh) == one


def test_each_device_of_a_mesh_holds_its_share_of_the_texts():
    mesh = Mesh(np.array(jax.devices()), ("data",))
    structure, weights = nnx.split(pair()[1])
    found = search(structure, weights, np.full((16, 4), 5), np.ones((16, 4)), options=options(), mesh=mesh)
    assert {shard.data.shape for shard in found.addressable_shards} == {(2, LENGTH)}
    assert len(found.addressable_shards) == 8


def test_one_program_is_compiled_for_each_shape():
    model = pair()[1]

    def new_programs(seed):
        before = compiled()
        inputs = texts(seed, [12, 4, 5, 3, 14, 6, 13, 7, 16, 8])
        generate(model, inputs, options(max_length=3), batch=4, lengths=(8, 16))
        return compiled() - before

    assert new_programs(0) == 3  # 4 × 16, 4 × 8 and what is left over: 2 × 8
    assert new_programs(1) == 0


PROCESSORS = {
    "plain": ({}, []),
    "temperature": ({"temperature": 3.0}, [hf.TemperatureLogitsWarper(3.0)]),
    "top k": ({"temperature": 4.0, "top_k": 5}, [hf.TemperatureLogitsWarper(4.0), hf.TopKLogitsWarper(5)]),
    "top p": ({"temperature": 4.0, "top_p": 0.7}, [hf.TemperatureLogitsWarper(4.0), hf.TopPLogitsWarper(0.7)]),
    "clipped": (
        {"temperature": 0.5, "bounds": (-2.0, 1.0)},
        [lambda _, scores: scores.clamp(-2.0, 1.0), hf.TemperatureLogitsWarper(0.5)],
    ),
    "all": (
        {"temperature": 4.0, "top_k": 12, "top_p": 0.8, "suppressed": (1, 30)},
        [
            hf.SuppressTokensLogitsProcessor([1, 30]),
            hf.TemperatureLogitsWarper(4.0),
            hf.TopKLogitsWarper(12),
            hf.TopPLogitsWarper(0.8),
        ],
    ),
}


@pytest.mark.parametrize("case", PROCESSORS)
def test_tokens_are_drawn_with_the_probabilities_of_transformers(case):
    changes, processors = PROCESSORS[case]
    (theirs, ours), text, draws = pair("mt5", 1), texts(1)[1], 4000
    expected = draws * probabilities(theirs, text, *processors)
    ids = np.tile(np.array(text), (draws, 1))
    drawn = search(
        *nnx.split(ours),
        ids,
        np.ones_like(ids),
        drawing_keys(draws),
        options=options(max_length=1, sample=True, **changes),
    )
    counts = np.bincount(np.asarray(drawn)[:, 0], minlength=VOCABULARY)
    assert counts[expected == 0].sum() == 0
    common = expected >= 5
    assert common.sum() > 2
    observed, hoped = (np.append(a[common], a[~common].sum()) for a in (counts, expected))
    observed, hoped = observed[hoped > 0], hoped[hoped > 0]
    assert scipy.stats.chisquare(observed, hoped, sum_check=False).pvalue > 1e-4


def test_what_is_drawn_depends_on_the_key_and_on_the_place_of_a_text():
    model, inputs = pair("mt5", 1)[1], [texts(1)[1]] * 4
    chosen = options(sample=True, temperature=3.0)
    first, other = (generate(model, inputs, chosen, batch=4, key=jax.random.key(seed)) for seed in (0, 1))
    assert len({tuple(text) for text in first + other}) == 8
    assert generate(model, inputs, chosen, batch=4, key=jax.random.key(0)) == first


def loop_of(config, beams):
    """The body of the compiled loop, as JAX traced it, for a T5."""
    structure, weights = nnx.split(t5.T5(config, rngs=nnx.Rngs(0)))
    ids = jnp.ones((3, 13), jnp.int32)
    traced = search.trace(structure, weights, ids, ids, options=options(beams=beams)).jaxpr
    (loop,) = [equation for equation in traced.jaxpr.eqns if equation.primitive.name == "while"]
    return loop


def equations(jaxpr):
    for equation in jaxpr.eqns:
        yield equation
        for inner in jaxprs_in_params(equation.params):
            yield from equations(inner)


def test_weights_are_cast_before_the_loop():
    loop = loop_of(t5.Config(50, 16, 2, 8, 32, 1, 1, dtype="bfloat16"), beams=2)
    body = loop.params["body_jaxpr"].jaxpr
    weights = [variable.aval for variable in loop.invars if 16 in variable.aval.shape and variable.aval.ndim == 2]
    assert len(weights) >= 9
    assert {str(weight.dtype) for weight in weights} == {"bfloat16"}
    casts = [e.invars[0].aval for e in equations(body) if e.primitive.name == "convert_element_type"]
    assert not [cast for cast in casts if cast.shape in {weight.shape for weight in weights}]


def test_beams_move_no_keys_or_values_and_share_those_of_the_input():
    beams, batch, source, heads, width = 4, 3, 13, 2, 8
    loop = loop_of(t5.Config(50, 16, heads, width, 32, 1, 1, tied=False), beams)
    crossed = [variable.aval.shape for variable in loop.invars if source in variable.aval.shape]
    assert sorted(crossed, key=len) == [(batch, source), *[(batch, heads, source, width)] * 2]
    kept = batch * heads * beams * LENGTH * width
    moved = [e for e in equations(loop.params["body_jaxpr"].jaxpr) if e.primitive.name in ("gather", "transpose")]
    assert max(e.outvars[0].aval.size for e in moved) < kept / beams


@settings(max_examples=30)
@given(seed=st.integers(0, 10**6), count=st.sampled_from([1, 4]), vocabulary=st.sampled_from([3, 600, 4096, 5003]))
def test_the_best_of_many_are_the_first_after_sorting(seed, count, vocabulary):
    count = min(count, vocabulary)
    scores = np.random.default_rng(seed).normal(size=(3, vocabulary)).astype(np.float32)
    found, tokens = jax.jit(generation._best, static_argnums=1)(scores, count)
    order = np.argsort(-scores, axis=1)[:, :count]
    np.testing.assert_array_equal(tokens, order)
    np.testing.assert_array_equal(found, np.take_along_axis(scores, order, axis=1))


def test_no_inputs_give_no_texts():
    assert generate(pair()[1], [], options()) == []


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"max_length": 0}, "max_length = 0: it must be a whole number of at least 1."),
        ({"beams": 0}, "beams = 0: it must be a whole number of at least 1."),
        ({"min_length": 11}, "min_length = 11: it must be at most max_length = 10; lower the one or raise the other."),
        (
            {"temperature": 0},
            "temperature = 0: it must be a finite number above 0; for the most probable text set sample to false.",
        ),
        ({"top_p": 0}, "top_p = 0: it must lie above 0 and be at most 1; 1 keeps all tokens."),
        ({"top_p": 1.1}, "top_p = 1.1: it must lie above 0 and be at most 1; 1 keeps all tokens."),
        ({"top_k": 0}, "top_k = 0: it must be a whole number of at least 1; leave it out to keep all tokens."),
        ({"no_repeat_ngram": -1}, "no_repeat_ngram = -1: it must be a whole number of at least 0."),
        ({"end": (1, -2)}, "end = -2: it must be a whole number of at least 0."),
        (
            {"length_penalty": float("nan")},
            "length_penalty = nan: it must be a finite number; 1 is the usual one.",
        ),
        (
            {"early_stopping": "always"},
            "early_stopping = 'always': it must be false, true or 'never'; false is the usual one.",
        ),
        ({"bounds": (1, 1)}, "bounds = (1, 1): it must be two finite numbers, the lower one first."),
        (
            {"sample": True, "beams": 2},
            "beams = 2: it must be 1 where texts are drawn; set beams to 1, or sample to false.",
        ),
    ],
)
def test_options_that_make_no_sense_are_refused(changes, sentence):
    with pytest.raises(BadInput) as refused:
        options(**changes)
    assert str(refused.value) == sentence


@pytest.mark.parametrize(
    ("inputs", "sentence"),
    [
        ([[3], []], "Input 1 has no tokens: at least one is needed; leave it out, or add the end token."),
        ([[3] * 17], "Input 0 has 17 tokens: at most 16 are allowed; shorten it."),
        (
            [[3, 60, 61]],
            "Input 0 has the token 60: tokens must be from 0 to 59; use the model's own tokenizer.",
        ),
        ([[3], [-1]], "Input 1 has the token -1: tokens must be from 0 to 59; use the model's own tokenizer."),
    ],
)
def test_inputs_that_the_model_cannot_read_are_refused(inputs, sentence):
    with pytest.raises(BadInput) as refused:
        generate(pair()[1], inputs, options(), lengths=(8, 16))
    assert str(refused.value) == sentence


def test_tokens_of_the_options_must_be_in_the_vocabulary():
    with pytest.raises(BadInput) as refused:
        generate(pair()[1], [[3]], options(suppressed=(4, 60)))
    assert str(refused.value) == "suppressed = 60: a token must be below 60, the size of the model's vocabulary."


def test_drawing_needs_a_key():
    with pytest.raises(BadInput) as refused:
        generate(pair()[1], [[3]], options(sample=True))
    sentence = "key = None: texts that are drawn need a random key; give one, or set sample to false."
    assert str(refused.value) == sentence


def test_a_model_with_few_positions_refuses_longer_texts():
    model = pair("bart")[1]
    with pytest.raises(BadInput, match="Input 0 has 25 tokens: at most 24 are allowed"):
        generate(model, [[3] * 25], options("bart"))
    with pytest.raises(BadInput, match="A text of 25 tokens: this model has positions for at most 24"):
        generate(model, [[3]], options("bart", max_length=25))
    assert len(generate(model, [[3] * 23], options("bart", max_length=24, min_length=24))[0]) >= 22
