"""The settings that are those of reading tasks: which texts with which labels, and which model reads them."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from dpnlp.cli import sections
from dpnlp.cli.config import option
from dpnlp.cli.ranges import FEW, FREQUENCY, PART, SIZE, SIZE_OR_0
from dpnlp.cli.start import PUBLIC

if TYPE_CHECKING:
    from dpnlp.data.corpora import Corpus
    from dpnlp.tasks.reading import Reading


@dataclass(frozen=True, kw_only=True)
class Data(sections.Files):
    """Which texts, and how they are put to a model."""

    longest: int = option(128, within=SIZE, help="Texts are cut to this many tokens")
    labels: tuple[str, ...] = option(
        (),
        help="The labels to learn; by default those of the corpus, or those that occur in the training data, which the "
        "statement then names as not covered",
    )

    @abstractmethod
    def task(self, model: Any, tokenizer: Any, labels: tuple[str, ...]) -> "Reading[Any]":
        """What is learned, by this model."""


@dataclass(frozen=True, kw_only=True)
class Texts(Data):
    """Texts, or pairs of texts, with a label each."""

    corpus: str | None = option(None, help="Instead of files, a corpus by name: imdb, sst2, snli, atis or snips")
    text: str = option("text", help="The column of the text")
    pair: str | None = option(None, help="The column of the second text of a pair, as in inference")
    label: str = option("label", help="The column of the label")
    skip: tuple[str, ...] = option((), help="Labels whose texts are left out, such as - for no agreement")

    def task(self, model: Any, tokenizer: Any, labels: tuple[str, ...]) -> "Reading[Any]":
        from dpnlp.tasks.classification import Classification

        return Classification(model, tokenizer, labels, self.longest)

    def _read(self, source: str | tuple[str, ...], split: str) -> Any:
        from dpnlp.data.labelled import Columns, labelled

        return labelled(source, Columns(self.text, self.label, self.pair, self.owner), split, skip=self.skip)

    def _named(self, name: str) -> "Corpus[Any]":
        from dpnlp.data.corpora import named

        return named(name, self.folder, owner=self.owner, kind="labelled")


@dataclass(frozen=True, kw_only=True)
class Sentences(Data):
    """Sentences with a tag for each word."""

    train: tuple[str, ...] = option(
        (),
        help="What to learn from: a .conllu file, a file of CoNLL's columns, two aligned files of words and tags, or "
        "what has lists of both: .jsonl, .parquet, a folder saved by datasets, or a dataset of the hub",
    )
    corpus: str | None = option(
        None,
        help="Instead of files, a corpus by name: conll2003, wikiann, wnut17, ud_ewt, ud_gum, atis_slots or "
        "snips_slots",
    )
    words: str | None = option(None, help="The column of the words, or its number; by default words, FORM or the first")
    tags: str | None = option(None, help="The column of the tags, or its number; by default tags, UPOS or the last")

    def task(self, model: Any, tokenizer: Any, labels: tuple[str, ...]) -> "Reading[Any]":
        from dpnlp.tasks.tagging import Tagging

        return Tagging(model, tokenizer, labels, self.longest)

    def _read(self, source: str | tuple[str, ...], split: str) -> Any:
        from dpnlp.data.tagged import Columns, tagged

        return tagged(source, Columns(self.words, self.tags, self.owner), split)

    def _named(self, name: str) -> "Corpus[Any]":
        from dpnlp.data.corpora import named

        return named(name, self.folder, owner=self.owner, kind="tagged")


@dataclass(frozen=True, kw_only=True)
class Questions(Data):
    """Questions about texts, with the places of their answers."""

    train: tuple[str, ...] = option(
        (), help="What to learn from: a .json file of SQuAD, or a .jsonl file with id, question, context and answers"
    )
    corpus: str | None = option(None, help="Instead of files, a corpus by name: squad2")
    longest: int = option(384, within=SIZE, help="A window has this many tokens, the question's among them")
    stride: int = option(128, within=SIZE_OR_0, help="Tokens of a window that are in the next one, too")
    answer_length: int = option(30, within=SIZE, help="The most tokens of an answer")

    def task(self, model: Any, tokenizer: Any, labels: tuple[str, ...]) -> "Reading[Any]":
        from dpnlp.tasks.answering import Answering

        return Answering(model, tokenizer, (), self.longest, self.stride, self.answer_length)

    def _read(self, source: str | tuple[str, ...], split: str) -> Any:
        from dpnlp.data.questions import Columns, questions

        return questions(source if isinstance(source, str) else source[0], Columns(owner=self.owner), split)

    def _named(self, name: str) -> "Corpus[Any]":
        from dpnlp.data.corpora import named

        return named(name, self.folder, owner=self.owner, kind="questions")


@dataclass(frozen=True)
class Model:
    """What reads, and which part of it is trained."""

    start: str = option(
        help="A folder or id of Hugging Face with a BERT, RoBERTa or DistilBERT, the folder of a run of dpnlp or, for "
        "bilstm, a file of word vectors as GloVe's are"
    )
    public_start: bool = option(False, help=PUBLIC)
    strategy: Literal["bilstm", "tr-no-lstm", "tr-no", "tr-last2", "tr-all", "lora"] = option(
        "tr-all",
        help="What is trained: an LSTM on word vectors or on the frozen model, a layer on the frozen model, "
        "its last two layers, all but the input embeddings, or adapters",
    )
    computes: Literal["float32", "bfloat16"] = option("float32", help="The type that it computes in; bfloat16 on a GPU")
    dropout: float | None = option(None, within=PART, help="Replaces all dropout rates of the model")
    hidden: int = option(128, within=SIZE, help="The width of the LSTM in each direction")
    rank: int = option(8, within=FEW, help="The rank of adapters")
    shares: tuple[float, ...] = option(
        (),
        within=FREQUENCY,
        help="How often each label is expected, from public knowledge; the model starts from there",
    )


@dataclass(frozen=True)
class Scoring(sections.Scoring):
    """How it is scored."""

    batch: int = option(64, within=SIZE, help="Texts that are read at once")
