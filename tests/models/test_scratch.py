"""A model from scratch is one that transformers opens, and that gives the same logits there."""

import numpy as np
import pytest

from dpnlp.checks import BadInput
from dpnlp.models.pretrained import from_scratch, load, save
from dpnlp.models.pretrained.scratch import ARCHITECTURES

from .hugging_face import tokenizer

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

SHAPE = {"width": 16, "layers": 2, "heads": 2, "hidden": 24, "dropout": 0.1, "computes": "float32"}


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_fresh_model_is_one_of_transformers(architecture, tmp_path):
    fresh = from_scratch(tokenizer(), **SHAPE, seed=0, architecture=architecture)
    save(fresh, tmp_path / "model")
    theirs = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "model").eval()
    assert theirs.config.model_type == architecture
    ids = np.array([[3, 4, 5, 6], [7, 8, fresh.tokenizer.pad_token_id, fresh.tokenizer.pad_token_id]])
    mask = np.array([[1, 1, 1, 1], [1, 1, 0, 0]])
    inputs = np.array([[fresh.tokenizer.pad_token_id, 9, 10], [fresh.tokenizer.pad_token_id, 11, 12]])
    given = {"input_ids": ids, "attention_mask": mask, "decoder_input_ids": inputs}
    with torch.no_grad():
        expected = theirs(**{name: torch.tensor(value) for name, value in given.items()}).logits.numpy()
    for model in (fresh.model, load(tmp_path / "model", dropout=0.0).model):
        np.testing.assert_allclose(model(ids, mask, inputs), expected, atol=1e-4)


def test_another_seed_is_another_model():
    one, other = (from_scratch(tokenizer(), **SHAPE, seed=seed).model.tokens.table[...] for seed in range(2))
    assert not np.array_equal(one, other)


def test_an_unknown_architecture_is_one_sentence():
    with pytest.raises(BadInput, match="architecture = gpt: it must be one of marian, t5"):
        from_scratch(tokenizer(), **SHAPE, seed=0, architecture="gpt")
