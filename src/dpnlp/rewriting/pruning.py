"""DP-BART-PR (thesis §6.3.4, Algorithm 1): neurons are pruned and the model is trained again, in turns.

Fewer neurons mean a smaller sensitivity, hence less noise at the same ε. Which of them are pruned depends on the model,
never on a text that is rewritten.
"""

from collections.abc import Sequence
from dataclasses import replace

import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from dpnlp import checks
from dpnlp.mechanisms.randomness import OS_ENTROPY, Source
from dpnlp.models.seq2seq import Seq2Seq
from dpnlp.rewriting.bart_autoencoder import Autoencoder, Training


def importance(model: Seq2Seq) -> NDArray[np.float32]:
    """Σ_o |K_jo| for each neuron j of the encoder's output, [d_tok].

    K is the projection to keys of the cross-attention in the decoder's first layer, which the thesis found best.
    """
    K = model.decoder[0].cross_attention.key.kernel[...]  # [d_tok, heads · width of a head]
    return np.asarray(jnp.sum(jnp.abs(K), axis=1), np.float32)


def more_pruned(importance: NDArray[np.float32], pruned: Sequence[int], share: float = 0.25) -> tuple[int, ...]:
    """P after one more round: those of the neurons left whose importance lies below its quantile join it.

    Of m neurons that differ, ⌈(m − 1)/4⌉ lie below the quantile of 25 %: 768 become 576, 432, 324, 243 and 182.
    """
    left = np.setdiff1d(np.arange(len(importance)), pruned)
    threshold = np.quantile(importance[left], checks.probability("share", share))
    return tuple(sorted({*pruned, *left[importance[left] < threshold].tolist()}))


def prune(
    autoencoder: Autoencoder,
    texts: Sequence[str],
    training: Training,
    *,
    rounds: int = 6,
    share: float = 0.25,
    private: bool = False,
    source: Source = OS_ENTROPY,
) -> Autoencoder:
    """The model after so many rounds of pruning and training, with the neurons that the last round but one left.

    While it trains, states are clipped to the bound it has; the thesis takes C = 0.2 here, and 0.1 to rewrite.
    """
    checks.count("rounds", rounds, least=2, remedy="the neurons of the round before the last one are kept")
    now, before = autoencoder, autoencoder.bottleneck
    for _ in range(rounds):
        before = now.bottleneck
        P = more_pruned(importance(now.pretrained.model), before.pruned, share)
        now = replace(now, bottleneck=replace(before, pruned=P)).trained(
            texts, training, private=private, source=source
        )
    return replace(now, bottleneck=before)
