"""Readers with an LSTM, or of word vectors: transformers has none, so they lie in a folder of our own.

In its config.json model_type is dpnlp-reader; the tensors have our names, the tokenizer's files are the usual ones.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

from flax import nnx
from transformers import PreTrainedConfig

from dpnlp import checks
from dpnlp.checks import BadInput
from dpnlp.models import bert, readers, word_vectors
from dpnlp.models.pretrained.opening import computed_in, dropping, tokenizer_in
from dpnlp.models.pretrained.own import fill_own, read_own, write_own
from dpnlp.models.pretrained.weights import new_folder, readable
from dpnlp.models.readers import Reader

KIND = "dpnlp-reader"
"""What config.json calls `model_type`."""


class _Entrance(NamedTuple):
    config: Callable[..., Any]
    build: Callable[..., Any]


_ENTRANCES = {
    "bert": _Entrance(bert.Config, bert.BERT),
    "word-vectors": _Entrance(word_vectors.Config, word_vectors.WordVectors),
}


def write_reader(
    model: Reader, labels: Sequence[str], tokenizer: Any | None, folder: str | Path, shard_bytes: int
) -> None:
    """Writes a folder that `read_reader` reads, all of it or nothing."""
    checks.count("shard_bytes", shard_bytes)
    entrance = next(name for name, known in _ENTRANCES.items() if known.build is type(model.encoder))
    config = {
        "model_type": KIND,
        "labels": list(labels),
        "reader": asdict(model.config),
        "entrance": entrance,
        "encoder": asdict(model.encoder.config),
    }
    with new_folder(folder) as whole:
        if tokenizer is not None:
            tokenizer.save_pretrained(whole)
        write_own(model, config, whole, shard_bytes)


def read_reader(
    folder: Path, *, dtype: str, computes: str | None, dropout: float | None, rematerialise: bool
) -> tuple[Reader, tuple[str, ...], Any | None]:
    """The reader in a folder of this kind, its labels and its tokenizer; the options are those of `load`."""
    path, computes = folder / "config.json", computed_in(dtype, computes)
    said = read_own(folder, KIND, "a reader with an LSTM")
    with readable(path):
        entrance, labels = _ENTRANCES[said["entrance"]], tuple(map(str, said["labels"]))
        encoder = replace(dropping(entrance.config(**said["encoder"]), dropout), dtype=computes)
        config = dropping(readers.Config(**said["reader"]), dropout)
    if len(labels) != config.labels:
        raise BadInput(f"{path}: it names {len(labels)} labels, and the reader has {config.labels}; name each of them.")
    if isinstance(encoder, bert.Config):
        encoder = replace(encoder, rematerialise=rematerialise)
    model: Reader = nnx.eval_shape(lambda: Reader(entrance.build(encoder, rngs=nnx.Rngs(0)), config, rngs=nnx.Rngs(0)))
    fill_own(model, folder, dtype)
    # The config only keeps transformers from looking for its own, of a kind that it does not know.
    tokenizer = tokenizer_in(folder, encoder.vocabulary, config=PreTrainedConfig())
    return model, labels, tokenizer
