"""What every relative of BART is asked: does it agree with transformers, with itself and with per-example clipping?"""

from contextlib import contextmanager
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from dpnlp import bookkeeping, dropout
from dpnlp.checks import BadInput
from dpnlp.models import pretrained
from dpnlp.models.layers import Dropout

from ..training.test_clipping import assert_equal, clipped_sum, reference

torch = pytest.importorskip("torch")

VOCABULARY, PAD, START, LONGEST = 40, 1, 2, 12
SHAPE = {
    "vocab_size": VOCABULARY,
    "d_model": 24,
    "encoder_layers": 1,
    "encoder_attention_heads": 2,
    "encoder_ffn_dim": 8,
    "decoder_layers": 2,
    "decoder_attention_heads": 3,
    "decoder_ffn_dim": 20,
    "max_position_embeddings": LONGEST,
    "pad_token_id": PAD,
    "eos_token_id": 2,
    "decoder_start_token_id": START,
    "forced_eos_token_id": None,
    "encoder_layerdrop": 0.0,
    "decoder_layerdrop": 0.0,
}
"""A micro model in transformers' words: all that may differ between the two sides does."""

RATES = {"dropout": 0.1, "attention_dropout": 0.2, "activation_dropout": 0.3}


def moved(theirs):
    """A model of transformers with random values everywhere, so that nothing is hidden by being 0 or 1 at first."""
    torch.manual_seed(0)
    fixed = set(theirs._keys_to_ignore_on_save or ())
    with torch.no_grad():
        for name, value in theirs.state_dict().items():
            if name not in fixed:
                value.add_(0.3 * torch.randn_like(value))
    return theirs.eval()


def loaded(theirs, folder, **options):
    """The same model here, by way of its files."""
    theirs.save_pretrained(folder)
    return pretrained.load(folder, **options)


def pairs(made, kinds):
    """A fixture with each kind of model, here and in transformers."""

    @pytest.fixture(scope="module", params=kinds)
    def pair(request, tmp_path_factory):
        theirs = made(request.param)
        return loaded(theirs, tmp_path_factory.mktemp("theirs")), theirs

    return pair


def texts(length=7, target=5, seed=0):
    """Three inputs: without padding, with padding after, with padding before; and what the decoder is given."""
    rng = np.random.default_rng(seed)
    mask = np.ones((3, length), int)
    mask[1, 4:], mask[2, :3] = 0, 0
    ids = np.where(mask > 0, rng.integers(3, VOCABULARY, mask.shape), PAD)
    inputs = rng.integers(3, VOCABULARY, (3, target))
    inputs[:, 0], inputs[1, 3:] = START, PAD
    return ids, mask, inputs


def their_logits(theirs, ids, mask, inputs):
    with torch.no_grad():
        found = theirs(
            input_ids=torch.tensor(ids), attention_mask=torch.tensor(mask), decoder_input_ids=torch.tensor(inputs)
        )
    return found.logits.numpy()


def logits(model, ids, mask, inputs):
    return np.asarray(jax.jit(lambda *batch: model(*batch))(ids, mask, inputs))


def assert_same_logits(found, expected):
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def stepwise(model, ids, mask, inputs, beams=1):
    """The logits of [batch · beams, target] where the decoder is given one token after the other."""

    @jax.jit
    def run(ids, mask, inputs):
        memory = model.remember(model.encode(ids, mask), mask)

        def step(past, now):
            token, position = now
            states, past = model.decode(token[:, None], memory, past, position)
            return past, model.logits(states)[:, 0]

        steps = inputs.shape[1]
        _, found = jax.lax.scan(step, model.empty(memory, beams, steps), (inputs.T, jnp.arange(steps)))
        return jnp.swapaxes(found, 0, 1)

    return np.asarray(run(ids, mask, inputs))


def assert_steps_agree(model):
    """One token at a time gives what all at once give, also where two beams look at the same input."""
    ids, mask, _ = texts()
    inputs = np.concatenate([texts(seed=seed)[2] for seed in (1, 2)])
    inputs = np.where(inputs == PAD, 7, inputs)  # a text that goes on has no padding in it
    twice = np.repeat(ids, 2, axis=0), np.repeat(mask, 2, axis=0), inputs
    at_once = logits(model, *twice)
    assert_same_logits(stepwise(model, *twice), at_once)
    assert_same_logits(stepwise(model, ids, mask, inputs, beams=2), at_once)


