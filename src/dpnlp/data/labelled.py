"""Texts, or pairs of texts, with a label each: `labelled` opens a stream of them."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, NamedTuple

from dpnlp.checks import BadInput
from dpnlp.data.formats import Row, Table, lines
from dpnlp.data.hub import is_saved
from dpnlp.data.records import ColumnNames, Fields, Records, aligned, table_of


class Labelled(NamedTuple):
    """A text, the second text of a pair, what is to be told about them, and whose they are, where that is known."""

    text: str
    pair: str | None
    label: str
    owner: str | None

    @property
    def labels(self) -> tuple[str, ...]:
        """The label."""
        return (self.label,)

    @property
    def texts(self) -> tuple[str, ...]:
        """The text, and the second one where it is a pair."""
        return (self.text,) if self.pair is None else (self.text, self.pair)


@dataclass(frozen=True)
class Columns(ColumnNames):
    """Which fields of a row are text, label, second text and owner."""

    text: str = "text"
    label: str = "label"
    pair: str | None = None
    owner: str | None = None


_USUAL = Columns()


@dataclass(frozen=True)
class Folders(Table):
    """A text a file, in folders that are called like the labels, as IMDb is published: pos/0_9.txt, neg/3_1.txt."""

    @property
    def reading(self) -> str:
        return f"{type(self).__name__}({dict(Counter(path.parent.name for path in self.files))})"

    @property
    def places(self) -> tuple[Path, ...]:
        return (self.files[0].parent.parent,)

    def where(self, number: int, side: str = "") -> str:
        return str(self.files[number - 1])

    def rows(self) -> Iterator[Row]:
        for number, path in enumerate(self.files, 1):
            yield number, {"text": "".join(line for _, line in lines(path)), "label": path.parent.name}


@dataclass(frozen=True)
class Texts(Records[Labelled]):
    """The labelled texts of a table, without those whose label is one of `skip`; `left_out` counts these.

    A label that is a number becomes its text unless there are names: then it is the name that has this number.
    """

    columns: Columns
    names: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()

    noun: ClassVar[str] = "text"

    def keeps(self, record: Labelled) -> bool:
        return record.label not in self.skip and super().keeps(record)

    def record(self, row: Fields) -> Labelled:
        text, label, pair, owner = (getattr(self.columns, name) for name in ("text", "label", "pair", "owner"))
        return Labelled(
            row.text("text", text),
            None if pair is None else row.text("pair", pair),
            row.label("label", label, row.value("label", label), self.names, unnamed=self.skip),
            row.owner(owner),
        )


def labelled(
    source: str | Path | Sequence[str | Path],
    columns: Columns = _USUAL,
    split: str | None = None,
    *,
    names: Sequence[str] = (),
    skip: Sequence[str] = (),
) -> Texts:
    """The labelled texts in a table, of which `table_of` has the forms, in two aligned text files, or in a folder.

    Of two paths line n of the second is the label of line n of the first, as in seq.in and label of Goo et al. (2018).
    A folder is one saved by `datasets`, or has a folder for each label with a .txt file for each text. `names` are for
    labels that are numbers, from 0 on; a dataset whose column is a ClassLabel has them itself. Texts with a label in
    `skip` are left out, such as those of SNLI without a gold label: "-", or "-1" where labels are numbers.
    """
    if not isinstance(source, (str, Path)):
        table: Table = aligned(source, ("text", "label"))
        columns = Columns(owner=columns.owner)
    elif (folder := Path(source)).is_dir() and not is_saved(folder):
        table = folders(sorted(path for path in folder.iterdir() if path.is_dir()))
        if not table.files:
            raise BadInput(
                f"{folder}: it has no folders with texts, such as pos/1.txt, and `datasets` did not save it."
            )
        columns = Columns(owner=columns.owner)
    else:
        otherwise = ", or give two paths if it has a line for each text and another file has the labels"
        table = table_of(source, columns, split, "text", otherwise)
    return Texts(table, columns, names=tuple(names) or table.names(columns.label), skip=tuple(skip))


def folders(labels: Sequence[Path], remedy: str = "check the path") -> Folders:
    """The texts in these folders, one for each label; where there are none, the folders themselves are missing."""
    texts = tuple(path for folder in labels for path in sorted(folder.glob("*.txt")))
    return Folders(texts or tuple(labels), remedy=remedy)
