"""Datasets of the library `datasets`: a folder that it saved, or one that it downloads from the hub."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from dpnlp.checks import BadInput, short
from dpnlp.data.formats import Row, Table, arrow_rows, library, readable

_ROWS = 1024
"""How many rows are read at once."""


@dataclass(frozen=True)
class Arrow(Table):
    """One split of a dataset, in memory-mapped Arrow files."""

    name: str
    split: str | None
    dataset: Any  # datasets.Dataset
    folder: Path | None = None  # where it was saved

    counted: ClassVar[str] = "row"

    @property
    def reading(self) -> str:
        return f"{type(self).__name__}({self.split})"  # A split may be a part of the files, such as train[:10%].

    @property
    def places(self) -> tuple[Path, ...]:
        return super().places if self.folder is None else (self.folder,)

    def where(self, number: int, side: str = "") -> str:
        return f"{self.name}, row {number}"

    def names(self, column: str) -> tuple[str, ...]:
        feature = self.dataset.features.get(column)
        return tuple(getattr(getattr(feature, "feature", feature), "names", ()))  # of a ClassLabel, or a list of them

    def rows(self) -> Iterator[Row]:
        with readable(self.files[0]):
            yield from arrow_rows(self.dataset.with_format("arrow").iter(_ROWS))


def is_saved(folder: Path) -> bool:
    """Whether `save_to_disk` wrote the folder."""
    return any((folder / name).is_file() for name in ("dataset_dict.json", "dataset_info.json"))


def saved(folder: Path, columns: tuple[str, ...], split: str | None) -> Arrow:
    """What `save_to_disk` wrote into the folder: a dataset, or several with the names of splits."""
    datasets = library("datasets")
    try:
        found = datasets.load_from_disk(str(folder))
    except Exception as error:
        raise BadInput(
            f"{folder}: it is not a folder saved by `datasets` ({short(error)}); give such a folder, or a file in it."
        ) from None
    return replace(_chosen(str(folder), found, columns, split), folder=folder)


def downloaded(source: str, columns: tuple[str, ...], split: str | None) -> Arrow:
    """A dataset of the hub, as in wmt16:de-en, downloaded once by `datasets` into its own cache."""
    datasets = library("datasets")
    name, _, configuration = source.partition(":")
    try:
        found = datasets.load_dataset(name, configuration or None, split=split)
    except Exception as error:  # Connections fail with the errors of several libraries.
        raise BadInput(
            f"source = {source}: there is no such file, and the Hugging Face hub does not give a dataset of that name "
            f"({short(error)}); download it where the hub can be reached, save it with `save_to_disk`, and give the "
            "path of its folder."
        ) from error
    return _chosen(source, found, columns, split)


def _chosen(name: str, found: Any, columns: tuple[str, ...], split: str | None) -> Arrow:
    """The split that is meant; one that is alone need not be named."""
    if isinstance(found, dict):
        chosen = split or (next(iter(found)) if len(found) == 1 else None)
        if chosen not in found:
            raise BadInput(f"split = {split}: {name} has {', '.join(found)}; choose one of them.")
        found, split = found[chosen], chosen
    if set(columns) <= set(found.column_names):
        found = found.select_columns(list(columns))
    files = tuple(Path(file["filename"]) for file in found.cache_files)
    if not files:
        raise BadInput(f"{name}: `datasets` holds it in memory; save it with `save_to_disk`, and give that folder.")
    return Arrow(files, name, split, found)
