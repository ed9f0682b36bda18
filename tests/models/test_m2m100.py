"""M2M100 against transformers' model with the same weights, wherever its positions count from, and clipping."""

import numpy as np
import pytest

from . import agreement
from .agreement import PAD, RATES, SHAPE, logits, moved, stepwise, texts, their_logits

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")


def made(**changes):
    return moved(transformers.M2M100ForConditionalGeneration(transformers.M2M100Config(**SHAPE | changes)))


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    theirs = made()
    return agreement.loaded(theirs, tmp_path_factory.mktemp("theirs")), theirs


def padded_within():
    """Texts with padding between their tokens, which is not counted where all tokens are known at once."""
    ids, mask, inputs = texts()
    ids[0, 3], mask[0, 3], inputs[0, 2] = PAD, 0, PAD
    return ids, mask, inputs


def their_steps(theirs, ids, mask, inputs):
    """What transformers gives where the decoder is given one token after the other."""
    past, found = None, []
    with torch.no_grad():
        for token in torch.tensor(inputs).split(1, dim=1):
            now = theirs(
                input_ids=torch.tensor(ids),
                attention_mask=torch.tensor(mask),
                decoder_input_ids=token,
                past_key_values=past,
                use_cache=True,
            )
            past = now.past_key_values
            found.append(now.logits.numpy())
    return np.concatenate(found, axis=1)


@pytest.mark.parametrize("made_texts", [texts, padded_within])
def test_the_logits_are_those_of_transformers(pair, made_texts):
    ours, theirs = pair
    agreement.assert_same_logits(logits(ours.model, *made_texts()), their_logits(theirs, *made_texts()))


@pytest.mark.parametrize("made_texts", [texts, padded_within])
def test_one_token_at_a_time_has_the_positions_that_transformers_gives_it(pair, made_texts):
    ours, theirs = pair
    agreement.assert_same_logits(stepwise(ours.model, *made_texts()), their_steps(theirs, *made_texts()))


def test_one_token_at_a_time_gives_the_same_logits(pair):
    agreement.assert_steps_agree(pair[0].model)


def test_a_saved_folder_is_one_of_transformers_and_loads_unchanged(pair, tmp_path):
    agreement.assert_folder_is_theirs(*pair, tmp_path / "ours")


def test_the_clipped_sum_is_exact_and_every_parameter_is_noted(tmp_path):
    agreement.assert_clipped_sum_is_exact(agreement.loaded(made(decoder_layers=1), tmp_path).model)


def test_long_texts_are_refused(pair):
    agreement.assert_refuses_long_texts(pair[0].model)


def test_dropout_is_where_transformers_has_it(tmp_path):
    theirs = made(**RATES)
    agreement.assert_drops_where_they_do(agreement.loaded(theirs, tmp_path).model, theirs)
