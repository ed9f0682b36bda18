"""Models that read texts, with what belongs to them: as `load` and `save` do for those that write texts."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpnlp.models.bert import BERT
from dpnlp.models.pretrained.encoder_families import ENCODERS
from dpnlp.models.pretrained.opening import opened
from dpnlp.models.pretrained.writing import written


@dataclass
class Encoder:
    """An encoder with its config, and its tokenizer if the folder had one.

    `name` is that of the folder, or the id on the hub. `left_aside` are the tensors of the folder that the encoder does
    without: those of whatever was on top of it. They are not saved.
    """

    model: BERT
    config: Any  # transformers.PreTrainedConfig
    tokenizer: Any | None = None  # transformers.PreTrainedTokenizerBase
    name: str = ""
    left_aside: tuple[str, ...] = ()


def load_encoder(
    source: str | Path,
    *,
    dtype: str = "float32",
    computes: str | None = None,
    dropout: float | None = None,
    rematerialise: bool = False,
) -> Encoder:
    """The encoder in a folder or, where there is no such folder, of that id on the hub.

    The options are those of `load`. What the model has on top, such as a classifier, is left aside.
    """
    found = opened(source, ENCODERS, dtype=dtype, computes=computes, dropout=dropout, rematerialise=rematerialise)
    name = Path(source).resolve().name if Path(source).is_dir() else str(source)
    return Encoder(found.filled(), found.config, found.tokenizer, name, found.left_aside)


def save_encoder(encoder: Encoder, folder: str | Path, *, merge: bool = False, shard_bytes: int = 5 * 10**9) -> None:
    """Writes a folder that `load_encoder` and transformers' `AutoModel` read; the options are those of `save`."""
    with written(
        folder,
        encoder.model,
        ENCODERS[encoder.config.model_type].names(encoder.model.config),
        encoder.config,
        encoder.tokenizer,
        merge=merge,
        shard_bytes=shard_bytes,
        architectures=None,
    ):
        pass
