"""Autoencoders of texts with their words: transformers has none, so they lie in a folder of our own.

In its config.json model_type is dpnlp-autoencoder; the tensors have our names, the tokenizer's files, with the
vocabulary, are the usual ones. What the folder took from private texts stands in it too, so that nobody forgets.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from flax import nnx
from transformers import PreTrainedConfig

from dpnlp.checks import BadInput
from dpnlp.guarantee import Exposure, Guarantee
from dpnlp.models.autoencoder import Autoencoder, Config
from dpnlp.models.pretrained.opening import tokenizer_in
from dpnlp.models.pretrained.own import fill_own, read_own, write_own
from dpnlp.models.pretrained.weights import new_folder, readable
from dpnlp.models.word_vectors import SPECIAL, Vectors, tokenizer

KIND = "dpnlp-autoencoder"
"""What config.json calls `model_type`."""


@dataclass(frozen=True)
class PretrainedAutoencoder:
    """An autoencoder and the tokenizer of its words.

    `exposures` is what it took from private texts without any guarantee, and `training` what the texts that it was
    trained on were promised.
    """

    model: Autoencoder
    tokenizer: Any  # transformers.PreTrainedTokenizerFast
    exposures: tuple[Exposure, ...] = ()
    training: Guarantee | None = None


def fresh_autoencoder(
    words: Sequence[str], *, vectors: Vectors | None = None, seed: int = 0, **shape: Any
) -> PretrainedAutoencoder:
    """One with random weights for these words; `shape` is the rest of its `Config`.

    Words that have `vectors` start from these, and all others from random ones of the same size.
    """
    its = tokenizer(words)
    if vectors is not None:
        shape = {"width": vectors.table.shape[1]} | shape
    model = Autoencoder(Config(len(its), **shape), rngs=nnx.Rngs(seed))
    if vectors is not None:
        _start_from(model, words, vectors)
    return PretrainedAutoencoder(model, its)


def save_autoencoder(pretrained: PretrainedAutoencoder, folder: str | Path) -> None:
    """Writes a folder that `load_autoencoder` reads, all of it or nothing."""
    model, training = pretrained.model, pretrained.training
    config = {
        "model_type": KIND,
        "autoencoder": asdict(model.config),
        "exposures": [str(exposure) for exposure in pretrained.exposures],
        "training": None if training is None else training.to_json(),
    }
    with new_folder(folder) as whole:
        pretrained.tokenizer.save_pretrained(whole)
        write_own(model, config, whole)


def load_autoencoder(folder: str | Path) -> PretrainedAutoencoder:
    """The autoencoder in a folder."""
    folder = Path(folder)
    said = read_own(folder, KIND, "an autoencoder")
    with readable(folder / "config.json"):
        config = Config(**said["autoencoder"])
        exposures = tuple(Exposure(exposure) for exposure in said["exposures"])
        training = None if said["training"] is None else Guarantee.from_json(said["training"])
    model: Autoencoder = nnx.eval_shape(lambda: Autoencoder(config, rngs=nnx.Rngs(0)))
    fill_own(model, folder)
    # The config only keeps transformers from looking for its own, of a kind that it does not know.
    its = tokenizer_in(folder, config.vocabulary, config=PreTrainedConfig())
    if its is None:
        raise BadInput(f"{folder}: there is no tokenizer in it, without which no text can be read; add its files.")
    return PretrainedAutoencoder(model, its, exposures, training)


def _start_from(model: Autoencoder, words: Sequence[str], vectors: Vectors) -> None:
    """Puts the vectors of the words into the table."""
    table = model.decoder.tokens.table
    if vectors.table.shape[1] != table.shape[1]:
        raise BadInput(f"width = {table.shape[1]}: the vectors have {vectors.table.shape[1]} numbers; leave it out.")
    rows = np.array(table[...]) * vectors.table.std()
    places = {word: place for place, word in enumerate(words, start=len(SPECIAL))}
    for word, vector in zip(*vectors, strict=True):
        if word in places:
            rows[places[word]] = vector
    table.set_value(jnp.asarray(rows))
