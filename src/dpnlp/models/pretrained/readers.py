"""Models that read texts and label them, with their labels and what they were made from.

A folder of an encoder gets a fresh head; one of a BertForSequenceClassification, ForTokenClassification or
ForQuestionAnswering, or of their siblings of RoBERTa and DistilBERT, comes with its own. What is saved opens in
transformers as one of these, unless an LSTM is part of it (`lstm_readers`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from flax import nnx

from dpnlp.checks import BadInput
from dpnlp.models.lora import adapt
from dpnlp.models.pretrained import lstm_readers
from dpnlp.models.pretrained.encoder_families import ENCODERS
from dpnlp.models.pretrained.encoders import load_encoder
from dpnlp.models.pretrained.families import linear_names
from dpnlp.models.pretrained.opening import fill, found, kind_of, refuse_other_weights, variables
from dpnlp.models.pretrained.weights import Checkpoint, Tensor, weight_files
from dpnlp.models.pretrained.writing import written
from dpnlp.models.readers import Config, Head, Reader, Strategy
from dpnlp.models.word_vectors import WordVectors

_SPANS = ("start", "end")
_ENDINGS = {
    Head.SEQUENCES: "ForSequenceClassification",
    Head.TOKENS: "ForTokenClassification",
    Head.SPANS: "ForQuestionAnswering",
}
"""How the classes of transformers end that have such a head."""


class _Top(NamedTuple):
    """How a family keeps what is on top of its encoder."""

    title: str  # how its classes start
    prefix: str  # what the names of the encoder's tensors start with
    pooler: str
    classifier: str  # of sequences
    activation: str = "tanh"


_TOPS = {
    "bert": _Top("Bert", "bert.", "bert.pooler.dense", "classifier"),
    "roberta": _Top("Roberta", "roberta.", "classifier.dense", "classifier.out_proj"),
    "xlm-roberta": _Top("XLMRoberta", "roberta.", "classifier.dense", "classifier.out_proj"),
    "distilbert": _Top("DistilBert", "distilbert.", "pre_classifier", "classifier", "relu"),
}


@dataclass
class PretrainedReader:
    """A reader with its labels in the order of its logits, and its tokenizer if the folder had one.

    `config` is transformers', if it has such a model. `name` is that of the folder, or the id on the hub.
    """

    model: Reader
    labels: tuple[str, ...]
    config: Any | None = None  # transformers.PreTrainedConfig
    tokenizer: Any | None = None  # transformers.PreTrainedTokenizerBase
    name: str = ""


def load_reader(
    source: str | Path,
    head: Head,
    *,
    labels: Sequence[str] | None = None,
    strategy: Strategy | None = None,
    hidden: int = 128,
    rank: int = 8,
    alpha: float = 16.0,
    dtype: str = "float32",
    computes: str | None = None,
    dropout: float | None = None,
    rematerialise: bool = False,
    seed: int = 0,
) -> PretrainedReader:
    """The reader in a folder or, where there is no such folder, of that id on the hub; or an encoder with a fresh head.

    A fresh head needs `labels`, but for spans; a folder with labels of its own keeps their order. Without a `strategy`
    it is the folder's own or Tr/All. `hidden` is the width of a fresh LSTM; `rank` and `alpha` are those of fresh
    adapters, which the strategy LoRA has. `seed` is for all that is fresh; the other options are those of `load`.
    """
    head, folder = Head(head), found(source)
    strategy = None if strategy is None else Strategy(strategy)
    name = folder.resolve().name if Path(source).is_dir() else str(source)
    options: dict[str, Any] = {"dtype": dtype, "computes": computes, "dropout": dropout, "rematerialise": rematerialise}
    if kind_of(folder) == lstm_readers.KIND:
        model, its_labels, tokenizer = lstm_readers.read_reader(folder, **options)
        for field, given, its in (("head", head, model.config.head), ("strategy", strategy, model.config.strategy)):
            if given not in (None, its):
                raise BadInput(f"{field} = {given}: the reader in {folder} is for {its}; give that, or another folder.")
        return PretrainedReader(model, _agreed(folder, head, labels, its_labels), None, tokenizer, name)
    encoder = load_encoder(folder, **options)
    theirs = encoder.config
    strategy = strategy or Strategy.TR_ALL
    own = _own_labels(folder, theirs, head)
    if strategy.lstm:
        own = None  # The head that is there does not fit on an LSTM.
    labels = _agreed(folder, head, labels, own)
    config = Config(
        head,
        len(labels),
        strategy,
        hidden,
        _TOPS[theirs.model_type].activation,
        **(_rates(theirs, head) if dropout is None else dict.fromkeys(_rates(theirs, head), dropout)),
    )
    rngs = nnx.Rngs(seed)
    model = Reader(encoder.model, config, rngs=rngs)
    if own is not None:
        _put_on_top(model, theirs.model_type, folder, dtype)
    for variable in variables(model).values():
        variable.set_value(variable[...].astype(dtype))
    if config.strategy is Strategy.LORA:
        adapt(model, rank, alpha=alpha, rngs=rngs)
    return PretrainedReader(model, labels, theirs, encoder.tokenizer, name)


def word_reader(
    entrance: WordVectors,
    tokenizer: Any,
    head: Head,
    labels: Sequence[str] = (),
    *,
    hidden: int = 128,
    dropout: float = 0.0,
    seed: int = 0,
) -> PretrainedReader:
    """A fresh LSTM and a fresh head on word vectors, which have a row for each token of this tokenizer."""
    if len(tokenizer) > entrance.config.vocabulary:
        rows = entrance.config.vocabulary
        raise BadInput(f"tokenizer: it has {len(tokenizer)} tokens, and there are {rows} vectors; give one for each.")
    labels = _agreed("word vectors", Head(head), labels, None)
    config = Config(head, len(labels), Strategy.BILSTM, hidden, dropout=dropout)
    return PretrainedReader(Reader(entrance, config, rngs=nnx.Rngs(seed)), labels, None, tokenizer, "word vectors")


def save_reader(
    reader: PretrainedReader, folder: str | Path, *, merge: bool = False, shard_bytes: int = 5 * 10**9
) -> None:
    """Writes a folder that `load_reader` reads, and transformers too if there is no LSTM; the options are `save`'s."""
    model, theirs = reader.model, reader.config
    if model.lstm is not None or theirs is None:
        lstm_readers.write_reader(model, reader.labels, reader.tokenizer, folder, shard_bytes)
        return
    top, kept = _TOPS[theirs.model_type], ENCODERS[theirs.model_type].names(model.encoder.config)
    names = {f"encoder.{name}": tensor._replace(name=top.prefix + tensor.name) for name, tensor in kept.items()}
    names |= _top_names(model, top)
    changes: dict[str, Any] = {"architectures": [top.title + _ENDINGS[model.config.head]]}
    if model.config.head is not Head.SPANS:
        changes["id2label"] = dict(enumerate(reader.labels))
        changes["label2id"] = {label: place for place, label in enumerate(reader.labels)}
    with written(folder, model, names, theirs, reader.tokenizer, merge=merge, shard_bytes=shard_bytes, **changes):
        pass


