"""F1 of named entities: one counts where its type, its first and its last word are all right.

Tags are IOB2: B-X at the first word of an entity of type X, I-X at its other words, O outside. They are read as
conlleval and seqeval's default mode read them: an I-X that nothing of type X precedes begins an entity too, since what
a model predicts may break IOB2. So IOB1 is understood as well.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from dpnlp.checks import BadInput
from dpnlp.metrics.f1 import Tally, macro, micro
from dpnlp.metrics.score import Score, aligned, signed

Tags = Sequence[str]


class Entity(NamedTuple):
    """The words from `start` on, up to but without `end`, and what they are."""

    type: str
    start: int
    end: int


def entities(tags: Tags, where: str = "tags") -> list[Entity]:
    """The entities of one sequence, in their order. Errors name it as `where`."""
    found: list[Entity] = []
    inside = False
    for place, (mark, kind) in enumerate(_parts(tags, where)):
        if inside and mark == "I" and kind == found[-1].type:
            found[-1] = found[-1]._replace(end=place + 1)
        elif mark != "O":
            found.append(Entity(kind, place, place + 1))
        inside = mark != "O"
    return found


@dataclass(frozen=True)
class EntityF1:
    """The tally of each type of entity over a set; those of parts of it are added up."""

    types: dict[str, Tally]
    sequences: int

    def __add__(self, other: "EntityF1") -> "EntityF1":
        both = sorted({*self.types, *other.types})
        types = {kind: self.types.get(kind, Tally()) + other.types.get(kind, Tally()) for kind in both}
        return EntityF1(types, self.sequences + other.sequences)

    def micro_f1(self) -> Score:
        """The F1 of all entities, which is what is meant by the F1 of CoNLL-2003; 0 where there are none."""
        return self._averaged("entity_micro_f1", micro(self.types.values()))

    def macro_f1(self) -> Score:
        """The mean F1 of the types that are in the references or the predictions; 0 where there are none."""
        return self._averaged("entity_macro_f1", macro(self.types.values()))

    def to_json(self) -> dict[str, Any]:
        """All of it for a report."""
        return {
            "entity_micro_f1": self.micro_f1().value,
            "entity_macro_f1": self.macro_f1().value,
            "types": {kind: tally.to_json() for kind, tally in self.types.items()},
        }

    def _averaged(self, name: str, value: float) -> Score:
        return signed(name, value, n=self.sequences, types=len(self.types), tags="IOB2", mode="conlleval")


def entity_f1(*, references: Sequence[Tags], predictions: Sequence[Tags]) -> EntityF1:
    """Compares the entities of each sequence with those predicted. Both lists go by name, as in `confusion`."""
    aligned(references=references, predictions=predictions)
    support, predicted, correct = Counter[str](), Counter[str](), Counter[str]()
    for line, (own, given) in enumerate(zip(references, predictions, strict=True), start=1):
        true = {*entities(own, f"references, line {line}")}
        said = {*entities(given, f"predictions, line {line}")}
        if len(own) != len(given):
            raise BadInput(
                f"predictions, line {line} = {len(given)} tags: its reference has {len(own)}; give one for each word."
            )
        for counter, found in ((support, true), (predicted, said), (correct, true & said)):
            counter.update(entity.type for entity in found)
    tallies = {kind: Tally(correct[kind], support[kind], predicted[kind]) for kind in sorted({*support, *predicted})}
    return EntityF1(tallies, len(references))


def _parts(tags: Tags, where: str) -> list[tuple[str, str]]:
    """Each tag as O, B or I, and the type, which is empty outside."""
    if isinstance(tags, str) or not isinstance(tags, Sequence):
        raise BadInput(f"{where} = {tags!r:.60}: it must be a list, with a tag for each word; give a list.")
    for word, tag in enumerate(tags, start=1):
        if not isinstance(tag, str) or not (tag == "O" or (tag[:2] in ("B-", "I-") and len(tag) > 2)):
            raise BadInput(f"{where}, word {word} = {tag!r:.60}: it must be O, B-TYPE or I-TYPE; give tags of IOB2.")
    return [(tag[0], tag[2:]) for tag in tags]
