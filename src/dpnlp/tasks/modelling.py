"""Language modelling: a model learns what comes next in a text (McMahan et al. 2018, arXiv 1710.06963).

A text is its tokens and the end token; what a model reads before the first of them is the end token, too. Where a
record of the guarantee is a text, it is one row, and what does not fit into `longest` tokens is not learned from. Where
it is an owner, its texts follow one another in rows of `longest` tokens, up to `tokens_per_owner` of them, never with
those of another owner in one row.

A model is scored on all tokens of each text by itself.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from numpy.typing import NDArray

from dpnlp import checks
from dpnlp.checks import BadInput
from dpnlp.data.cache import Examples, Numbers, Ragged, kept
from dpnlp.data.packing import COLUMNS, Packed, packed
from dpnlp.data.plain import Text
from dpnlp.data.records import Records
from dpnlp.data.tokens import state
from dpnlp.metrics.perplexity import Unigram, accuracy_top1, perplexity
from dpnlp.metrics.score import Score
from dpnlp.models import cross_entropy
from dpnlp.models.generation import LENGTHS, generate
from dpnlp.models.language import LanguageModel
from dpnlp.models.pretrained import PretrainedLanguageModel


@dataclass(frozen=True)
class Continuing:
    """How a text goes on after a prompt: up to `longest` new tokens, the most probable ones, or drawn by a seed."""

    longest: int = 32
    beams: int = 1
    sample: bool = False
    temperature: float = 1.0
    top_k: int | None = None
    top_p: float = 1.0
    seed: int = 0
    batch: int = 32

    @property
    def options(self) -> dict[str, Any]:
        """The same, as `Generation` names it."""
        names = ("beams", "sample", "temperature", "top_k", "top_p")
        return {"max_length": self.longest, "min_length": 0, **{name: getattr(self, name) for name in names}}


@dataclass(frozen=True)
class Modelling:
    """A model with its tokenizer, and how texts are put to it."""

    pretrained: PretrainedLanguageModel
    longest: int = 64
    tokens_per_owner: int = 1600
    smoothing: float = 0.0

    def __post_init__(self) -> None:
        if self.tokenizer is None:
            raise BadInput("model: its folder has no tokenizer, without which no text can be read; add its files.")
        if self.tokenizer.eos_token_id is None:
            raise BadInput(
                "tokenizer: it has no end token (eos_token), and a model would not learn where a text stops; take one "
                "that has."
            )
        checks.count("longest", self.longest, least=2)
        checks.count("tokens_per_owner", self.tokens_per_owner)
        positions = getattr(self.pretrained.model.config, "positions", None)
        if positions is not None and self.longest > positions:
            raise BadInput(f"longest = {self.longest}: the model has positions for at most {positions}; lower it.")

    def of(self, model: nnx.Module) -> "Modelling":
        """The same with another model of the same shape, such as one that was trained."""
        return replace(self, pretrained=replace(self.pretrained, model=cast(LanguageModel, model)))

    @property
    def tokenizer(self) -> Any:
        return self.pretrained.tokenizer

    @property
    def end(self) -> int:
        """What stands after each text, and before the first."""
        return int(self.tokenizer.eos_token_id)

    @property
    def unknown(self) -> int | None:
        """What stands for a word outside the vocabulary; tokenizers of bytes have none, whatever they name."""
        found = self.tokenizer.unk_token_id
        return None if found is None or found == self.end else int(found)

    def tokenized(self, texts: Records[Text], cache: Path) -> Examples:
        """The whole texts as tokens, made once and kept in the cache."""
        largest = max(self.tokenizer.get_vocab().values())
        made_by = type(self).__name__, state(self.tokenizer)
        return kept(texts, COLUMNS, self._numbers, made_by, cache=cache, largest=largest)

    def rows(self, texts: Examples, owners: NDArray[Any] | None) -> Examples:
        """Tokenized texts as the engine takes them; with `owners`, of each text, as rows of these."""
        if owners is None:
            made = self._packed(texts.ragged["ids"], np.arange(len(texts)), self.longest - 1)
        else:
            made = self._packed(texts.ragged["ids"], np.asarray(owners), self.tokens_per_owner)
        return made.examples(owned=owners is not None)

    def examples(self, texts: Sequence[Text], owners: NDArray[Any] | None = None) -> Examples:
        """A few texts as the engine takes them, kept nowhere: a row for each, or rows of the `owners` of these."""
        return self.rows(Examples.of(COLUMNS, self._numbers(texts)), owners)

    def made_up(self, words: Sequence[str], choices: Sequence[int]) -> Text:
        """Nobody's text: the words."""
        return Text(" ".join(words), None)

    def loss(self, model: nnx.Module, batch: dict[str, jax.Array]) -> jax.Array:  # [batch]
        """The cross-entropy of each row, as the mean over its own tokens (law 4)."""
        states, targets, real = _followed(cast(LanguageModel, model), batch["ids"], batch["mask"])
        return cross_entropy.of_states(cast(LanguageModel, model), states, targets, real, smoothing=self.smoothing)

    def score(self, texts: Sequence[Text], batch: int = 32) -> "Modelled":
        """What the model expected at each token of the texts, of which each is read by itself."""
        targets = Ragged.of(self._encoded([text.text for text in texts]))
        rows = self._packed(targets, np.arange(len(texts)), None).examples(owned=False)
        sizes = rows.lengths - 1
        ends = np.cumsum(sizes)  # One after the other, the rows hold the tokens of all texts.
        losses, guesses = np.empty(len(targets.numbers), np.float32), np.empty(len(targets.numbers), np.int32)
        structure, weights = nnx.split(self.pretrained.model)
        for chosen, given in rows.by_length(batch, self.longest):
            found = _expected(structure, self.unknown, weights, given["ids"], given["mask"])
            for row, loss, guess in zip(chosen, *map(np.asarray, found), strict=False):
                place = slice(ends[row] - sizes[row], ends[row])
                losses[place], guesses[place] = loss[: sizes[row]], guess[: sizes[row]]
        return Modelled(tuple(texts), targets, losses, guesses, self.unknown, self.tokenizer)

    def surprise(self, texts: Sequence[Text], batch: int = 32) -> NDArray[np.float32]:
        """−log p of each text as a whole, [texts]: how little the model expects it."""
        found = self.score(texts, batch)
        return np.add.reduceat(found.losses, found.tokens.offsets[:-1])

    def proceed(self, prompts: Sequence[str], how: Continuing) -> list[str]:
        """What the model adds to each prompt. Of a prompt for which it has no room the last tokens are read."""
        room = self.pretrained.model.longest_input(how.longest) or LENGTHS[-1]
        ids = [[self.end, *tokens[:-1]][-room:] for tokens in self._encoded(prompts)]
        never = () if self.unknown is None else (self.unknown,)
        options = self.pretrained.options(self.end, **how.options, suppressed=never)
        key = jax.random.key(how.seed) if how.sample else None
        found = generate(self.pretrained.model, ids, options, batch=min(how.batch, len(ids)), key=key)
        return [self._added(prompt, new) for prompt, new in zip(ids, found, strict=True)]

    def _added(self, prompt: list[int], new: list[int]) -> str:
        """The text of the new tokens as it follows that of the prompt, on one line."""
        before, whole = (self.tokenizer.decode(ids, skip_special_tokens=True) for ids in (prompt, prompt + new))
        return " ".join(whole[len(before) :].split("\n"))

    def _packed(self, texts: Ragged, owners: NDArray[Any], most: int | None) -> Packed:
        return packed(texts, owners, longest=self.longest, start=self.end, most=most)

    def _numbers(self, texts: Sequence[Text]) -> Numbers:
        return {"ids": self._encoded([text.text for text in texts])}

    def _encoded(self, texts: Sequence[str]) -> list[list[int]]:
        """All tokens of each text, and the end."""
        if not texts:
            return []
        options = {"add_special_tokens": False, "return_attention_mask": False, "return_token_type_ids": False}
        found = self.tokenizer(list(texts), truncation=False, verbose=False, **options)["input_ids"]
        return [[*ids, self.end] for ids in found]


