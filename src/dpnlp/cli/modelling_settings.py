"""The settings that are those of language modelling: which texts, which model, and how texts go on after a prompt."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from dpnlp.checks import BadInput
from dpnlp.cli import sections
from dpnlp.cli.config import option
from dpnlp.cli.ranges import COUNT, FEW, FEW_OR_0, PART, RATE, SEED, SHARE, SIZE
from dpnlp.cli.start import PUBLIC

if TYPE_CHECKING:
    from dpnlp.data.corpora import Corpus
    from dpnlp.tasks.modelling import Continuing


@dataclass(frozen=True, kw_only=True)
class Data(sections.Files):
    """Which texts, and how they are put to a model."""

    train: tuple[str, ...] = option(
        (),
        help="What to learn from: a .jsonl, .csv, .tsv or .parquet file, any other file with a text a line (each may "
        "end in .gz or .xz), a folder saved by datasets, or a dataset of the hub as NAME or NAME:CONFIG",
    )
    corpus: str | None = option(None, help="Instead of files, a corpus by name: chitchat or plays")
    text: str = option("text", help="The column of the text")
    longest: int = option(
        64,
        within=SIZE,
        help="A row has this many tokens; of a text that is one record the rest is left out, and an owner has as many "
        "rows as its texts need",
    )
    tokens_per_owner: int = option(
        1600,
        within=COUNT,
        help="The most tokens of one owner, the first ones, where owners are records; of the rows that they fill, at "
        "most --privacy.examples-per-owner take part",
    )

    def _read(self, source: str | tuple[str, ...], split: str) -> Any:
        from dpnlp.data.plain import Columns, plain

        if not isinstance(source, str):
            raise BadInput(f"data.{split} = {' '.join(source)}: it must be one file; give one.")
        return plain(source, Columns(self.text, self.owner), split)

    def _named(self, name: str) -> "Corpus[Any]":
        from dpnlp.data.corpora import named

        return named(name, self.folder, owner=self.owner, kind="plain")


@dataclass(frozen=True)
class Model:
    """What is trained."""

    start: str = option(
        help="A folder or id of Hugging Face with a GPT-2, the folder of a run of dpnlp, or, for one with random "
        "weights, lstm or decoder"
    )
    public_start: bool = option(False, help=PUBLIC)
    vocabulary: str | None = option(
        None,
        help="For lstm and decoder: a folder or id that has a tokenizer made of public texts, or one made of private "
        "texts by dpnlp vocabulary, whose cost is added",
    )
    computes: Literal["float32", "bfloat16"] = option("float32", help="The type that it computes in; bfloat16 on a GPU")
    dropout: float | None = option(None, within=PART, help="Replaces all dropout rates of the model")
    trains: tuple[str, ...] = option(("*",), help="Which parameters are trained, such as 'layers.*' or last:2")
    frozen: tuple[str, ...] = option((), help="Which of these are not, such as tokens or positions")
    lora: int = option(
        0, within=FEW_OR_0, help="The rank of adapters that a GPT-2 is trained through instead; 0 has none"
    )
    width: int = option(96, within=SIZE, help="For lstm and decoder: the width of the embeddings")
    hidden: int = option(
        256, within=SIZE, help="For lstm: its cells; for decoder: the width of the feed-forward layers"
    )
    layers: int = option(2, within=FEW, help="For decoder: its layers")
    heads: int = option(4, within=FEW, help="For decoder: heads of attention")

    @property
    def from_scratch(self) -> bool:
        return self.start in ("lstm", "decoder")


@dataclass(frozen=True)
class Writing:
    """How a text goes on after a prompt."""

    longest: int = option(32, within=SIZE, help="The most new tokens")
    beams: int = option(1, within=FEW, help="Beams of the search for the best text; 1 takes the best token each time")
    sample: bool = option(False, help="Draw each token instead")
    temperature: float = option(
        1.0, within=RATE, help="Where tokens are drawn: below 1 the probable ones come more often"
    )
    top_k: int | None = option(None, within=COUNT, help="Where tokens are drawn: among the so many most probable ones")
    top_p: float = option(
        1.0, within=SHARE, help="Where tokens are drawn: among the most probable that have this share together"
    )
    seed: int | None = option(None, within=SEED, help="Where tokens are drawn: draws the same again")
    batch: int = option(32, within=SIZE, help="Prompts that are read at once")

    def how(self) -> "Continuing":
        import secrets

        from dpnlp.tasks.modelling import Continuing

        seed = secrets.randbits(31) if self.seed is None else self.seed
        chosen = self.longest, self.beams, self.sample, self.temperature, self.top_k, self.top_p
        return Continuing(*chosen, seed=seed, batch=self.batch)
