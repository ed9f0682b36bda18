"""BERTScore (Zhang et al. 2020): how alike texts are by the states that an encoder gives their tokens.

Each token x̂ of a hypothesis is matched with the token x of the reference that is most like it, and the other way round:

    P = Σ_x̂ w(x̂) max_x cos(x, x̂) / Σ_x̂ w(x̂)    R = Σ_x w(x) max_x̂ cos(x, x̂) / Σ_x w(x)    F = 2PR/(P + R)

The weight w is 1, or the token's inverse document frequency among the references: −log((c + 1)/(N + 1)) where it is in
c of N. The tokens that start and end a text have weight 0, though others may be matched with them. All of this is as
the package bert-score has it, but for padding, which counts there as a token of similarity 0, and here not at all.
"""

import csv
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from dpnlp import checks
from dpnlp.checks import BadInput
from dpnlp.metrics.score import References, Score, Texts, paired

Array = np.ndarray[Any, Any]
_STEP = 16
"""Lengths are rounded up to a multiple of this, so that few shapes are compiled."""


class Model(Protocol):
    """What gives tokens their states: `hidden` has those before the first layer, and after each up to `layers`."""

    @property
    def config(self) -> Any: ...  # with the fields `layers` and `positions`

    def hidden(self, ids: Any, mask: Any, *, layers: int) -> list[Any]: ...


class Encoder(Protocol):
    """An encoder with its tokenizer, such as `load_encoder` gives."""

    @property
    def model(self) -> Model: ...

    @property
    def tokenizer(self) -> Any: ...

    @property
    def name(self) -> str: ...


class Similarity(NamedTuple):
    """P, R and F of each hypothesis [hypotheses], from −1 to 1 where nothing is rescaled."""

    precision: Array
    recall: Array
    f1: Array


def bertscore(
    hypotheses: Texts,
    references: References,
    encoder: Encoder,
    *,
    layer: int,
    idf: bool = False,
    baseline: str | Path | None = None,
    batch: int = 32,
) -> Score:
    """100 times the mean F of all hypotheses; the options are those of `similarities`.

    The package prints the mean itself, a hundredth of this, which has the scale of BLEU.
    """
    found = similarities(hypotheses, references, encoder, layer=layer, idf=idf, baseline=baseline, batch=batch)
    rescaled = "" if baseline is None else "-custom-rescaled"
    weighed = "idf" if idf else "no-idf"
    signature = f"BERTScore|{encoder.name}_L{layer}_{weighed}_version=dpnlp-{version('dpnlp')}{rescaled}"
    return Score(100 * float(np.mean(found.f1)), signature)


def similarities(
    hypotheses: Texts,
    references: References,
    encoder: Encoder,
    *,
    layer: int,
    idf: bool = False,
    baseline: str | Path | None = None,
    batch: int = 32,
) -> Similarity:
    """P, R and F of each hypothesis; of several references the best of each.

    States are those after `layer` layers, `batch` texts at a time. `idf` weighs rare tokens more. `baseline` is a file
    of the package with a line LAYER,P,R,F for each layer, the scores b of texts that have nothing in common: x becomes
    (x − b)/(1 − b). A text without tokens scores 0.
    """
    pairs = paired(hypotheses, references)
    checks.count("batch", batch)
    if checks.count("layer", layer, least=0) > (most := encoder.model.config.layers):
        raise BadInput(f"layer = {layer}: the encoder has {most} layers; choose one of 0 to {most}.")
    zero = None if baseline is None else _baseline(Path(baseline), layer)
    split = _splitter(encoder)
    tokens = {text: split(text) for hypothesis, several in pairs for text in (hypothesis, *several)}
    weights = _weights(encoder, [tokens[text] for _, several in pairs for text in several] if idf else None)
    matches = list(dict.fromkeys((hypothesis, one) for hypothesis, several in pairs for one in several))
    found = dict(zip(matches, _matched(matches, tokens, weights, encoder, layer, batch), strict=True))
    best = np.array([np.max([found[hypothesis, one] for one in several], axis=0) for hypothesis, several in pairs])
    return Similarity(*(best if zero is None else (best - zero) / (1 - zero)).T)


def _splitter(encoder: Encoder) -> Callable[[str], list[int]]:
    """Cuts a text into its tokens, with a start and an end, and what is too long for the encoder cut off."""
    tokenizer = encoder.tokenizer
    if tokenizer is None:
        raise BadInput(f"encoder = {encoder.name}: its folder has no tokenizer; add the files of the tokenizer.")
    longest = min(tokenizer.model_max_length, encoder.model.config.positions)
    # A word of RoBERTa's is another one where no space is before it; the first of a text is to be like the others.
    before = " " if type(tokenizer).__name__.startswith("Roberta") else ""

    def split(text: str) -> list[int]:
        text = text.strip()
        ids: list[int] = tokenizer(before + text if text else "", truncation=True, max_length=longest)["input_ids"]
        return ids

    return split