def assert_folder_is_theirs(ours, theirs, folder):
    """What we save opens in transformers and gives the same logits, and loading it again changes no tensor."""
    pretrained.save(ours, folder)
    again = type(theirs).from_pretrained(folder).eval()
    np.testing.assert_array_equal(their_logits(again, *texts()), their_logits(theirs, *texts()))
    first, second = (dict(nnx.to_flat_state(nnx.state(each.model))) for each in (ours, pretrained.load(folder)))
    assert first.keys() == second.keys()
    for path, variable in first.items():
        np.testing.assert_array_equal(variable[...], second[path][...], err_msg=path)


def loss(model, batch):
    """Minus the mean log-probability of an example's targets."""
    ids, mask, inputs, targets = batch
    logs = jax.nn.log_softmax(model(ids, mask, inputs))
    return -jnp.take_along_axis(logs, targets[..., None], axis=-1)[..., 0].mean(axis=1)


def assert_clipped_sum_is_exact(model, clip_norm=1.0):
    """Book-keeping notes every parameter, and gives what clipping each example's gradient gives."""
    ids, mask, inputs = texts()
    batch = jax.tree.map(jnp.asarray, (ids, mask, inputs, np.roll(inputs, -1, axis=1)))
    parameters = [node for _, node in nnx.graph.iter_graph(model) if isinstance(node, nnx.Param)]
    tape = bookkeeping.Tape(frozenset(map(id, parameters)))
    with bookkeeping.recording(tape):
        jax.eval_shape(lambda: loss(model, batch))
    assert {id(use.weight) for use in tape.uses} == tape.trains
    expected, norms = reference(loss, model, batch, jnp.ones(3), clip_norm)
    assert norms.min() > clip_norm
    found = clipped_sum(loss, model, batch, jnp.ones(3), clip_norm)
    assert "output_bias" not in found.gradients
    assert_equal(found, expected, norms)


def assert_drops_where_they_do(model, theirs):
    """The same rates on arrays of the same shapes in the same order."""
    given = texts()
    expected = their_drops(theirs, lambda: their_logits(theirs, *given))
    assert len({rate for _, rate in expected}) == 3
    assert our_drops(lambda: model(*given), 3) == expected


def their_drops(theirs, run):
    """The shapes and rates at which a model of transformers drops, in their order."""
    drop, seen = torch.nn.functional.dropout, []

    def watched(x, p=0.5, training=True, inplace=False):
        if training and p:
            seen.append((tuple(x.shape), p))
        return drop(x, p, training, inplace)

    theirs.set_attn_implementation("eager")
    theirs.train()
    with mock.patch.object(torch.nn.functional, "dropout", watched):
        run()
    theirs.eval()
    return seen


def our_drops(run, examples):
    """The shapes and rates at which `run` drops here, in their order."""
    seen = []

    def watched(layer, x):
        if layer.rate:
            seen.append((x.shape, layer.rate))
        return x

    keys = jax.random.split(jax.random.key(0), examples)
    ways = {"__call__": watched, "of_scores": watched}
    with mock.patch.multiple(Dropout, **ways), dropout.dropping(keys):
        jax.eval_shape(run)
    return seen


@contextmanager
def refused(length):
    """That so long a text is refused in one sentence."""
    with pytest.raises(BadInput, match=rf"^A text of {length} tokens: .*at most {LONGEST}; [^.]*\.$"):
        yield


def assert_refuses_long_texts(model):
    """Inputs and outputs of the most tokens are fine; those of one more are refused, also while they are generated."""
    ids, mask, inputs = texts(LONGEST, LONGEST)
    assert jax.eval_shape(lambda: model(ids, mask, inputs)).shape == (3, LONGEST, VOCABULARY)
    longer = LONGEST + 1
    long_ids, long_mask, long_inputs = texts(longer, longer)
    with refused(longer):
        model.encode(long_ids, long_mask)
    memory = jax.jit(lambda: model.remember(model.encode(ids, mask), mask))()
    with refused(longer):
        model.decode(long_inputs, memory)
    with refused(longer):
        model.empty(memory, 1, longer)
