"""The LSTM language model against a loop in NumPy, against per-example clipping, and against itself padded."""

import itertools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from dpnlp.checks import BadInput
from dpnlp.models.generation import Generation, generate
from dpnlp.models.language import Config, LSTMLanguageModel, parted
from dpnlp.models.pretrained import fresh_lstm, load_language_model, save_language_model

from ..training.test_clipping import assert_equal, clipped_sum, reference
from .hugging_face import tokenizer
from .test_gpt2 import loss, texts, uses

VOCABULARY, WIDTH, HIDDEN, END = 40, 6, 5, 1


@pytest.fixture(scope="module")
def model():
    """One whose biases are not 0, and whose texts end now and then."""
    made = LSTMLanguageModel(Config(VOCABULARY, WIDTH, HIDDEN), rngs=nnx.Rngs(0))
    for seed, bias in enumerate((made.lstm.input.bias, made.projection.bias)):
        bias.value[...] += jax.random.normal(jax.random.key(seed), bias.value.shape)
    made.tokens.table[...] = made.tokens.table[...].at[END].multiply(2.0)
    return made


def logits(model, ids, mask):
    return np.asarray(jax.jit(lambda ids, mask: model(ids, mask))(ids, mask))


def naive(model, text):
    """The logits after each token of one text, token by token, in float64."""
    values = {
        ".".join(map(str, path)): np.asarray(leaf[...], np.float64)
        for path, leaf in nnx.to_flat_state(nnx.state(model))
    }
    E, W, U, b = (
        values[name] for name in ("tokens.table", "lstm.input.kernel", "lstm.recurrent", "lstm.input.bias.value")
    )
    P, p = values["projection.kernel"], values["projection.bias.value"]
    h, c, found = np.zeros(HIDDEN), np.zeros(HIDDEN), []

    def sigma(x):
        return 1 / (1 + np.exp(-x))

    for token in text:
        i, f, g, o = np.split(np.sqrt(WIDTH) * E[token] @ W + h @ U + b, 4)
        c = sigma(f) * c + sigma(i) * np.tanh(g)
        h = sigma(o) * np.tanh(c)
        found.append(E @ (h @ P + p))
    return np.array(found)


def test_the_logits_are_those_of_the_equations_whatever_the_padding_and_the_batchmates(model):
    ids, mask = texts()
    found = logits(model, ids, mask)
    for row in range(len(ids)):
        real = mask[row] > 0
        np.testing.assert_allclose(found[row][real], naive(model, ids[row][real]), rtol=1e-4, atol=1e-5)


def test_with_10_000_words_it_has_the_1_35_million_parameters_of_mcmahan_et_al():
    shapes = nnx.eval_shape(lambda: LSTMLanguageModel(Config(10_000), rngs=nnx.Rngs(0)))
    sizes = [leaf.size for leaf in jax.tree.leaves(nnx.state(shapes, nnx.Param))]
    assert sum(sizes) == 10_000 * 96 + (96 + 256 + 1) * 4 * 256 + (256 + 1) * 96
    assert round(sum(sizes) / 1e6, 2) == 1.35


def test_the_clipped_sum_is_exact_and_every_parameter_is_noted(model):
    batch, weights = tuple(map(jnp.asarray, texts())), jnp.array([1.0, 1.0, 1.0, 0.0])
    noted, trained = uses(model, batch)
    assert noted == trained
    assert len(trained) == 6
    expected, norms = reference(loss, model, batch, weights, 0.1)
    assert norms[:3].min() > 0.1
    assert_equal(clipped_sum(loss, model, batch, weights, 0.1), expected, norms)


def test_the_rows_of_an_owner_are_clipped_as_one(model):
    batch, weights = tuple(map(jnp.asarray, texts())), jnp.array([0.5, 0.5, 1.0, 0.0])
    found = clipped_sum(loss, model, batch, weights, 0.1, nnx.Param, 2)
    assert found.norms.shape == (2,)
    assert_equal(found, *reference(loss, model, batch, weights, 0.1, nnx.Param, 2))


def test_a_prompt_is_parted_from_its_last_token():
    ids, mask = texts()
    before, last = parted(jnp.asarray(ids), jnp.asarray(mask))
    assert last.tolist() == [ids[0, 6], ids[1, 3], ids[2, 6], ids[3, 0]]
    assert before.sum(axis=1).tolist() == [6, 3, 3, 0]
    assert not (before & (mask == 0)).any()


PROMPTS = [[5, 6, 7], [9], [8, 3, 12, 30, 31]]


def greedy(model, prompt, most=8):
    text = list(prompt)
    for _ in range(most):
        text.append(int(np.argmax(naive(model, text)[-1])))
        if text[-1] == END:
            return text[len(prompt) : -1]
    return text[len(prompt) :]


def test_greedy_texts_are_those_of_a_loop(model):
    options = Generation(8, start=END, end=END, pad=END)
    assert generate(model, PROMPTS, options, lengths=(6,)) == [greedy(model, prompt) for prompt in PROMPTS]


@pytest.mark.parametrize("seed", range(3))
def test_as_many_beams_as_there_are_texts_find_the_most_probable_one(seed):
    """Three tokens and texts of three: with all of the beams nothing is ever given up."""
    model = LSTMLanguageModel(Config(3, WIDTH, HIDDEN), rngs=nnx.Rngs(seed))
    for weight in (model.lstm.recurrent, model.lstm.input.kernel, model.tokens.table):
        weight[...] *= 3.0  # What came before decides.
    options = Generation(3, start=0, end=(), pad=0, beams=9, length_penalty=0.0)
    prompts = [[1], [2], [2, 1], [1, 1, 2]]

    def log_p(prompt, text):
        z = naive(model, [*prompt, *text])[len(prompt) - 1 : -1]
        return sum(row[token] - np.log(np.exp(row).sum()) for row, token in zip(z, text, strict=True))

    best = [max(itertools.product(range(3), repeat=3), key=partial(log_p, prompt)) for prompt in prompts]
    assert generate(model, prompts, options, lengths=(4,)) == [[token for token in text if token] for text in best]


def test_a_saved_folder_loads_unchanged_with_its_tokenizer(tmp_path):
    its = tokenizer(VOCABULARY)
    made = fresh_lstm(its, width=WIDTH, hidden=HIDDEN, dropout=0.1, computes="float32", seed=0)
    save_language_model(made, tmp_path / "lstm")
    again = load_language_model(tmp_path / "lstm", dropout=0.0)
    jax.tree.map(np.testing.assert_array_equal, nnx.state(made.model), nnx.state(again.model))
    assert again.model.config == Config(VOCABULARY, WIDTH, HIDDEN)
    assert again.tokenizer.get_vocab() == its.get_vocab()
    assert again.tokenizer.eos_token_id == END


def test_a_folder_of_something_else_is_refused(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "t5"}')
    with pytest.raises(BadInput, match=r"model_type = 't5' is not one of gpt2; choose another model\.$"):
        load_language_model(tmp_path)


def test_a_width_that_is_no_width_is_refused():
    with pytest.raises(BadInput, match=r"^hidden = 0: it must be a whole number of at least 1\.$"):
        Config(VOCABULARY, WIDTH, 0)
