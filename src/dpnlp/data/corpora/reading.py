"""Corpora of sentiment, inference, intents, named entities, parts of speech and questions.

Splits are those that are published. IMDb has no validation split, and of SQuAD the test set is secret, so that its
development set is the test set and none is left for validation; these corpora have none.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from dpnlp.checks import BadInput
from dpnlp.data import labelled, plain, questions, tagged
from dpnlp.data.corpora import labels
from dpnlp.data.corpora.source import Corpus, Source, one_of, packed
from dpnlp.data.formats import Aligned, Delimited, Json, Table
from dpnlp.data.hub import is_saved
from dpnlp.data.labelled import Texts
from dpnlp.data.questions import Questions, Squad
from dpnlp.data.records import Records
from dpnlp.data.tagged import Conll, Conllu, Sentences

_STREAMS: Mapping[str, tuple[Callable[..., Records[Any]], Callable[..., Records[Any]]]] = {
    "plain": (plain.Texts, plain.plain),
    "labelled": (Texts, labelled.labelled),
    "tagged": (Sentences, tagged.tagged),
    "questions": (Questions, questions.questions),
}
"""What the records of each kind are read with from a table, and from a dataset of the hub."""

_TEXT = labelled.Columns()
_WORDS = tagged.Columns("words", "tags")
_INTENT = partial(Aligned, sides=("text", "label"))
_SLOTS = partial(Aligned, sides=("words", "tags"))
_NO_VALIDATION = {"train": "train", "test": "test"}
_GOO = {"train": "train", "validation": "valid", "test": "test"}
_HUB = {"train": "train", "validation": "validation", "test": "test"}
_DEV = {"train": "train", "validation": "dev", "test": "test"}


@dataclass(frozen=True)
class Form:
    """One way in which a corpus lies in a folder: its files, in which {} is the split, and how they are read."""

    files: tuple[str, ...]
    splits: Mapping[str, str]  # what those that there are of train, validation and test are called there
    table: Callable[..., Table]
    columns: Any

    def paths(self, folder: Path, split: str) -> tuple[Path, ...]:
        """The files of a split, packed where only that is there."""
        return tuple(packed(folder / file.format(self.splits[split])) for file in self.files)


@dataclass(frozen=True)
class Hub:
    """The same of a dataset of the hub."""

    id: str
    splits: Mapping[str, str]
    columns: Any


@dataclass(frozen=True)
class Reading(Source):
    """A corpus in one of several forms, of which the first is asked for where none is there."""

    forms: tuple[Form, ...] = ()
    hub: Hub | None = None
    labels: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)  # how records are read in every form

    def corpus(
        self, folder: Path | None, owner: str | None, *, source: str | None, target: str | None, test: str | None
    ) -> Corpus[Any]:
        for what, value in (("source", source), ("target", target), ("test", test)):
            if value is not None:
                one_of(what, value, [])
        if self.hub and (folder is None or is_saved(folder)):
            _, opens = _STREAMS[self.kind]
            place, columns = folder or self.hub.id, replace(self.hub.columns, owner=owner)
            found = {key: opens(place, columns, split, **self.options) for key, split in self.hub.splits.items()}
        elif not self.forms:
            raise BadInput(
                f"folder = {folder}: it must be a folder of {self.title} that `datasets` saved; "
                "leave it out to have the hub's."
            )
        else:
            place = self.within(folder)
            splits = dict.fromkeys(split for form in self.forms for split in form.splits)
            found = {split: self._opened(place, split, owner) for split in splits}
        return Corpus(**found, kind=self.kind, labels=self.labels)

    def _opened(self, folder: Path, split: str, owner: str | None) -> Records[Any]:
        forms = [(form, form.paths(folder, split)) for form in self.forms if split in form.splits]
        form, paths = next((form for form in forms if all(path.exists() for path in form[1])), forms[0])
        files = [path.relative_to(folder).as_posix() for path in paths]
        table = form.table(paths, remedy=self.remedy(files, folder))
        reads, _ = _STREAMS[self.kind]
        return reads(table, replace(form.columns, owner=owner), **self.options)


def _intents(title: str, known: Sequence[str]) -> Reading:
    return Reading(
        title, forms=(Form(("{}/seq.in", "{}/label"), _GOO, _INTENT, _TEXT),), labels=tuple(known), kind="labelled"
    )


def _slots(title: str, known: Sequence[str]) -> Reading:
    return Reading(
        title, forms=(Form(("{}/seq.in", "{}/seq.out"), _GOO, _SLOTS, _WORDS),), labels=tuple(known), kind="tagged"
    )


def _dependencies(title: str, file: str) -> Reading:
    return Reading(
        title,
        forms=(Form((file,), _DEV, Conllu, _WORDS),),
        labels=labels.UPOS,
        kind="tagged",
        owners={"document": "document"},
    )


READING: Mapping[str, Reading] = {
    "imdb": Reading(
        "IMDb (aclImdb)",
        forms=(
            Form(("{}/neg", "{}/pos"), _NO_VALIDATION, labelled.folders, _TEXT),
            Form(("{}.jsonl",), _NO_VALIDATION, Json, _TEXT),
        ),
        hub=Hub("stanfordnlp/imdb", _NO_VALIDATION, _TEXT),
        labels=labels.SENTIMENTS,
        options={"names": labels.SENTIMENTS},
        kind="labelled",
    ),
    "sst2": Reading(
        "SST-2",
        forms=(
            Form(
                ("{}.tsv",),
                _DEV | {"test": "test-labeled"},
                partial(Delimited, delimiter="\t"),
                labelled.Columns("sentence"),
            ),
        ),
        labels=labels.POLARITIES,
        options={"names": labels.POLARITIES},
        kind="labelled",
    ),
    "snli": Reading(
        "SNLI",
        forms=(
            Form(("snli_1.0_{}.jsonl",), _DEV, Json, labelled.Columns("sentence1", "gold_label", "sentence2")),
            Form(("{}.jsonl",), _DEV, Json, labelled.Columns("premise", "label", "hypothesis")),
        ),
        hub=Hub(
            "stanfordnlp/snli",
            _HUB,
            labelled.Columns("premise", "label", "hypothesis"),
        ),
        labels=labels.INFERENCES,
        options={"names": ("entailment", "neutral", "contradiction"), "skip": ("-", "-1")},
        kind="labelled",
    ),
    "atis": _intents("ATIS", labels.ATIS),
    "snips": _intents("Snips", labels.SNIPS),
    "atis_slots": _slots("ATIS", labels.ATIS_SLOTS),
    "snips_slots": _slots("Snips", labels.SNIPS_SLOTS),
    "conll2003": Reading(
        "CoNLL-2003",
        forms=(
            Form(("eng.{}",), {"train": "train", "validation": "testa", "test": "testb"}, Conll, _WORDS),
            Form(("{}.txt",), _GOO, Conll, _WORDS),
        ),
        labels=labels.CONLL2003,
        options={"iob2": True},
        kind="tagged",
        owners={"document": "document"},
    ),
    "wikiann": Reading(
        "WikiANN",
        hub=Hub(
            "unimelb-nlp/wikiann:en",
            _HUB,
            tagged.Columns("tokens", "ner_tags"),
        ),
        labels=labels.WIKIANN,
        kind="tagged",
    ),
    "wnut17": Reading(
        "WNUT-17",
        forms=(
            Form(
                ("{}",),
                {"train": "wnut17train.conll", "validation": "emerging.dev.conll", "test": "emerging.test.annotated"},
                Conll,
                _WORDS,
            ),
        ),
        labels=labels.WNUT17,
        kind="tagged",
    ),
    "ud_ewt": _dependencies("UD English EWT", "en_ewt-ud-{}.conllu"),
    "ud_gum": _dependencies("UD English GUM", "en_gum-ud-{}.conllu"),
    "squad2": Reading(
        "SQuAD 2.0",
        forms=(Form(("{}-v2.0.json",), {"train": "train", "test": "dev"}, Squad, questions.Columns()),),
        hub=Hub("rajpurkar/squad_v2", {"train": "train", "test": "validation"}, questions.Columns()),
        kind="questions",
        owners={"document": "title"},
    ),
}
"""Texts of SNLI on whose label its annotators did not agree are left out."""
