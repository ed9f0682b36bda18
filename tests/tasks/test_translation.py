"""Translation: the loss of a pair is its own, and what is scored is what the model writes by itself."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpnlp.checks import BadInput
from dpnlp.data.pairs import Columns, pairs
from dpnlp.metrics.bleu import bleu
from dpnlp.models.generation import Generation, generate
from dpnlp.tasks.translation import Translation, Writing

from .translators import sentences, translator, write_pairs


@pytest.fixture(scope="module")
def task():
    return Translation(translator(), longest=16)


def log_probabilities(task, pair):
    """log p of each token of the target, by a forward pass of this pair alone."""
    tokenizer, model = task.pretrained.tokenizer, task.pretrained.model
    ids, targets = (np.array([tokenizer(text)["input_ids"]]) for text in pair[:2])
    inputs = np.concatenate([[[tokenizer.pad_token_id]], targets[:, :-1]], axis=1)
    logits = model(jnp.asarray(ids), jnp.ones(ids.shape), jnp.asarray(inputs))
    return np.take_along_axis(np.asarray(jax.nn.log_softmax(logits[0])), targets[0][:, None], axis=1)[:, 0]


def test_the_loss_of_a_pair_is_the_mean_over_its_own_tokens_whoever_it_is_padded_with(task, tmp_path):
    some = sentences(5)
    file = write_pairs(tmp_path / "pairs.jsonl", some)
    dataset = task.dataset(pairs(file, Columns("de", "en")), tmp_path / "cache")
    for length in (8, 16):
        found = jax.jit(task.loss)(task.pretrained.model, dataset.batch(np.arange(5), length))
        np.testing.assert_allclose(found, [-log_probabilities(task, pair).mean() for pair in some], rtol=1e-5)


def test_the_surprise_at_a_pair_is_its_whole_negative_log_probability(task):
    some = sentences(7)
    expected = [-log_probabilities(task, pair).sum() for pair in some]
    np.testing.assert_allclose(task.surprise(some, batch=3), expected, rtol=1e-5)


def test_a_translation_is_what_the_model_generates_from_the_source_alone(task):
    texts = [pair.source for pair in sentences(4)]
    ids = [task.pretrained.tokenizer(text)["input_ids"] for text in texts]
    options = Generation(6, start=0, end=1, pad=0, beams=2)
    tokens = generate(task.pretrained.model, ids, options)
    expected = task.pretrained.tokenizer.batch_decode(tokens, skip_special_tokens=True)
    assert task.translate(texts, Writing(longest=6, beams=2)) == [text.strip() for text in expected]


def test_a_score_compares_what_the_model_wrote_with_the_targets(task):
    some = sentences(4)
    scored = task.score(some, Writing(longest=6))
    assert list(scored.hypotheses) == task.translate([pair.source for pair in some], Writing(longest=6))
    assert scored.bleu() == bleu(scored.hypotheses, [pair.target for pair in some])
    assert [line["reference"] for line in scored.lines()] == [pair.target for pair in some]


def test_the_prefix_goes_before_each_source_in_training_and_in_use(task, tmp_path):
    told = Translation(task.pretrained, longest=16, prefix="bu bu ")
    some = sentences(3)
    prefixed = [pair._replace(source=f"bu bu {pair.source}") for pair in some]
    np.testing.assert_allclose(told.surprise(some), task.surprise(prefixed), rtol=1e-6)
    texts = [pair.source for pair in some]
    assert told.translate(texts, Writing(6)) == task.translate([pair.source for pair in prefixed], Writing(6))
    file = write_pairs(tmp_path / "pairs.jsonl", some)
    batch = told.dataset(pairs(file, Columns("de", "en")), tmp_path / "cache").batch(np.arange(1), 16)
    assert (
        batch["ids"][0, : batch["mask"][0].sum()].tolist() == told.pretrained.tokenizer(prefixed[0].source)["input_ids"]
    )


def test_a_model_without_a_tokenizer_cannot_translate():
    pretrained = translator()
    pretrained.tokenizer = None
    with pytest.raises(BadInput, match="its folder has no tokenizer"):
        Translation(pretrained)