def _top_names(model: Reader, top: _Top) -> dict[str, Tensor]:
    """Where the head lies, and the pooler if there is one."""
    places = {Head.SEQUENCES: top.classifier, Head.TOKENS: "classifier", Head.SPANS: "qa_outputs"}
    names = linear_names("head", places[model.config.head])
    return names if model.pooler is None else names | linear_names("pooler", top.pooler)


def _put_on_top(model: Reader, kind: str, folder: Path, dtype: str) -> None:
    """Fills the head of a reader, and its pooler if that is not the encoder's."""
    top = _TOPS[kind]
    if model.fresh_pooler and top.pooler.startswith(top.prefix):
        raise BadInput(f"{folder}: the tensor {top.pooler}.weight is missing; take the folder as it was saved.")
    names = {name: tensor for name, tensor in _top_names(model, top).items() if not tensor.name.startswith(top.prefix)}
    checkpoint = Checkpoint(weight_files(folder, folder, "AutoModel"), without=(f"{top.prefix}*",))
    refuse_other_weights(folder, checkpoint, names, model)
    fill(model, names, checkpoint, dtype)
    model.fresh_pooler = False


def _rates(theirs: Any, head: Head) -> dict[str, float]:
    """Where transformers drops what heads are given, and how much of it."""
    if theirs.model_type == "distilbert":
        rates = {Head.SEQUENCES: "seq_classif_dropout", Head.TOKENS: "dropout", Head.SPANS: "qa_dropout"}
        return {"dropout": getattr(theirs, rates[head])}
    own = getattr(theirs, "classifier_dropout", None)
    rate = 0.0 if head is Head.SPANS else theirs.hidden_dropout_prob if own is None else own
    return {"dropout": rate, "pooler_dropout": 0.0 if theirs.model_type == "bert" else rate}


def _own_labels(folder: Path, theirs: Any, head: Head) -> tuple[str, ...] | None:
    """The labels of the head in a folder, if there is one; one for something else is refused."""
    for name in theirs.architectures or ():
        for kind, ending in _ENDINGS.items():
            if name.endswith(ending) and kind is not head:
                raise BadInput(
                    f"{folder / 'config.json'}: architectures = {name}: its head is for {kind}, which must be {head}; "
                    "choose another folder, or that of the encoder alone."
                )
            if name.endswith(ending):
                if head is Head.SPANS:
                    return _SPANS
                named = [theirs.id2label.get(at) for at in range(theirs.num_labels)]
                if not all(isinstance(label, str) for label in named):
                    raise BadInput(f"{folder / 'config.json'}: id2label must have a text for each label; correct it.")
                return tuple(map(str, named))
    return None


def _agreed(where: Path | str, head: Head, asked: Sequence[str] | None, own: tuple[str, ...] | None) -> tuple[str, ...]:
    """The labels of a reader: those of its folder, or those that are asked for where it has none."""
    if head is Head.SPANS:
        if asked and tuple(asked) != _SPANS:
            raise BadInput(f"labels = {', '.join(asked)}: spans have no labels; leave them out.")
        return _SPANS
    if not asked:
        if own is None:
            raise BadInput(f"labels: {where} has none of its own; name those that are to be learned.")
        return own
    if len(set(asked)) < len(asked):
        raise BadInput(f"labels = {', '.join(asked)}: one is there twice; name each once.")
    if own is None or (len(asked) == len(own) and _nameless(own)):
        return tuple(asked)
    if set(asked) != set(own):
        raise BadInput(
            f"labels = {', '.join(asked)}: the model in {where} has the labels {', '.join(own)}; give these, or the "
            "folder of an encoder alone."
        )
    return own


def _nameless(labels: Sequence[str]) -> bool:
    """Whether labels are the numbers that transformers gives to those that nobody named."""
    return all(label == f"LABEL_{place}" for place, label in enumerate(labels))
