"""Frozen layers run once: what is kept of them gives the losses and gradients of the whole model, and no other's."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from dpnlp.checks import BadInput
from dpnlp.data.cache import Examples
from dpnlp.data.labelled import Columns
from dpnlp.data.labelled import labelled as opened
from dpnlp.data.tagged import tagged as opened_tagged
from dpnlp.models.pretrained import load_reader
from dpnlp.models.readers import Head, Strategy
from dpnlp.tasks import features as module
from dpnlp.tasks.classification import Classification
from dpnlp.tasks.features import features
from dpnlp.tasks.reading import TOKENS
from dpnlp.tasks.tagging import Tagging

from .readers import LABELS, TAGS, encoder, labelled, tagged, write_labelled, write_tagged

RECORDS, LONGEST = 7, 24
CASES = [
    (Strategy.TR_NO, Head.SEQUENCES),
    (Strategy.TR_NO, Head.TOKENS),
    (Strategy.TR_NO_LSTM, Head.SEQUENCES),
    (Strategy.TR_LAST2, Head.TOKENS),
]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with a BERT of three layers, some texts and some sentences."""
    home = tmp_path_factory.mktemp("home")
    encoder(home / "start", layers=3)
    write_labelled(home / "texts.jsonl", labelled(RECORDS))
    write_tagged(home / "sentences.jsonl", tagged(RECORDS))
    return home


def made(home, strategy, head=Head.SEQUENCES, cache="cache", **options):
    """A task for a reader of this strategy, and its examples."""
    labels = LABELS if head is Head.SEQUENCES else TAGS
    reader = load_reader(home / "start", head, labels=labels, strategy=strategy, hidden=5, **options)
    kind = Classification if head is Head.SEQUENCES else Tagging
    task = kind(reader.model, reader.tokenizer, reader.labels, LONGEST)
    if head is Head.SEQUENCES:
        records = opened(home / "texts.jsonl", Columns(owner="who"))
    else:
        records = opened_tagged(home / "sentences.jsonl")
    return task, task.dataset(records, home / cache)


def gradients(task, batch):
    """The loss of each example, and the gradient of their sum with respect to all that is trained."""
    structure, trained, rest = nnx.split(task.model, task.model.trained(), ...)

    @jax.jit
    def both(trained, batch):
        def total(trained):
            losses = task.loss(nnx.merge(structure, trained, rest), batch)
            return losses.sum(), losses

        return jax.value_and_grad(total, has_aux=True)(trained)

    (_, losses), found = both(trained, batch)
    return np.asarray(losses), {".".join(map(str, path)): leaf[...] for path, leaf in nnx.to_flat_state(found)}


@pytest.mark.parametrize(("strategy", "head"), CASES)
def test_states_that_were_kept_give_the_losses_and_gradients_of_the_whole_model(home, strategy, head, monkeypatch):
    monkeypatch.setattr(module, "_BATCH", 4)
    task, examples = made(home, strategy, head)
    kept = features(task.model, examples, LONGEST, home / "cache")
    assert len(kept) == RECORDS
    alone = (strategy, head) == (Strategy.TR_NO, Head.SEQUENCES)
    assert kept.lengths.tolist() == ([1] * RECORDS if alone else examples.lengths.tolist())
    assert kept.records is examples.records
    assert kept.owners is examples.owners
    rows, longest = np.array([2, 0, 5, 1]), int(examples.lengths.max())
    batch = kept.batch(rows, 1 if alone else longest)
    assert batch["states"].shape == (4, 1 if alone else longest, 16)
    assert batch["states"].dtype == np.float32
    assert not {"ids", "types"} & batch.keys()
    losses, found = gradients(task, batch)
    whole, expected = gradients(task, examples.batch(rows, longest))
    np.testing.assert_allclose(losses, whole, rtol=2e-6)
    assert found.keys() == expected.keys()
    scale = max(float(jnp.abs(gradient).max()) for gradient in expected.values())
    for name, gradient in expected.items():
        np.testing.assert_allclose(found[name], gradient, atol=2e-6 * scale, err_msg=name)


def count(monkeypatch):
    """Counts how often the frozen part is run."""
    runs, write = [], module.finished

    def finished(cache, name, make):
        return write(cache, name, lambda folder: (runs.append(name), make(folder)))

    monkeypatch.setattr(module, "finished", finished)
    return runs


def test_states_are_found_again_and_those_of_another_model_strategy_or_text_are_not_taken_for_them(
    home, monkeypatch, tmp_path
):
    runs = count(monkeypatch)
    task, examples = made(home, Strategy.TR_LAST2)
    first = features(task.model, examples, LONGEST, tmp_path)
    again = features(made(home, Strategy.TR_LAST2, seed=1)[0].model, examples, LONGEST, tmp_path)  # another head
    assert len(runs) == 1
    every = np.arange(RECORDS)
    np.testing.assert_array_equal(first.batch(every, LONGEST)["states"], again.batch(every, LONGEST)["states"])

    moved = made(home, Strategy.TR_LAST2)[0].model
    table = moved.encoder.tokens.table
    table.set_value(table[...][::-1])
    states = [
        features(moved, examples, LONGEST, tmp_path),
        features(made(home, Strategy.TR_NO_LSTM)[0].model, examples, LONGEST, tmp_path),
    ]
    assert len(runs) == 3
    for other in states:
        assert np.abs(other.batch(every, LONGEST)["states"] - first.batch(every, LONGEST)["states"]).max() > 0.01
    shorter = Classification(task.model, task.tokenizer, LABELS, 8).dataset(
        opened(home / "texts.jsonl", Columns(owner="who")), home / "cache"
    )
    assert features(task.model, shorter, 8, tmp_path).lengths.max() == 8
    assert len(runs) == 4


def test_examples_that_are_in_no_folder_are_told_apart_by_their_tokens(home, tmp_path):
    model = made(home, Strategy.TR_LAST2)[0].model
    texts = [[2, 7, 8, 3], [2, 9, 9, 3]]
    both = [
        features(model, Examples.of(TOKENS, {"ids": [ids], "types": [[0] * 4]}), 4, tmp_path).batch(np.array([0]), 4)
        for ids in texts
    ]
    assert np.abs(both[0]["states"] - both[1]["states"]).max() > 0.01


def test_states_are_for_their_owner_alone_and_take_two_bytes_a_number_in_sixteen_bits(home, tmp_path):
    task, examples = made(home, Strategy.TR_LAST2, computes="bfloat16")
    kept = features(task.model, examples, LONGEST, tmp_path / "deep" / "cache")
    (folder,) = (tmp_path / "deep" / "cache").iterdir()
    assert oct(folder.stat().st_mode & 0o777) == oct(folder.parent.stat().st_mode & 0o777) == "0o700"
    assert {oct(path.stat().st_mode & 0o777) for path in folder.iterdir()} == {"0o600"}
    assert sum(path.stat().st_size for path in folder.iterdir()) == 2 * 16 * examples.lengths.sum()
    assert kept.batch(np.array([0]), LONGEST)["states"].dtype == jnp.bfloat16


def test_damaged_states_are_not_believed(home, tmp_path):
    task, examples = made(home, Strategy.TR_NO)
    features(task.model, examples, LONGEST, tmp_path)
    (path,) = tmp_path.glob("*/states")
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(
        BadInput, match=r"states: it is damaged or missing; delete its folder, which is then made again"
    ):
        features(task.model, examples, LONGEST, tmp_path)
