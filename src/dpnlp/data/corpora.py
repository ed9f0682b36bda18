"""Corpora by name: those of DP-NMT (WMT-16, BSD, ClinSPEn-CC) and Multi30k, from the files that their authors publish.

A file is looked for when its split is read, so that a model can be scored on a test set without the training set.
"""

import difflib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dpnlp.checks import BadInput
from dpnlp.data.formats import Aligned, Json, Row
from dpnlp.data.pairs import Columns, Pairs, kept, pairs


@dataclass(frozen=True)
class Corpus:
    """The pairs of each split, or None where there is no such split."""

    train: Pairs | None = None
    validation: Pairs | None = None
    test: Pairs | None = None


@dataclass(frozen=True)
class Scenarios(Json):
    """The dialogues of BSD: each sentence is a row, with the id of its dialogue as `scenario`."""

    def rows(self) -> Iterator[Row]:
        for number, dialogue in super().rows():
            sentences = dialogue.get("conversation") if isinstance(dialogue, Mapping) else None
            if not isinstance(sentences, list) or not all(isinstance(sentence, Mapping) for sentence in sentences):
                raise BadInput(f"{self.where(number)}: it is no dialogue of BSD; take the file as it is published.")
            for sentence in sentences:
                yield number, {**sentence, "scenario": dialogue.get("id")}


@dataclass(frozen=True)
class Source(ABC):
    """What is known of a corpus: its name in full, what it holds, and how it is laid out."""

    title: str
    languages: tuple[str, ...]  # the first is by default translated into the second
    splits: tuple[str, str, str]  # what train, validation and test are called there
    tests: tuple[str, ...] = ()  # test sets other than the usual one
    owners: Mapping[str, str] = field(default_factory=dict)  # whose a pair may be, and the column that says so

    @abstractmethod
    def opened(self, folder: Path | None, split: str, source: str, target: str, owner: str | None) -> Pairs:
        """The pairs of one split; `owner` is a column."""

    def _within(self, folder: Path | None) -> Path:
        if folder is None or not folder.is_dir():
            raise BadInput(f"folder = {folder}: it must be a folder with the files of {self.title}.")
        return folder

    def _remedy(self, file: str, folder: Path) -> str:
        return f"put {file} of {self.title} into {folder}"


@dataclass(frozen=True)
class Translations(Source):
    """A dataset of the hub, or a folder saved from there. A pair of which one side is blank is left out."""

    hub_id: str = ""

    def opened(self, folder: Path | None, split: str, source: str, target: str, owner: str | None) -> Pairs:
        columns = Columns(f"translation.{source}", f"translation.{target}", owner)
        return kept(pairs(folder or self.hub_id, columns, split))


@dataclass(frozen=True)
class JsonFiles(Source):
    """One JSON file for each split, with a column for each language."""

    table: type[Json] = Json
    column: str = "{}"

    def opened(self, folder: Path | None, split: str, source: str, target: str, owner: str | None) -> Pairs:
        place, file = self._within(folder), f"{split}.json"
        table = self.table((place / file,), remedy=self._remedy(file, place))
        return Pairs(table, Columns(self.column.format(source), self.column.format(target), owner))


@dataclass(frozen=True)
class TextFiles(Source):
    """Aligned text files, one for each split and language, packed or not."""

    def opened(self, folder: Path | None, split: str, source: str, target: str, owner: str | None) -> Pairs:
        place, names = self._within(folder), [f"{split}.{language}" for language in (source, target)]
        files = tuple(path if (path := place / name).exists() else place / f"{name}.gz" for name in names)
        table = Aligned(files, remedy=self._remedy(" and ".join(file.name for file in files), place))
        return Pairs(table, Columns(owner=owner))


CORPORA: dict[str, Source] = {
    "bsd": JsonFiles(
        "the Business Scene Dialogue corpus",
        ("ja", "en"),
        ("train", "dev", "test"),
        owners={"scenario": "scenario", "speaker": "en_speaker"},
        table=Scenarios,
        column="{}_sentence",
    ),
    "clinspen": JsonFiles("ClinSPEn-CC", ("es", "en"), ("train", "dev", "test"), owners={"case": "file_name"}),
    "multi30k": TextFiles(
        "Multi30k",
        ("de", "en", "fr", "cs"),
        ("train", "val", "test_2016_flickr"),
        tests=("test_2017_flickr", "test_2017_mscoco", "test_2018_flickr"),
    ),
    "wmt16": Translations("WMT-16", ("de", "en"), ("train", "validation", "test"), hub_id="wmt16:de-en"),
}
"""BSD joins dialogues written in either language into one direction, as DP-NMT does."""


def named(
    name: str,
    folder: Path | str | None = None,
    source: str | None = None,
    target: str | None = None,
    *,
    owner: str | None = None,
    test: str | None = None,
) -> Corpus:
    """The corpus of this name, whose files lie in the folder, from one language into another.

    The languages, the kind of owner and the test set are the first that `CORPORA` has for it, unless they are given.
    WMT-16 needs no folder, but reads one that `datasets` saved.
    """
    known = CORPORA[_one_of("corpus", name, list(CORPORA))]
    source, target = _direction(known.languages, source, target)
    kinds = list(known.owners)
    if owner is not None or kinds:
        owner = known.owners[_one_of("owner", owner or kinds[0], kinds)]
    usual = known.splits[2]
    splits = (*known.splits[:2], _one_of("test", test or usual, [usual, *known.tests]))
    place = None if folder is None else Path(folder)
    return Corpus(*(known.opened(place, split, source, target, owner) for split in splits))


def _direction(languages: Sequence[str], source: str | None, target: str | None) -> tuple[str, str]:
    """Both languages; one that is not given is the usual one or, if that is the other side's, its counterpart."""
    usual = languages[:2]
    source = _one_of("source", source or usual[usual[0] == target], languages)
    target = _one_of("target", target or usual[usual[1] != source], languages)
    if source == target:
        raise BadInput(f"target = {target}: it is the language of the source, too; choose another one.")
    return source, target


def _one_of(what: str, value: str, allowed: Sequence[str]) -> str:
    if not allowed:
        raise BadInput(f"{what} = {value}: there is none in this corpus; leave it out.")
    if value not in allowed:
        nearest = difflib.get_close_matches(value, allowed, n=len(allowed), cutoff=0)
        raise BadInput(f"{what} = {value}: it must be one of {', '.join(nearest)}.")
    return value
