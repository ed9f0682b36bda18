"""The settings that are those of translation: which texts, which model, how translations are written and scored."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from dpnlp.checks import BadInput
from dpnlp.cli import sections
from dpnlp.cli.config import option
from dpnlp.cli.ranges import COUNT, COUNT_OR_0, FEW, FEW_OR_0, LINE, PART, SIZE, between
from dpnlp.cli.start import PUBLIC
from dpnlp.runs.provenance import Door

if TYPE_CHECKING:
    from dpnlp.data.corpora import Corpus
    from dpnlp.data.pairs import Pairs
    from dpnlp.metrics.score import Score
    from dpnlp.models.pretrained import Encoder
    from dpnlp.tasks import translation
    from dpnlp.tasks.translation import Scored


@dataclass(frozen=True, kw_only=True)
class Texts:
    """How texts are put to a model."""

    longest: int = option(64, within=SIZE, help="Texts are cut to this many tokens")
    prefix: str = option("", within=LINE, help="What is put before each text, such as 'translate German to English: '")
    source_language: str | None = option(None, help="The code that mBART, M2M100 or NLLB has for it, such as de_DE")
    target_language: str | None = option(None, help="The same for the language that it is to write")

    @property
    def languages(self) -> tuple[str, str] | None:
        """The codes of both languages, or none of them."""
        if (self.source_language is None) != (self.target_language is None):
            raise BadInput("source_language and target_language: give both of them, or neither.")
        return (self.source_language, self.target_language) if self.source_language and self.target_language else None


@dataclass(frozen=True, kw_only=True)
class Data(sections.Files, Texts):
    """Which pairs of texts, and how they are put to a model."""

    corpus: str | None = option(None, help="Instead of files, a corpus by name: bsd, clinspen, multi30k or wmt16")
    source: str = option("source", help="The column of the text to translate; for multi30k, its language")
    target: str = option("target", help="The column of its translation; for multi30k, its language")
    most_words: int | None = option(
        None, within=COUNT, help="Leave out pairs with more words than this on a side, or with none"
    )
    ratio: float | None = option(
        None, within=between(1, 1e6), help="Leave out pairs with so many times more words on one side, or with none"
    )

    def _opened(self) -> "Corpus[Any]":
        from dpnlp.data.pairs import kept

        found = super()._opened()
        if not found.train or not (self.most_words or self.ratio):
            return found
        return replace(found, train=kept(found.train, longest=self.most_words, ratio=self.ratio))

    def _read(self, source: str | tuple[str, ...], split: str) -> "Pairs":
        from dpnlp.data.pairs import Columns, pairs

        return pairs(source, Columns(self.source, self.target, self.owner), split)

    def _named(self, name: str) -> "Corpus[Any]":
        from dpnlp.data.corpora import named

        sides = (self.source, "source"), (self.target, "target")
        source, target = (None if given == usual else given for given, usual in sides)
        return named(name, self.folder, source, target, owner=self.owner)


@dataclass(frozen=True)
class Model:
    """What is trained."""

    start: str = option(
        help="A folder or id of Hugging Face, the folder of a run of dpnlp, or scratch for none of them"
    )
    public_start: bool = option(False, help=PUBLIC)
    computes: Literal["float32", "bfloat16"] = option("float32", help="The type that it computes in; bfloat16 on a GPU")
    dropout: float | None = option(None, within=PART, help="Replaces all dropout rates of the model")
    trains: tuple[str, ...] = option(("*",), help="Which parameters are trained, such as 'decoder.*' or last:2")
    frozen: tuple[str, ...] = option((), help="Which of these are not, such as encoder, tokens or cross_attention")
    lora: int = option(0, within=FEW_OR_0, help="The rank of adapters that are trained instead; 0 has none")
    tokenizer: str | None = option(None, help="For scratch: a folder or id that has a tokenizer made of public texts")
    vocabulary: int = option(
        8000, within=SIZE, help="For scratch without privacy: tokens of a vocabulary made of the training texts"
    )
    architecture: Literal["marian", "t5"] = option("marian", help="For scratch: whose shape the model has")
    width: int = option(256, within=SIZE, help="For scratch: the width of the model")
    layers: int = option(3, within=FEW, help="For scratch: layers of the encoder, and of the decoder")
    heads: int = option(4, within=FEW, help="For scratch: heads of attention")
    hidden: int = option(1024, within=SIZE, help="For scratch: the width of the feed-forward layers")

    @property
    def from_scratch(self) -> bool:
        return self.start == "scratch"


@dataclass(frozen=True)
class Writing:
    """How translations are written."""

    beams: int = option(
        4, within=FEW, help="Beams of the search for the best translation; 1 takes the best token each time"
    )
    length_penalty: float = option(1.0, within=between(-100, 100), help="Above 1 longer translations win more often")
    batch: int = option(32, within=SIZE, help="Texts that are translated at once")

    def of(self, longest: int) -> "translation.Writing":
        from dpnlp.tasks import translation

        return translation.Writing(longest, self.beams, self.length_penalty, self.batch)


@dataclass(frozen=True)
class Scoring(Writing, sections.Scoring):
    """How it is scored."""

    bleu_tokenizer: str = option("13a", help="How sacreBLEU cuts the target language into words; ja-mecab, zh or char")
    bertscore: str | None = option(None, help="A BERT-shaped model, folder or id, for BERTScore as well")
    bertscore_layer: int | None = option(
        None, within=COUNT_OR_0, help="Which layer of it is compared; by default the last one"
    )

    def check(self) -> None:
        """Refuses, before anything is paid, a model for BERTScore that cannot be read, or is made of private data."""
        if self.bertscore is not None:
            self._encoder(self.bertscore)

    def _encoder(self, source: str) -> "Encoder":
        from dpnlp.models.pretrained import load_encoder

        door = Door()
        encoder = door.open(load_encoder, source)
        door.refuse_costs("scoring.bertscore", source)
        return encoder

    def scores(self, scored: "Scored") -> "dict[str, Score]":
        """All scores of some translations, by name."""
        scores = {"bleu": scored.bleu(self.bleu_tokenizer), "chrf": scored.chrf()}
        if self.bertscore is not None:
            from dpnlp.metrics.bertscore import bertscore

            encoder = self._encoder(self.bertscore)
            layer = encoder.model.config.layers if self.bertscore_layer is None else self.bertscore_layer
            scores["bertscore"] = bertscore(scored.hypotheses, scored.references, encoder, layer=layer)
        return scores