def _weights(encoder: Encoder, references: list[list[int]] | None) -> Callable[[int], float]:
    """The weight of a token: by how rare it is among the references, if these are given."""
    if references is None:
        edges = {encoder.tokenizer.cls_token_id, encoder.tokenizer.sep_token_id}
        return lambda token: float(token not in edges)
    counts = Counter(token for ids in references for token in set(ids))
    return lambda token: math.log((len(references) + 1) / (counts[token] + 1))


def _baseline(path: Path, layer: int) -> Array:
    """P, R and F of unrelated texts at this layer: [3]."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = {int(row["LAYER"]): [float(row[name]) for name in "PRF"] for row in csv.DictReader(file)}
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise BadInput(
            f"baseline = {path}: it cannot be read as lines of LAYER,P,R,F; take a file of the package bert-score."
        ) from error
    if layer not in rows:
        raise BadInput(f"baseline = {path}: it has no line for layer {layer}; choose a layer that it has.")
    return np.array(rows[layer])


def _matched(
    matches: Sequence[tuple[str, str]],
    tokens: dict[str, list[int]],
    weigh: Callable[[int], float],
    encoder: Encoder,
    layer: int,
    batch: int,
) -> Array:
    """P, R and F of each hypothesis and its reference: [matches, 3]. Those of about one length go together."""
    structure, state = nnx.split(encoder.model)
    order = sorted(range(len(matches)), key=lambda place: [len(tokens[text]) for text in matches[place]])
    found = np.zeros((len(matches), 3))
    for places in _chunks(order, batch):
        sides = zip(*(matches[place] for place in places), strict=True)
        padded = [_padded([tokens[text] for text in side], weigh, batch, encoder) for side in sides]
        found[places] = np.asarray(_similarity(structure, state, layer, *padded))[: len(places)]
    return found


def _chunks(order: list[int], size: int) -> Iterator[list[int]]:
    return (order[start : start + size] for start in range(0, len(order), size))


class _Side(NamedTuple):
    """Texts as an encoder takes them: [batch, length] each."""

    ids: Array
    mask: Array
    weights: Array


def _padded(texts: list[list[int]], weigh: Callable[[int], float], batch: int, encoder: Encoder) -> _Side:
    """The texts in a shape that few batches differ in."""
    longest = max(map(len, texts))
    length = min(_STEP * math.ceil(longest / _STEP), max(longest, encoder.model.config.positions))
    side = _Side(
        np.full((batch, length), encoder.tokenizer.pad_token_id),
        np.zeros((batch, length), int),
        np.zeros((batch, length)),
    )
    for row, ids in enumerate(texts):
        side.ids[row, : len(ids)], side.mask[row, : len(ids)] = ids, 1
        side.weights[row, : len(ids)] = [weigh(token) for token in ids]
    return side


@partial(jax.jit, static_argnums=(0, 2))
def _similarity(structure: Any, state: Any, layer: int, hypotheses: _Side, references: _Side) -> Any:
    """P, R and F of texts that are padded: [batch, 3]."""
    model = nnx.merge(structure, state)

    def unit(side: _Side) -> Any:  # [batch, length, width]
        x = model.hidden(side.ids, side.mask, layers=layer)[-1].astype(jnp.float32)
        return x / jnp.linalg.norm(x, axis=-1, keepdims=True)

    alike = jnp.einsum("bhd,brd->bhr", unit(hypotheses), unit(references), precision="highest")
    alike = jnp.where(hypotheses.mask[:, :, None] * references.mask[:, None, :] > 0, alike, -2.0)

    def mean(best: Any, weights: Any) -> Any:  # [batch, length] -> [batch]
        total = jnp.sum(weights, axis=1)
        return jnp.sum(weights * best, axis=1) / jnp.where(total > 0, total, 1)

    P = mean(jnp.max(alike, axis=2), hypotheses.weights)
    R = mean(jnp.max(alike, axis=1), references.weights)
    said = (jnp.sum(hypotheses.weights, axis=1) > 0) & (jnp.sum(references.weights, axis=1) > 0) & (P + R != 0)
    F = 2 * P * R / jnp.where(said, P + R, 1)
    return jnp.where(said[:, None], jnp.stack([P, R, F], axis=1), 0)
