"""Canaries: made-up records that are put among those of a training, to see whether its model gives them away.

Each is drawn at random, in the shape of the task, and is put in by the toss of a fair coin of its own. Training treats
it as a record like any other. Afterwards every canary is scored by how far the model seems to have seen it, and

- exposure (Carlini et al. 2019) ranks each that was put in among those that were not, which were just as likely to be;
- the audit in one run (Steinke et al. 2023) turns the guesses at the coins into a lower bound on ε, by `Membership`.

There are two scores, and both are made without the coins:

    loss       ℓ_i(θ₀) − ℓ_i(θ), by how much the loss of canary i fell, with θ₀ the weights before training, θ after it
    movement   ⟨∇ℓ_i(θ₀), (θ₀ − θ)⊥⟩, how far the weights went along the canary's own gradient, where ⊥ takes away what
               each parameter went along its part of Σ_i ∇ℓ_i(θ₀): what canaries have in common tells nothing of one of
               them, and drowns out what does

Each number of guesses and each score may go wrong with its share of 1 − confidence, fixed before anyone looks, so that
the largest of all bounds has the confidence that is stated.

What is found depends on the model, on made-up records and on coins, and on no other record but through the model. So it
is post-processing: the guarantee covers it for everybody, and a canary is nobody.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from numpy.typing import NDArray

from dpnlp.audit.exposure import Exposed, expected_by_chance, ranked
from dpnlp.audit.membership import GUESSED, Membership, Scores
from dpnlp.checks import BadInput
from dpnlp.data.cache import Examples
from dpnlp.guarantee import Adjacency, Guarantee, percent
from dpnlp.mechanisms.randomness import Source, below
from dpnlp.training.parameters import Filter, Frame, Parameters, Parts, apart

WORDS = 12
"""Words of a canary."""
CHOICES = 1 << 30
"""A choice is a whole number below this, by which a label or a place is taken."""
LEAST, MOST = 10, 1_000_000
"""With fewer canaries than this no test says anything, and nobody draws more."""
CONFIDENCE = 0.95
"""How sure a bound is that the command line reports."""

_TRIES = 64
"""How many tokens are looked at, for each word that is needed, before a tokenizer is said to have none."""


class Canary(NamedTuple):
    """What a made-up record is made of, and whether it was put among the others."""

    words: tuple[str, ...]
    choices: tuple[int, ...]
    put_in: bool

    @property
    def text(self) -> str:
        """All of its words."""
        return " ".join(self.words)


class Canaries(tuple[Canary, ...]):
    """All canaries of a run, those included that were not put in."""

    @classmethod
    def drawn(cls, count: int, tokenizer: Any, source: Source) -> "Canaries":
        """So many, of words of a vocabulary, each word as likely as any other, and each put in by a fair coin."""
        words = _words(tokenizer, count * WORDS, source)
        choices = below(source, CHOICES, count * WORDS).tolist()
        coins = below(source, 2, count).astype(bool).tolist()
        places = [slice(start, start + WORDS) for start in range(0, count * WORDS, WORDS)]
        made = [(tuple(words[place]), tuple(choices[place])) for place in places]
        return cls(Canary(*one, coin) for one, coin in zip(made, coins, strict=True))

    @property
    def put_in(self) -> NDArray[np.bool_]:
        """The coins, [canaries]."""
        return np.array([canary.put_in for canary in self], np.bool_)

    def to_json(self) -> dict[str, Any]:
        """All of them, for a run that is stopped to go on with the same."""
        return {"canaries": [canary._asdict() for canary in self]}

    @classmethod
    def from_json(cls, entry: Mapping[str, Any]) -> "Canaries":
        """Reads what `to_json` wrote."""
        return cls(Canary(tuple(one["words"]), tuple(one["choices"]), one["put_in"]) for one in entry["canaries"])


def _words(tokenizer: Any, count: int, source: Source) -> list[str]:
    """So many words, each of them one token, drawn from the whole vocabulary; what is no word is drawn again."""
    found, special = list[str](), set(tokenizer.all_special_ids)
    for _ in range(_TRIES):
        tokens = [[token] for token in below(source, len(tokenizer), count).tolist() if token not in special]
        found += [text.strip() for text in tokenizer.batch_decode(tokens) if text.strip().isalnum()]
        if len(found) >= count:
            return found[:count]
    raise BadInput("audit.canaries: hardly any token of the tokenizer is a word to make canaries of; leave them out.")


Loss = Callable[[nnx.Module, Any], jax.Array]


def scores(
    start: nnx.Module,
    trained: nnx.Module,
    trains: Filter,
    loss: Loss,
    examples: Examples,
    longest: int,
    batch: int = 64,
) -> dict[str, Scores]:
    """Both scores of each canary, [canaries], by name; one that is several examples has the sum of theirs.

    `trains` says which weights were trained. No score looks at who was put in.
    """
    before, after = apart(start, trains), jax.device_get(apart(trained, trains).parameters)  # wherever they were
    common = jax.tree.map(jnp.zeros_like, before.parameters)
    for rows, given in examples.by_length(batch, longest):
        common = _add_gradients(loss, before.frame, before.rest, before.parameters, common, given, len(rows))
    movement = _without(common, jax.tree.map(jnp.subtract, before.parameters, after))
    found = np.empty((2, len(examples)))
    for rows, given in examples.by_length(batch, longest):
        both = _seen(loss, before.frame, before.rest, before.parameters, after, movement, given)
        found[:, rows] = np.asarray(both)[:, : len(rows)]
    sound = np.nan_to_num(found, nan=0.0, posinf=0.0, neginf=0.0)  # where training has gone astray
    whose = np.arange(len(examples)) if examples.records is None else examples.records
    total = [np.bincount(whose, own).astype(np.float64) for own in sound]
    return dict(zip(("loss", "movement"), total, strict=True))


@partial(jax.jit, static_argnums=(0, 1), donate_argnums=4)
def _add_gradients(
    loss: Loss, frame: Frame, rest: Any, before: Parameters, total: Parameters, batch: Any, real: int
) -> Parameters:
    """Adds Σ_i ∇ℓ_i(θ₀) over the first `real` examples of a batch."""

    def whole(parameters: Parameters) -> jax.Array:
        losses = loss(Parts(frame, parameters, rest).model(), batch).astype(jnp.float32)
        return jnp.sum(jnp.where(jnp.arange(losses.size) < real, losses, 0))

    added: Parameters = jax.tree.map(jnp.add, total, jax.grad(whole)(before))
    return added


@jax.jit
def _without(common: Parameters, movement: Parameters) -> Parameters:
    """What is left of a movement without what each parameter goes along its common direction."""

    def left(own: jax.Array, shared: jax.Array) -> jax.Array:
        return own - shared * jnp.vdot(shared, own) / jnp.maximum(jnp.vdot(shared, shared), 1e-30)

    return {name: left(own, common[name]) for name, own in movement.items()}


@partial(jax.jit, static_argnums=(0, 1))
def _seen(
    loss: Loss, frame: Frame, rest: Any, before: Parameters, after: Parameters, movement: Parameters, batch: Any
) -> jax.Array:
    """ℓ(θ₀) − ℓ(θ), and the slope of ℓ at θ₀ along the movement, of each example, [2, batch].

    u ↦ Σ u_i ∇ℓ_i is linear, and the transpose of it maps a direction to the slope of each loss along it.
    """

    def losses(parameters: Parameters) -> jax.Array:
        return loss(Parts(frame, parameters, rest).model(), batch).astype(jnp.float32)

    own, gradients = jax.vjp(losses, before)
    _, slopes = jax.vjp(lambda u: gradients(u)[0], jnp.zeros_like(own))
    return jnp.stack((own - losses(after), *slopes(movement)))


@dataclass(frozen=True)
class Found:
    """What scores, made without the coins, tell of canaries. Of the first score exposures are computed.

    `written` says how many of so many canaries that were put in the model writes out, given their first half.
    """

    canaries: Canaries
    scores: Mapping[str, Scores]
    written: tuple[int, int] | None = None

    @property
    def comparable(self) -> bool:
        """Whether some were put in and some were not; else there is nothing to compare."""
        return 0 < int(self.canaries.put_in.sum()) < len(self.canaries)

    @cached_property
    def attacks(self) -> list[Membership]:
        """The guesses at who was put in, by each score."""
        if not self.comparable:
            return []
        return [Membership(name, own, self.canaries.put_in, drawn=True) for name, own in self.scores.items()]

    def bounds(self, delta: float, confidence: float = CONFIDENCE) -> dict[str, float]:
        """What ε is above, by each score; all of them hold together with this confidence."""
        return {attack.attack: attack.epsilon(delta, self._each(confidence)) for attack in self.attacks}

    def above(self, delta: float, confidence: float = CONFIDENCE) -> float:
        """What ε of the training is above, with this confidence; 0 where no ε is refuted."""
        return max(self.bounds(delta, confidence).values(), default=0.0)

    def most(self, delta: float, confidence: float = CONFIDENCE) -> float:
        """What `above` would be if every canary that was put in had a higher score than all others."""
        return _sure(self.canaries.put_in, delta, self._each(confidence)) if self.comparable else 0.0

    def needed(self, epsilon: float, delta: float, confidence: float = CONFIDENCE) -> int | None:
        """About how many canaries could refute this ε at this δ; None where no number up to a million could.

        By (ε, 0)-DP all of n/2 guesses are right with probability (1 + e^−ε)^−n/2 at most. With δ, each canary adds a
        chance that it is given away as a whole, which is promised too.
        """
        each = self._each(confidence)
        least = 2 * math.log(len(GUESSED) / (1 - each)) / math.log1p(math.exp(-epsilon))
        for count in (math.ceil(more * least) for more in (1.0, 1.1, 1.2, 1.5, 2.0)):
            if count <= MOST and _sure(np.arange(count) % 2 == 0, delta, each) > epsilon:
                return count
        return None

    def _each(self, confidence: float) -> float:
        """The confidence that each score is to have so that all of them together have this one."""
        return 1 - (1 - confidence) / len(self.scores)

    @cached_property
    def exposures(self) -> list[Exposed]:
        """Of each that was put in, among those that were not; the most exposed first."""
        if not self.comparable:
            return []
        score, coins = -next(iter(self.scores.values())), self.canaries.put_in
        found = [ranked(self.canaries[place].text, score[place], score[~coins]) for place in np.flatnonzero(coins)]
        return sorted(found, key=lambda exposed: exposed.rank)

    def statement(self, claimed: Guarantee, confidence: float = CONFIDENCE) -> str:
        """What was found, beside what is claimed, and what that does not prove."""
        return " ".join((self._drawn(), *self._compared(claimed, confidence), *self._written(), _LIMITS))

    def _drawn(self) -> str:
        return (
            f"{len(self.canaries):,} canaries were drawn, records that are made up and belong to nobody, and a fair "
            f"coin each put {int(self.canaries.put_in.sum()):,} of them among the training data."
        )

    def _compared(self, claimed: Guarantee, confidence: float) -> list[str]:
        if not self.comparable:
            return ["All of them were put in, or none, so that there is nothing to compare."]
        bound, most = (side(claimed.delta, confidence) for side in (self.above, self.most))
        at = f"at δ = {claimed.delta:g}, with {percent(confidence, 6)} confidence"
        shown = (
            f"Guesses at the coins show that ε > {bound:.2f} {at}" if bound else f"Guesses at the coins show no ε {at}"
        )
        reach = f"guesses without a mistake at so many coins would show ε > {most:.2f}"
        if not claimed.is_private:
            return [f"{shown}; {reach}. Nothing is claimed that this could refute."]
        if bound > claimed.epsilon:
            return [
                f"{shown}, but ε ≤ {claimed.epsilon:g} is claimed. THE CLAIM IS REFUTED: do not rely on it, and do not "
                "publish the model."
            ]
        words = [f"{shown}; ε ≤ {claimed.epsilon:g} is claimed, which is not refuted; {reach}."]
        if most <= claimed.epsilon:
            needed = self.needed(claimed.epsilon, claimed.delta, confidence)
            takes = f"it takes about {needed:,}" if needed else f"and no number up to {MOST:,} could at this δ"
            words.append(f"So few canaries could not have refuted the claim, whatever the training did; {takes}.")
        if claimed.adjacency is not Adjacency.ADD_REMOVE:
            words.append(
                "The claim is about exchanged records. That a canary is in or out is a smaller change, so that the "
                "bound is for less than what is claimed."
            )
        return words

    def _written(self) -> list[str]:
        if self.written is None:
            return []
        told, asked = self.written
        return [f"Given its first half, the model writes out {told:,} of {asked:,} canaries that were put in."]

    def to_json(self, claimed: Guarantee, confidence: float = CONFIDENCE, shown: int = 5) -> dict[str, Any]:
        """For the record of a run, with the most exposed canaries."""
        bounds, above = self.bounds(claimed.delta, confidence), self.above(claimed.delta, confidence)
        exposed = self.exposures
        return {
            "canaries": len(self.canaries),
            "put_in": int(self.canaries.put_in.sum()),
            "claimed": claimed.epsilon if claimed.is_private else "inf",
            "delta": claimed.delta,
            "confidence": confidence,
            "above": above,
            "most": self.most(claimed.delta, confidence),
            "refuted": above > claimed.epsilon,
            "scores": [
                {"score": attack.attack, "auc": attack.auc, "chance": attack.chance, "above": bounds[attack.attack]}
                for attack in self.attacks
            ],
            "exposure": {
                "mean": float(np.mean([one.exposure for one in exposed])),
                "by_chance": expected_by_chance(exposed[0].candidates),
                "at_most": exposed[0].ceiling,
                "highest": [one.to_json() for one in exposed[:shown]],
            }
            if exposed
            else None,
            "written": None if self.written is None else {"canaries": self.written[1], "written": self.written[0]},
            "statement": self.statement(claimed, confidence),
        }


def _sure(coins: NDArray[np.bool_], delta: float, confidence: float) -> float:
    """The bound of a score that is higher for every canary that was put in than for any other."""
    known = coins + np.linspace(0, 0.5, len(coins))
    return Membership("coins", known, coins, drawn=True).epsilon(delta, confidence)


_LIMITS = (
    "An audit that refutes nothing proves nothing: other canaries, more of them, or a better attack may show more. It "
    "may see training that hardly adds noise or does not clip, and may miss a single layer that is not clipped; half "
    "of the noise that is claimed, or a record that is used twice, it does not see, not even with the best of scores. "
    "Only the proof behind the guarantee speaks of all records and all attacks."
)
"""What is said of every audit; `python -m benchmarks.canaries` has the defects that were planted."""
