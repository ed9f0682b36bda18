"""GPT-2 against transformers' model with the same weights, against per-example clipping, and against itself padded."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from dpnlp import bookkeeping
from dpnlp.checks import BadInput
from dpnlp.models import cross_entropy, gpt2
from dpnlp.models.generation import Generation, generate
from dpnlp.models.lora import ADAPTERS, adapt
from dpnlp.models.pretrained import load_language_model, save_language_model

from ..training.test_clipping import assert_equal, clipped_sum, reference
from .agreement import assert_same_logits, moved, our_drops, their_drops
from .hugging_face import change_config, change_tensors

torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")

VOCABULARY, LONGEST, END = 40, 24, 1
SHAPE = {"vocab_size": VOCABULARY, "n_positions": LONGEST, "n_embd": 24, "n_layer": 2, "n_head": 3}
SHAPE |= {"bos_token_id": END, "eos_token_id": END}
KINDS = {
    "GPT-2": {},
    "untied": {"tie_word_embeddings": False},
    "other scales": {"scale_attn_by_inverse_layer_idx": True, "layer_norm_epsilon": 0.1, "n_inner": 20},
    "without a scale": {"scale_attn_weights": False, "activation_function": "relu"},
}


def made(kind="GPT-2", **changes):
    return moved(transformers.GPT2LMHeadModel(transformers.GPT2Config(**SHAPE | KINDS[kind] | changes)))


def loaded(theirs, folder, **options):
    theirs.save_pretrained(folder)
    return load_language_model(folder, **options)


@pytest.fixture(scope="module", params=KINDS)
def pair(request, tmp_path_factory):
    theirs = made(request.param)
    return loaded(theirs, tmp_path_factory.mktemp("theirs")), theirs


def texts(length=7, seed=0):
    """Four texts: without padding, with padding after, with padding before, and of one token."""
    ids = np.random.default_rng(seed).integers(3, VOCABULARY, (4, length))
    mask = np.ones((4, length), int)
    mask[1, 4:], mask[2, :3], mask[3, 1:] = 0, 0, 0
    return ids, mask


def logits(model, ids, mask):
    return np.asarray(jax.jit(lambda ids, mask: model(ids, mask))(ids, mask))


def their_logits(theirs, ids, mask):
    positions = np.maximum(np.cumsum(mask, axis=1) - 1, 0)
    with torch.no_grad():
        given = {"input_ids": ids, "attention_mask": mask, "position_ids": positions}
        return theirs(**{name: torch.tensor(value) for name, value in given.items()}).logits.numpy()


def test_the_logits_are_those_of_transformers(pair):
    ours, theirs = pair
    ids, mask = texts()
    found, expected = logits(ours.model, ids, mask), their_logits(theirs, ids, mask)
    assert_same_logits(found[mask > 0], expected[mask > 0])
    assert np.abs(expected).max() > 1


def test_law_4_padding_on_either_side_and_batchmates_change_no_logits(pair):
    model = pair[0].model
    ids, mask = texts()
    together = logits(model, ids, mask)
    for row in range(4):
        real = mask[row] > 0
        alone = logits(model, ids[row][None, real], np.ones((1, real.sum()), int))
        np.testing.assert_allclose(together[row][real], alone[0], rtol=1e-5, atol=1e-5)
    others = np.where(mask > 0, ids, 5)
    np.testing.assert_array_equal(logits(model, others, mask)[mask > 0], together[mask > 0])


def test_no_token_is_seen_before_its_place(pair):
    ids, mask = texts()
    changed = ids.copy()
    changed[:, 5] = (changed[:, 5] + 1) % VOCABULARY
    before, after = logits(pair[0].model, ids, mask), logits(pair[0].model, changed, mask)
    earlier = (mask > 0) & (np.arange(7) < 5)
    np.testing.assert_array_equal(before[earlier], after[earlier])
    assert np.abs(before[0, 5:] - after[0, 5:]).max() > 1e-3


def test_a_saved_folder_is_one_of_transformers_and_loads_unchanged(pair, tmp_path):
    ours, theirs = pair
    save_language_model(ours, tmp_path / "ours")
    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "ours").eval()
    np.testing.assert_array_equal(their_logits(again, *texts()), their_logits(theirs, *texts()))
    first, second = (nnx.state(each.model) for each in (ours, load_language_model(tmp_path / "ours")))
    jax.tree.map(np.testing.assert_array_equal, first, second)


def test_files_of_the_hub_without_the_first_word_and_with_masks_are_loaded(tmp_path):
    theirs = made()
    theirs.save_pretrained(tmp_path)

    def as_on_the_hub(tensors):
        for name in list(tensors):
            tensors[name.removeprefix("transformer.")] = tensors.pop(name)
        tensors["h.0.attn.bias"] = np.tril(np.ones((1, 1, LONGEST, LONGEST), np.uint8))
        tensors["h.0.attn.masked_bias"] = np.array(-1e4, np.float32)

    change_tensors(tmp_path, as_on_the_hub)
    ids, mask = texts()
    found = logits(load_language_model(tmp_path).model, ids, mask)
    assert_same_logits(found[mask > 0], their_logits(theirs, ids, mask)[mask > 0])


def test_attention_to_something_else_is_refused(tmp_path):
    made().save_pretrained(tmp_path)
    change_config(tmp_path, add_cross_attention=True)
    with pytest.raises(BadInput, match=r"config\.json: add_cross_attention = true: [^.]*; choose another one\.$"):
        load_language_model(tmp_path)


def loss(model, batch):
    ids, mask = batch
    targets, real = jnp.roll(ids, -1, axis=1), mask.at[:, -1].set(0)
    return cross_entropy.of_states(model, model.states(ids, mask), targets, real)


def uses(model, batch):
    parameters = [node for _, node in nnx.graph.iter_graph(model) if isinstance(node, nnx.Param)]
    tape = bookkeeping.Tape(frozenset(map(id, parameters)))
    with bookkeeping.recording(tape):
        jax.eval_shape(lambda: loss(model, batch))
    return {id(use.weight) for use in tape.uses}, tape.trains


@pytest.mark.parametrize("kind", ["GPT-2", "untied"])
def test_the_clipped_sum_is_exact_and_every_parameter_is_noted(kind, tmp_path):
    model = loaded(made(kind, n_layer=1), tmp_path).model
    batch = tuple(map(jnp.asarray, texts()))
    noted, trained = uses(model, batch)
    assert noted == trained
    weights = jnp.array([1.0, 1.0, 1.0, 0.0])  # the last text has nothing to predict
    expected, norms = reference(loss, model, batch, weights, 0.5)
    assert norms[:3].min() > 0.5
    assert_equal(clipped_sum(loss, model, batch, weights, 0.5), expected, norms)


def test_the_clipped_sum_of_adapters_is_exact_and_they_are_folded_in(tmp_path):
    ours = loaded(made(n_layer=1), tmp_path / "base")
    assert adapt(ours.model, 2, where=("projection",), rngs=nnx.Rngs(0)) == ["layers.0.self_attention.projection"]
    for variable in jax.tree.leaves(
        nnx.state(ours.model, ADAPTERS), is_leaf=lambda leaf: isinstance(leaf, nnx.Variable)
    ):
        variable.set_value(variable[...] + 0.1)
    batch, weights = tuple(map(jnp.asarray, texts())), jnp.array([1.0, 1.0, 1.0, 0.0])
    expected, norms = reference(loss, ours.model, batch, weights, 0.1, ADAPTERS)
    assert_equal(clipped_sum(loss, ours.model, batch, weights, 0.1, ADAPTERS), expected, norms)
    save_language_model(ours, tmp_path / "merged", merge=True)
    ids, mask = texts()
    merged = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "merged").eval()
    assert_same_logits(logits(ours.model, ids, mask)[mask > 0], their_logits(merged, ids, mask)[mask > 0])


def test_dropout_is_where_transformers_has_it(tmp_path):
    theirs = made(resid_pdrop=0.1, attn_pdrop=0.2, embd_pdrop=0.3)
    model, (ids, mask) = loaded(theirs, tmp_path).model, texts()
    expected = their_drops(theirs, lambda: their_logits(theirs, ids, mask))
    assert len({rate for _, rate in expected}) == 3
    assert our_drops(lambda: model(ids, mask), 4) == expected


PROMPTS = [
    np.random.default_rng(seed).integers(3, VOCABULARY, length).tolist() for seed, length in enumerate((3, 7, 1, 9))
]


def written(theirs, prompt, **options):
    """What transformers writes after one prompt, without the end."""
    with torch.no_grad():
        found = theirs.generate(
            torch.tensor([prompt]), attention_mask=torch.ones(1, len(prompt), dtype=int), max_new_tokens=10, **options
        )
    new = found[0, len(prompt) :].tolist()
    return new[: new.index(END)] if END in new else new


@pytest.fixture(scope="module")
def writers(tmp_path_factory):
    """Two that end some of their texts."""
    theirs = made()
    with torch.no_grad():
        theirs.transformer.wte.weight[END] *= 2.0
    return loaded(theirs, tmp_path_factory.mktemp("writer")).model, theirs


@pytest.mark.parametrize(("beams", "penalty"), [(1, 1.0), (3, 1.0), (3, 0.5)])
def test_prompts_of_different_lengths_go_on_as_in_transformers(writers, beams, penalty):
    ours, theirs = writers
    options = Generation(10, start=END, end=END, pad=END, beams=beams, length_penalty=penalty)
    theirs.generation_config.pad_token_id = END
    expected = [written(theirs, prompt, num_beams=beams, length_penalty=penalty, do_sample=False) for prompt in PROMPTS]
    assert generate(ours, PROMPTS, options, lengths=(16,)) == expected
    assert len(set(map(tuple, expected))) == 4


def test_what_is_drawn_does_not_depend_on_the_batch(writers):
    options = Generation(8, start=END, end=END, pad=END, sample=True)
    together = generate(writers[0], PROMPTS, options, lengths=(16,), key=jax.random.key(0))
    apart = generate(writers[0], PROMPTS, options, lengths=(12,), batch=1, key=jax.random.key(0))
    assert together == apart
    assert together != generate(writers[0], PROMPTS, options, lengths=(16,), key=jax.random.key(1))


def micro(**changes):
    shape = {"vocabulary": 9, "width": 8, "layers": 1, "heads": 2, "hidden": 8, "positions": 6} | changes
    return gpt2.GPT2(gpt2.Config(**shape), rngs=nnx.Rngs(0))


def test_more_tokens_than_positions_are_refused_in_texts_and_prompts():
    model, ids = micro(), np.ones((1, 7), int)
    sentence = r"^A text of 7 tokens: this model has positions for at most 6; lower the maximum length\.$"
    with pytest.raises(BadInput, match=sentence):
        model.states(ids, ids)
    with pytest.raises(BadInput, match=r"^Input 0 has 4 tokens: at most 3 are allowed; shorten it\.$"):
        generate(model, [[1, 2, 3, 4]], Generation(3, start=0, end=0, pad=0))
    with pytest.raises(BadInput, match=sentence):
        generate(model, [[1]], Generation(6, start=0, end=0, pad=0))


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"heads": 3}, "heads = 3: it must divide the width 8; choose another number of heads."),
        ({"positions": 0}, "positions = 0: it must be a whole number of at least 1."),
    ],
)
def test_a_shape_that_cannot_be_is_refused(changes, sentence):
    with pytest.raises(BadInput) as refusal:
        micro(**changes)
    assert str(refusal.value) == sentence


def test_it_computes_in_the_type_it_is_told():
    ids, mask = np.arange(6)[None], np.ones((1, 6), int)
    assert jax.eval_shape(lambda: micro(dtype="bfloat16")(ids, mask)).dtype == jnp.bfloat16
    wide, narrow = logits(micro(), ids, mask), logits(micro(dtype="bfloat16"), ids, mask).astype(np.float32)
    np.testing.assert_allclose(wide, narrow, atol=0.1)
