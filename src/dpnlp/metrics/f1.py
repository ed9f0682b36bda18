"""Precision, recall and F1 of classes, from the confusions of a whole set, as figures between 0 and 1.

Of a class, P = correct/predicted, R = correct/support and F1 = 2PR/(P + R) = 2·correct/(support + predicted); each is 0
where nothing stands below the line. Macro-F1 is the mean of the classes' F1, micro-F1 the F1 of all classes' counts
together, which is the accuracy where no class is left out. All of this is as scikit-learn has it, with
`zero_division=0`. Counts of parts of a set are added up; scores of parts are never averaged.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from dpnlp.checks import BadInput
from dpnlp.metrics.score import Score, Texts, aligned, signed, text


@dataclass(frozen=True)
class Tally:
    """How often a class was found rightly, is in the references (`support`), and was predicted."""

    correct: int = 0
    support: int = 0
    predicted: int = 0

    @property
    def precision(self) -> float:
        """Which share of its predictions is right."""
        return _share(self.correct, self.predicted)

    @property
    def recall(self) -> float:
        """Which share of it was found."""
        return _share(self.correct, self.support)

    @property
    def f1(self) -> float:
        """The harmonic mean of both."""
        return _share(2 * self.correct, self.support + self.predicted)

    def __add__(self, other: "Tally") -> "Tally":
        return Tally(self.correct + other.correct, self.support + other.support, self.predicted + other.predicted)

    def to_json(self) -> dict[str, Any]:
        """A row of the table of classes."""
        return {
            "precision": self.precision,
            "recall": self.recall,
            "f1": self.f1,
            "support": self.support,
            "predicted": self.predicted,
        }


def macro(tallies: Iterable[Tally]) -> float:
    """The mean of the F1 of each; 0 of none."""
    each = [tally.f1 for tally in tallies]
    return _share(sum(each), len(each))


def micro(tallies: Iterable[Tally]) -> float:
    """The F1 of all counts together; 0 of none."""
    return sum(tallies, start=Tally()).f1


@dataclass(frozen=True)
class Majority:
    """The most frequent class of the references, and how far the predictions fall for it.

    Two shares say how often it is in the references and in the predictions. `taken` is the share of the examples of all
    other classes that are taken for it, and `baseline` the macro-F1 of whoever predicts nothing else, to be seen beside
    that of the model.
    """

    label: str
    in_references: float
    in_predictions: float
    taken: float
    baseline: float

    @property
    def prevails(self) -> bool:
        """Whether the predictions fall for it: more than half of all that is of another class is taken for it."""
        return self.taken > 1 / 2

    def to_json(self) -> dict[str, Any]:
        """Its fields, and whether it prevails."""
        return {**vars(self), "prevails": self.prevails}


@dataclass(frozen=True)
class Confusion:
    """How often each class was predicted to be each: `counts` [true, predicted], in the order of `labels`.

    The confusion of a set is the sum of those of its parts. Where both sides of a sum have the same labels their order
    is kept; else the labels of both are sorted.
    """

    labels: tuple[str, ...]
    counts: tuple[tuple[int, ...], ...]

    def __add__(self, other: "Confusion") -> "Confusion":
        same = self.labels == other.labels
        labels = self.labels if same else tuple(sorted({*self.labels, *other.labels}))
        return _counted(self._pairs() + other._pairs(), labels)

    @property
    def total(self) -> int:
        """How many examples there are."""
        return sum(map(sum, self.counts))

    def classes(self) -> dict[str, Tally]:
        """The tally of each label, in their order."""
        columns = zip(*self.counts, strict=True)
        return {
            label: Tally(row[place], sum(row), sum(column))
            for place, (label, row, column) in enumerate(zip(self.labels, self.counts, columns, strict=True))
        }

    def accuracy(self) -> Score:
        """Which share of the predictions is right."""
        correct = sum(tally.correct for tally in self.classes().values())
        return signed("accuracy", _share(correct, self.total), n=self.total)

    def macro_f1(self, over: Sequence[str] | None = None) -> Score:
        """The mean F1 of the labels `over`; else of those that occur in the references or the predictions."""
        return self._averaged("macro_f1", macro, over)

    def micro_f1(self, over: Sequence[str] | None = None) -> Score:
        """The F1 of the counts of the labels `over`, taken together; else of all labels."""
        return self._averaged("micro_f1", micro, over)

    def majority(self, over: Sequence[str] | None = None) -> Majority:
        """The most frequent class of the references, of several the one that was predicted most.

        The labels `over` are those of the macro-F1 that the baseline is to be seen beside.
        """
        classes = self.classes()
        label = max(classes, key=lambda one: (classes[one].support, classes[one].predicted))
        tally, always = classes[label], Counter({(true, label): own.support for true, own in classes.items()})
        return Majority(
            label,
            in_references=_share(tally.support, self.total),
            in_predictions=_share(tally.predicted, self.total),
            taken=_share(tally.predicted - tally.correct, self.total - tally.support),
            baseline=_counted(always, self.labels).macro_f1(over).value,
        )

    def to_json(self, over: Sequence[str] | None = None) -> dict[str, Any]:
        """All of it for a report; the labels `over` are those that F1 is averaged over."""
        return {
            "macro_f1": self.macro_f1(over).value,
            "micro_f1": self.micro_f1(over).value,
            "accuracy": self.accuracy().value,
            "majority": self.majority(over).to_json(),
            "classes": {label: tally.to_json() for label, tally in self.classes().items()},
            "labels": list(self.labels),
            "counts": [list(row) for row in self.counts],
        }

    def _averaged(self, name: str, average: Callable[[Iterable[Tally]], float], over: Sequence[str] | None) -> Score:
        classes = self.classes()
        if over is None:
            chosen = [tally for tally in classes.values() if tally.support or tally.predicted]
        else:
            chosen = [classes.get(label, Tally()) for label in _labels("over", over)]
        which = "found" if over is None else "given"
        return signed(name, average(chosen), n=self.total, classes=len(chosen), over=which)

    def _pairs(self) -> Counter[tuple[str, str]]:
        rows = zip(self.labels, self.counts, strict=True)
        return Counter({(true, label): n for true, row in rows for label, n in zip(self.labels, row, strict=True)})


def confusion(*, references: Texts, predictions: Texts, labels: Sequence[str] | None = None) -> Confusion:
    """Counts which class each example has, and which was predicted.

    The table has the labels given, in their order, and is refused where another occurs; without them it has those that
    occur, sorted. Both lists go by name, as accuracy and F1 would not show that they were exchanged.
    """
    sides = {"references": references, "predictions": predictions}
    aligned(**sides)
    lines = [(name, *line) for name, given in sides.items() for line in enumerate(given, start=1)]
    found = {text(*line) for line in lines}
    known = tuple(sorted(found)) if labels is None else _labels("labels", labels)
    for name, line, label in lines if found - {*known} else ():
        if label not in known:
            raise BadInput(
                f"{name}, line {line} = {label!r}: it must be one of {', '.join(known)}; add it to the labels, or mend "
                "the line."
            )
    return _counted(Counter(zip(references, predictions, strict=True)), known)


def _labels(name: str, given: Sequence[str]) -> tuple[str, ...]:
    """A list of labels from the user, each of them once."""
    if isinstance(given, str) or not given:
        raise BadInput(f"{name} = {given!r}: it must be a list with at least one label; give each label once.")
    if twice := [label for label, times in Counter(given).items() if times > 1]:
        raise BadInput(f"{name} = {twice[0]!r}: it is there more than once; give each label once.")
    return tuple(given)


def _counted(pairs: Counter[tuple[str, str]], labels: tuple[str, ...]) -> Confusion:
    return Confusion(labels, tuple(tuple(pairs[true, predicted] for predicted in labels) for true in labels))


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0