@dataclass(frozen=True)
class Modelled:
    """Texts, and what a model expected at each of their tokens: −log p of the true one, and the most probable one.

    A guess is a word that is known: that some unknown one comes next is no guess that could be right.
    """

    texts: tuple[Text, ...]
    tokens: Ragged
    losses: NDArray[np.float32]  # [tokens of all texts]
    guesses: NDArray[np.int32]  # [tokens of all texts]
    unknown: int | None
    tokenizer: Any

    def scores(self) -> dict[str, Score]:
        """AccuracyTop1, and the perplexity, of all tokens; the end of each text is one of them."""
        how = {"ends": "counted", "vocabulary": len(self.tokenizer)}
        accuracy = accuracy_top1(self.guesses, self.tokens.numbers, self.unknown, guesses="known", **how)
        return {"accuracy_top1": accuracy, "perplexity": perplexity(self.losses, **how)}

    def details(self) -> dict[str, Any]:
        """What a guess without context would reach on these texts."""
        found = asdict(Unigram.of(self.tokens.numbers, self.unknown))
        return {"unigram": {**found, "token": self.tokenizer.convert_ids_to_tokens(found["token"])}}

    def lines(self) -> Iterator[dict[str, str]]:
        """Each text, its tokens, and the token that was expected in the place of each."""
        guesses = Ragged(self.guesses, self.tokens.offsets)
        for place, text in enumerate(self.texts):
            true, guessed = (
                " ".join(self.tokenizer.convert_ids_to_tokens(side.lists([place])[0]))
                for side in (self.tokens, guesses)
            )
            yield {"source": text.text, "reference": true, "hypothesis": guessed}


def _followed(model: LanguageModel, ids: jax.Array, mask: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The states after each token of rows [batch, length], the tokens that follow, and where there is one."""

    def next_one(array: jax.Array) -> jax.Array:
        return jnp.pad(array[:, 1:], ((0, 0), (0, 1)))

    return model.states(ids, mask), next_one(ids), next_one(mask)


@partial(jax.jit, static_argnums=(0, 1))
def _expected(
    structure: Any, never: int | None, weights: Any, ids: jax.Array, mask: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """−log p of the token after each one, and the most probable token there but `never`, [batch, length] each.

    The logits of one row are held at a time.
    """
    model: LanguageModel = nnx.merge(structure, weights)
    states, targets, _ = _followed(model, ids, mask)

    def of_row(row: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        state, target = (side[None] for side in row)
        logits = model.logits(state).astype(jnp.float32)
        own = jnp.take_along_axis(logits, target[..., None], axis=-1)[..., 0]
        known = logits if never is None else logits.at[..., never].set(-jnp.inf)
        return (jax.nn.logsumexp(logits, axis=-1) - own)[0], jnp.argmax(known, axis=-1)[0].astype(jnp.int32)

    found: tuple[jax.Array, jax.Array] = jax.lax.map(of_row, (states, targets))
    return found
