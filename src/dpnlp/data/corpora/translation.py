"""Parallel corpora: those of DP-NMT (WMT-16, BSD, ClinSPEn-CC) and Multi30k."""

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dpnlp.checks import BadInput
from dpnlp.data.corpora.source import Corpus, Source, one_of
from dpnlp.data.formats import Aligned, Json, Row
from dpnlp.data.pairs import Columns, Pairs, kept, pairs


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
class Parallel(Source):
    """A corpus of texts in several languages."""

    languages: tuple[str, ...]  # the first is by default translated into the second
    splits: tuple[str, str, str]  # what train, validation and test are called there
    tests: tuple[str, ...] = ()  # test sets other than the usual one

    def corpus(
        self, folder: Path | None, owner: str | None, *, source: str | None, target: str | None, test: str | None
    ) -> Corpus[Pairs]:
        source, target = _direction(self.languages, source, target)
        usual = self.splits[2]
        splits = (*self.splits[:2], one_of("test", test or usual, [usual, *self.tests]))
        return Corpus(*(self.opened(folder, split, source, target, owner) for split in splits))

    @abstractmethod
    def opened(self, folder: Path | None, split: str, source: str, target: str, owner: str | None) -> Pairs:
        """The pairs of one split; `owner` is a column."""


@dataclass(frozen=True)
class Translations(Parallel):
    """A dataset of the hub, or a folder saved from there. A pair of which one side is blank is left out."""

    hub_id: str = ""

    def opened(self, folder: Path | None, split: str, source: str, target: str, owner: str | None) -> Pairs:
        columns = Columns(f"translation.{source}", f"translation.{target}", owner)
        return kept(pairs(folder or self.hub_id, columns, split))


@dataclass(frozen=True)
class JsonFiles(Parallel):
    """One JSON file for each split, with a column for each language."""

    table: type[Json] = Json
    column: str = "{}"

    def opened(self, folder: Path | None, split: str, source: str, target: str, owner: str | None) -> Pairs:
        place, file = self.within(folder), f"{split}.json"
        table = self.table((place / file,), remedy=self.remedy([file], place))
        return Pairs(table, Columns(self.column.format(source), self.column.format(target), owner))


@dataclass(frozen=True)
class TextFiles(Parallel):
    """Aligned text files, one for each split and language, packed or not."""

    def opened(self, folder: Path | None, split: str, source: str, target: str, owner: str | None) -> Pairs:
        place, names = self.within(folder), [f"{split}.{language}" for language in (source, target)]
        files = tuple(path if (path := place / name).exists() else place / f"{name}.gz" for name in names)
        table = Aligned(files, remedy=self.remedy([file.name for file in files], place))
        return Pairs(table, Columns(owner=owner))


TRANSLATION: Mapping[str, Parallel] = {
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


def _direction(languages: Sequence[str], source: str | None, target: str | None) -> tuple[str, str]:
    """Both languages; one that is not given is the usual one or, if that is the other side's, its counterpart."""
    usual = languages[:2]
    source = one_of("source", source or usual[usual[0] == target], languages)
    target = one_of("target", target or usual[usual[1] != source], languages)
    if source == target:
        raise BadInput(f"target = {target}: it is the language of the source, too; choose another one.")
    return source, target
