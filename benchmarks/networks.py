"""What the benchmarks train: dpnlp's T5, and a classifier on its BERT, with random weights."""

from dataclasses import dataclass

import numpy as np
import transformers
from flax import nnx

from dpnlp.bookkeeping import Array
from dpnlp.models import bert, cross_entropy, t5
from dpnlp.models.freezing import Filter
from dpnlp.models.readers import Config, Head, Reader, Strategy
from dpnlp.tasks import reading

CLIP_NORM = 1.0


@dataclass(frozen=True)
class Preset:
    """What is trained: the shape of the network, of a batch, and the type it computes in. The weights are float32."""

    family: str  # "t5": encoder and decoder; "bert": encoder and a classifier
    width: int
    heads: int
    head_width: int
    hidden: int
    layers: int
    vocabulary: int
    batch: int
    length: int
    dtype: str
    gated: bool = False
    tied: bool = False
    strategy: str = ""  # which part of a BERT is trained; without one all of it


PRESETS = {
    "micro": Preset("t5", 128, 4, 32, 256, 2, 4096, 16, 32, "float32", gated=True),
    "tiny": Preset("t5", 256, 4, 64, 1024, 4, 4096, 16, 32, "float32"),
    "t5-small": Preset("t5", 512, 8, 64, 2048, 6, 32_128, 64, 64, "bfloat16", tied=True),
    "mt5-small": Preset("t5", 512, 6, 64, 1024, 8, 250_112, 64, 64, "bfloat16", gated=True),
    "t5-base": Preset("t5", 768, 12, 64, 3072, 12, 32_128, 64, 128, "bfloat16", tied=True),
    "minilm": Preset("bert", 384, 12, 32, 1536, 6, 30_522, 64, 128, "bfloat16", strategy="tr-all"),
    "bert-base": Preset("bert", 768, 12, 64, 3072, 12, 30_522, 32, 128, "bfloat16"),
}


def build(preset: Preset) -> nnx.Module:
    """The network of a preset, with random weights."""
    return reader(preset) if preset.family == "bert" else t5.T5(config(preset), rngs=nnx.Rngs(0))


def trains(preset: Preset, model: nnx.Module) -> Filter:
    """Which of its parameters are trained."""
    return model.trained() if preset.strategy else nnx.Param  # type: ignore[attr-defined]


def reader(preset: Preset) -> Reader:
    """A BERT with two labels on its pooled state."""
    shape = bert.Config(
        vocabulary=preset.vocabulary,
        width=preset.width,
        layers=preset.layers,
        heads=preset.heads,
        hidden=preset.hidden,
        positions=512,
        dtype=preset.dtype,
    )
    strategy = Strategy(preset.strategy or "tr-all")
    return Reader(bert.BERT(shape, rngs=nnx.Rngs(0)), Config(Head.SEQUENCES, 2, strategy), rngs=nnx.Rngs(1))


def config(preset: Preset) -> t5.Config:
    """The T5 of a preset. T5 1.1 and mT5 have gates and an output layer of their own."""
    return t5.Config(
        vocabulary=preset.vocabulary,
        width=preset.width,
        heads=preset.heads,
        head_width=preset.head_width,
        hidden=preset.hidden,
        encoder_layers=preset.layers,
        decoder_layers=preset.layers,
        activation="gelu_tanh" if preset.gated else "relu",
        gated=preset.gated,
        tied=preset.tied,
        scaled_output=preset.tied,
        dtype=preset.dtype,
    )


def their_config(preset: Preset) -> transformers.PreTrainedConfig:
    """The same in the words of transformers."""
    kind = transformers.T5Config if preset.tied else transformers.MT5Config
    return kind(
        vocab_size=preset.vocabulary,
        d_model=preset.width,
        d_kv=preset.head_width,
        d_ff=preset.hidden,
        num_layers=preset.layers,
        num_heads=preset.heads,
        feed_forward_proj="gated-gelu" if preset.gated else "relu",
        dropout_rate=0.0,
        decoder_start_token_id=0,
    )


def batch(preset: Preset) -> dict[str, np.ndarray]:
    """Random tokens. Each example has its own length, from half of the preset's to all of it; the rest is masked."""
    rng = np.random.default_rng(0)
    shape = (preset.batch, preset.length)

    def tokens() -> tuple[np.ndarray, np.ndarray]:
        lengths = rng.integers((preset.length + 1) // 2, preset.length + 1, preset.batch)
        return rng.integers(2, preset.vocabulary, shape, np.int32), np.arange(preset.length) < lengths[:, None]

    ids, mask = tokens()
    if preset.family == "bert":
        return {"ids": ids, "mask": mask, "label": rng.integers(0, 2, preset.batch, np.int32)}
    return pairs(ids, mask, *tokens())


def pairs(ids: np.ndarray, mask: np.ndarray, targets: np.ndarray, target_mask: np.ndarray) -> dict[str, np.ndarray]:
    """Texts and their translations, as the loss takes them; the decoder starts with token 0."""
    inputs = np.pad(targets[:, :-1], ((0, 0), (1, 0)))
    return {"ids": ids, "mask": mask, "inputs": inputs, "targets": targets, "target_mask": target_mask}


def losses(model: nnx.Module, batch: dict[str, Array]) -> Array:
    """Cross-entropy of each example [batch], over the example's own tokens where it has several."""
    if "targets" in batch:
        return cross_entropy.losses(model, batch)
    return reading.cross_entropy(model(batch), batch["label"])  # type: ignore[operator]
