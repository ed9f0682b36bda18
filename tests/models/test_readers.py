"""Readers: what each strategy trains and runs once, and that book-keeping is exact for all heads and strategies."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from dpnlp import dropout
from dpnlp.checks import BadInput
from dpnlp.models import bert, word_vectors
from dpnlp.models.freezing import summary
from dpnlp.models.lora import adapt, adapted
from dpnlp.models.readers import Config, Head, Reader, Strategy

from ..training.test_clipping import assert_equal, clipped_sum, reference

VOCABULARY, WIDTH, LAYERS, LABELS = 30, 8, 3, 3
SHAPE = {"vocabulary": VOCABULARY, "width": WIDTH, "layers": LAYERS, "heads": 2, "hidden": 12, "positions": 9}
LENGTHS = np.array([6, 3, 5, 2])
MASK = np.arange(6) < LENGTHS[:, None]
RUN_ONCE = (Strategy.TR_NO, Strategy.TR_NO_LSTM, Strategy.TR_LAST2)
EACH = [(strategy, head) for strategy in Strategy for head in Head]


def made(strategy, head, *, pooler=True, trained=True, layers=LAYERS, rate=0.0, **options):
    """A micro reader with random values everywhere, adapted where the strategy wants it."""
    rngs = nnx.Rngs(0)
    if strategy is Strategy.BILSTM:
        encoder = word_vectors.WordVectors(word_vectors.Config(VOCABULARY, WIDTH, trained), rngs=rngs)
    else:
        rates = {"dropout": rate, "attention_dropout": rate, "attended_dropout": rate}
        encoder = bert.BERT(bert.Config(**SHAPE | {"layers": layers}, pooler=pooler, **rates), rngs=rngs)
    labels = 2 if head is Head.SPANS else LABELS
    reader = Reader(encoder, Config(head, labels, strategy, hidden=5, **options), rngs=rngs)
    if strategy is Strategy.LORA:
        adapt(reader, 2, rngs=rngs)
        for layer in adapted(reader).values():
            layer.B.set_value(0.1 * jax.random.normal(rngs.params(), layer.B.shape))
    return reader


def batch(head):
    rng = np.random.default_rng(0)
    given = {
        "ids": rng.integers(4, VOCABULARY, MASK.shape) * MASK,
        "mask": MASK,
        "types": (np.arange(6) > 2) * MASK,
    }
    if head is Head.SEQUENCES:
        given["label"] = rng.integers(0, LABELS, 4)
    elif head is Head.TOKENS:
        given["tags"] = np.where(MASK, rng.integers(-1, LABELS, MASK.shape), -1)
        given["tags"][:, 0] = 1
    else:
        given |= {side: rng.integers(0, LENGTHS) for side in ("start", "end")}
    return jax.tree.map(jnp.asarray, given)


def losses(model, batch):
    """The cross-entropy of each example, as the mean over its own labels."""
    logits = model(batch)
    if "label" in batch:
        return -jnp.take_along_axis(jax.nn.log_softmax(logits), batch["label"][:, None], axis=-1)[:, 0]
    if "tags" in batch:
        tags = batch["tags"]
        logs = jnp.take_along_axis(jax.nn.log_softmax(logits), jnp.maximum(tags, 0)[..., None], axis=-1)[..., 0]
        return -jnp.sum(logs * (tags >= 0), axis=1) / jnp.sum(tags >= 0, axis=1)
    places = jax.nn.log_softmax(jnp.where(batch["mask"][..., None], logits, -1e9), axis=1)  # [batch, length, 2]
    sides = jnp.stack([batch["start"], batch["end"]], axis=-1)[:, None]
    return -jnp.take_along_axis(places, sides, axis=1).sum(axis=(1, 2))


def logits(reader, given):
    return np.asarray(nnx.jit(lambda reader, given: reader(given))(reader, given))


def kept(reader, given):
    """The batch with the states of the frozen part in the place of its tokens."""
    states = nnx.jit(lambda reader, *given: reader.bottom(*given))(
        reader, given["ids"], given["mask"], given.get("types")
    )
    return {"states": states} | {name: given[name] for name in given if name not in ("ids", "types")}


@pytest.mark.parametrize(("strategy", "head"), EACH)
def test_book_keeping_is_the_definition_and_frozen_parts_get_no_gradient(strategy, head):
    reader, given = made(strategy, head, layers=3 if strategy is Strategy.TR_LAST2 else 1), batch(head)
    found = clipped_sum(losses, reader, given, jnp.ones(4), 0.1, reader.trained())
    assert_equal(found, *reference(losses, reader, given, jnp.ones(4), 0.1, reader.trained()))
    assert min(found.norms) > 0.1
    assert set(found.gradients) == {each.name for each in summary(reader, reader.trained()) if each.trained}
    still = {name for name, gradient in found.gradients.items() if np.abs(gradient).max() < 1e-5}
    # A softmax ignores what is added to all scores, or to the logits of all places.
    last = len(reader.encoder.layers) - 1
    shifts = r".*key\.bias\.value" + (rf"|(head|.*\.{last}\.feed_norm)\.bias\.value" if head is Head.SPANS else "")
    assert all(re.fullmatch(shifts, name) for name in still), still


@pytest.mark.parametrize("head", Head)
@pytest.mark.parametrize("strategy", RUN_ONCE)
def test_what_ran_once_gives_the_same_logits(strategy, head):
    reader, given = made(strategy, head), batch(head)
    np.testing.assert_allclose(logits(reader, kept(reader, given)), logits(reader, given), rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("strategy", [Strategy.TR_NO, Strategy.TR_LAST2])
def test_what_ran_once_differs_in_no_bit_where_operations_are_not_compiled_together(strategy):
    reader, given = made(strategy, Head.SEQUENCES), batch(Head.SEQUENCES)
    states = reader.bottom(given["ids"], given["mask"], given["types"])
    np.testing.assert_array_equal(reader({"states": states, "mask": given["mask"]}), reader(given))


@pytest.mark.parametrize("strategy", [Strategy.TR_NO, Strategy.TR_LAST2])
def test_what_ran_once_gives_the_same_clipped_sum(strategy):
    reader, given = made(strategy, Head.TOKENS), batch(Head.TOKENS)
    both = given, kept(reader, given)
    found, cached = (clipped_sum(losses, reader, each, jnp.ones(4), 0.1, reader.trained()) for each in both)
    assert_equal(cached, found.gradients, found.norms)


@pytest.mark.parametrize("strategy", RUN_ONCE)
def test_states_may_be_kept_in_sixteen_bits(strategy):
    reader, given = made(strategy, Head.TOKENS), batch(Head.TOKENS)
    before = kept(reader, given)
    rounded = before | {"states": before["states"].astype(jnp.bfloat16)}
    found, expected = logits(reader, rounded), logits(reader, before)
    assert found.dtype == np.float32
    assert 0 < np.abs(found - expected)[MASK].max() < 0.05


@pytest.mark.parametrize(
    ("strategy", "head", "shape"),
    [
        (Strategy.TR_NO, Head.SEQUENCES, (4, 1, WIDTH)),
        (Strategy.TR_NO, Head.TOKENS, (4, 6, WIDTH)),
        (Strategy.TR_NO_LSTM, Head.SEQUENCES, (4, 6, WIDTH)),
        (Strategy.TR_LAST2, Head.SEQUENCES, (4, 6, WIDTH)),
    ],
)
def test_no_more_is_kept_than_is_used(strategy, head, shape):
    assert kept(made(strategy, head), batch(head))["states"].shape == shape


@pytest.mark.parametrize("strategy", RUN_ONCE)
def test_nothing_is_dropped_in_what_runs_once(strategy):
    reader, given = made(strategy, Head.TOKENS, rate=0.5), batch(Head.TOKENS)
    with dropout.dropping(jax.random.split(jax.random.key(0), 4)):
        during = reader.bottom(given["ids"], given["mask"], given["types"])
        assert dropout.is_on()
        moved = reader(given)
    np.testing.assert_array_equal(during, reader.bottom(given["ids"], given["mask"], given["types"]))
    assert np.array_equal(moved, reader(given)) == (strategy is not Strategy.TR_LAST2)


def test_the_head_drops_what_it_is_given():
    reader, given = made(Strategy.TR_NO, Head.SEQUENCES, dropout=0.5, pooler_dropout=0.25), batch(Head.SEQUENCES)
    plain = reader(given)
    with dropout.dropping(jax.random.split(jax.random.key(0), 4)):
        assert np.abs(reader(given) - plain).max() > 0.01


TRAINED = {
    Strategy.BILSTM: r"encoder\.tokens\..*|lstm\..*|head\..*",
    Strategy.TR_NO_LSTM: r"lstm\..*|head\..*",
    Strategy.TR_NO: r"head\..*",
    Strategy.TR_LAST2: r"encoder\.layers\.[12]\..*|pooler\..*|head\..*",
    Strategy.TR_ALL: r"encoder\.layers\..*|pooler\..*|head\..*",
    Strategy.LORA: r"encoder\.layers\.\d\.attention\.(query|value)\.[AB]|pooler\..*|head\..*",
}
FROZEN_LAYERS = {Strategy.TR_NO_LSTM: 4, Strategy.TR_NO: 4, Strategy.TR_LAST2: 2}


@pytest.mark.parametrize("strategy", Strategy)
def test_a_strategy_trains_what_it_says(strategy):
    reader = made(strategy, Head.SEQUENCES)
    parameters = summary(reader, reader.trained())
    expected = {each.name for each in parameters if re.fullmatch(TRAINED[strategy], each.name)}
    assert {each.name for each in parameters if each.trained} == expected
    assert len(expected) < len(parameters) or strategy is Strategy.BILSTM
    assert reader.frozen_layers == strategy.frozen_layers(LAYERS) * (strategy is not Strategy.BILSTM)
    assert reader.frozen_layers == FROZEN_LAYERS.get(strategy, 0)


def test_pre_trained_vectors_are_frozen_and_others_are_trained():
    names = {
        trained: {each.name for each in summary(reader, reader.trained()) if each.trained}
        for trained in (True, False)
        for reader in (made(Strategy.BILSTM, Head.TOKENS, trained=trained),)
    }
    assert names[True] - names[False] == {"encoder.tokens.table"}


def test_a_pooler_that_is_not_pre_trained_is_trained_with_the_head():
    pre_trained, fresh = (made(Strategy.TR_NO, Head.SEQUENCES, pooler=pooler) for pooler in (True, False))
    assert (pre_trained.trains, fresh.trains) == (("head",), ("pooler", "head"))
    assert made(Strategy.TR_NO, Head.TOKENS).pooler is None
    given = batch(Head.SEQUENCES)
    found = clipped_sum(losses, fresh, given, jnp.ones(4), 0.1, fresh.trained())
    assert_equal(found, *reference(losses, fresh, given, jnp.ones(4), 0.1, fresh.trained()))


@pytest.mark.parametrize("head", Head)
@pytest.mark.parametrize("strategy", [Strategy.BILSTM, Strategy.TR_NO_LSTM, Strategy.TR_ALL])
def test_law_4_batchmates_and_padding_change_nothing(strategy, head):
    reader, given = made(strategy, head), batch(head)
    given = {name: given[name] for name in ("ids", "mask", "types")}
    together = logits(reader, given)
    assert together.shape == ((4, LABELS) if head is Head.SEQUENCES else (4, 6, 2 if head is Head.SPANS else LABELS))
    for text, length in enumerate(LENGTHS):
        if length in (3, 6):
            alone = logits(reader, {name: side[text : text + 1, :length] for name, side in given.items()})
            expected = together[text] if head is Head.SEQUENCES else together[text, :length]
            np.testing.assert_allclose(alone[0], expected, rtol=1e-4, atol=1e-5)
    junk = given | {"ids": jnp.where(given["mask"], given["ids"], 7)}
    found = logits(reader, junk)
    np.testing.assert_array_equal(*(side if head is Head.SEQUENCES else side[MASK] for side in (found, together)))


def test_logits_are_in_float32_whatever_the_encoder_computes_in():
    encoder = bert.BERT(bert.Config(**SHAPE, dtype="bfloat16"), rngs=nnx.Rngs(0))
    reader = Reader(encoder, Config(Head.TOKENS, LABELS, Strategy.TR_LAST2), rngs=nnx.Rngs(0))
    given = batch(Head.TOKENS)
    assert logits(reader, given).dtype == np.float32
    assert kept(reader, given)["states"].dtype == jnp.bfloat16


def test_the_head_starts_from_the_shares_of_the_labels():
    reader = made(Strategy.TR_NO, Head.SEQUENCES)
    reader.head.kernel.set_value(jnp.zeros_like(reader.head.kernel[...]))
    reader.start_from([6, 3, 1])
    shares = jax.nn.softmax(logits(reader, batch(Head.SEQUENCES)))
    np.testing.assert_allclose(shares, [[0.6, 0.3, 0.1]] * 4, rtol=1e-5)


def refusal(call, *given, **options):
    with pytest.raises(BadInput) as refused:
        call(*given, **options)
    assert re.fullmatch(r"[^\n]*\S\.", str(refused.value))
    return str(refused.value)


def test_what_does_not_fit_is_refused_in_one_sentence():
    sequences = batch(Head.SEQUENCES)
    assert refusal(made, Strategy.TR_LAST2, Head.TOKENS, layers=1).startswith(
        "strategy = tr-last2: the encoder has 1 layer, and must have at least 2; choose tr-all."
    )
    made(Strategy.TR_LAST2, Head.TOKENS, layers=2)
    vectors = word_vectors.WordVectors(word_vectors.Config(9, 4), rngs=nnx.Rngs(0))
    sentence = refusal(Reader, vectors, Config(Head.TOKENS, 2, Strategy.TR_NO), rngs=nnx.Rngs(0))
    assert sentence == "strategy = tr-no: it reads with a BERT, and the encoder is word vectors; choose another one."
    whole = bert.BERT(bert.Config(**SHAPE), rngs=nnx.Rngs(0))
    sentence = refusal(Reader, whole, Config(Head.TOKENS, 2, Strategy.BILSTM), rngs=nnx.Rngs(0))
    assert sentence.startswith("strategy = bilstm: it reads with word vectors, and the encoder is a BERT;")
    assert refusal(Config, "words", 2).startswith("head = 'words': it must be one of sequences, tokens, spans.")
    assert refusal(Config, "tokens", 2, "tr-last3").startswith(
        "strategy = 'tr-last3': it must be one of bilstm, tr-no-"
    )
    assert refusal(Config, "tokens", 1).startswith("labels = 1: it must be a whole number of at least 2;")
    assert refusal(Config, "spans", 3).startswith("labels = 3: a span has two, start and end;")
    assert refusal(Config, "tokens", 2, pooler="gelu").startswith("pooler = 'gelu': it must be one of tanh, relu.")
    entire = made(Strategy.TR_ALL, Head.SEQUENCES)
    assert "tr-all: it freezes no layer that" in refusal(entire.bottom, sequences["ids"], sequences["mask"])
    states = {"states": jnp.ones((4, 6, WIDTH)), "mask": MASK}
    assert refusal(entire, states) == "states: with the strategy tr-all there are none to keep; give ids."
    assert refusal(entire.start_from, [1, 2]).startswith("shares: there are 2 for 3 labels;")
    assert refusal(entire.start_from, [1, 2, 0]).startswith("shares = 0: it must be a finite number above 0")
    assert refusal(made(Strategy.TR_ALL, Head.SPANS).start_from, [1, 2]).startswith("shares: an answer's start and end")
    bare = Reader(bert.BERT(bert.Config(**SHAPE), rngs=nnx.Rngs(0)), Config("tokens", 2, "lora"), rngs=nnx.Rngs(0))
    assert refusal(bare.trained).startswith("strategy = lora: the reader has no adapters yet;")
