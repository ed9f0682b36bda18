"""Users of Pokec, a Slovak social network (Takac and Zabovsky 2012), as SNAP publishes them: who has dogs, who cats.

The task is that of the thesis (3.5.2). Of the users whose pets are a dog or a cat, and not both, the most complete
profiles are kept, and the friendships between them. Who is among these depends on the other users, too: no guarantee
for one user covers the choice.
"""

import heapq
import re
import unicodedata
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from dpnlp import checks
from dpnlp.checks import BadInput
from dpnlp.data.formats import lines
from dpnlp.data.graph_texts import WORDS, Encode, pairs_of, vectors
from dpnlp.data.graphs import Graph, GraphCorpus, divided

FILES = ("soc-pokec-profiles.txt", "soc-pokec-relationships.txt")
CLASSES = ("cat", "dog")

_FIELDS = (59, 60)
"""A profile has 59 columns, and SNAP ends the line with another tab."""
_USER, _COMPLETION, _PETS, _TEXTS = 0, 2, 13, 9
"""The columns that are used, counted from 0: the texts are all from I_am_working_in_field on, but for the pets."""

_STEMS = {
    "cat": re.compile(r"\b(mack(a|y|e|u|ou|am|ach|ami)|maciek|maci[ac]\w*|kocur\w*)\b"),
    "dog": re.compile(r"\b(pes|ps(a|y|e|i|ovi|om|ov|och|ami|ik\w*|ic\w*|isk\w*)|sten(a|ia\w*)|fenk\w*|havk\w*)\b"),
}
"""Slovak words for either animal in their cases, young ones included, without accents; macko is a bear."""
_NOT = re.compile(r"\b(nie|bez|nemam|nechcem|nelubim|neznasam)\b")
"""What denies all between two commas."""


def preference(pets: str) -> str | None:
    """Which of both animals is named in the column of pets, where it is one."""
    plain = "".join(
        letter for letter in unicodedata.normalize("NFKD", pets.lower()) if not unicodedata.combining(letter)
    )
    said = [part for part in plain.split(",") if not _NOT.search(part)]
    named = [animal for animal, stem in _STEMS.items() if any(map(stem.search, said))]
    return named[0] if len(named) == 1 else None


def pokec(files: Sequence[Path], most: int = 10_000, encode: Encode = WORDS) -> GraphCorpus:
    """The graph of the `most` most complete profiles of each class, from `FILES`; of equal ones the smaller ids.

    A tenth of the users is for validation and a tenth for test, by a checksum of the id.
    """
    profiles, relationships = files
    checks.count("most", most)
    kept: dict[str, list[tuple[int, int, str]]] = {animal: [] for animal in CLASSES}
    for number, line in lines(profiles):
        cells = line.rstrip("\r\n").split("\t")
        if len(cells) not in _FIELDS:
            raise _malformed(profiles, number, f"it has {len(cells)} columns, and a profile has {_FIELDS[0]}")
        if (animal := preference(cells[_PETS])) is None:
            continue
        if not cells[_USER].isdecimal() or not cells[_COMPLETION].isdecimal():
            raise _malformed(profiles, number, "user_id and completion_percentage must be whole numbers")
        texts = [cells[column] for column in range(_TEXTS, _FIELDS[0]) if column != _PETS]
        profile = int(cells[_COMPLETION]), -int(cells[_USER]), " ".join(text for text in texts if text != "null")
        (heapq.heappush if len(kept[animal]) < most else heapq.heappushpop)(kept[animal], profile)
    users = sorted((-user, text, label) for label, animal in enumerate(CLASSES) for _, user, text in kept[animal])
    if not users:
        raise BadInput(f"{profiles}: nobody's pets are dogs or cats; take the file as it is published.")
    numbers = {str(user): number for number, (user, _, _) in enumerate(users)}
    if len(numbers) < len(users):
        raise BadInput(f"{profiles}: a user_id is there twice; take the file as it is published.")
    labels = np.array([label for _, _, label in users])
    said = tuple(text for _, text, _ in users)
    features = vectors(said, encode)
    graph = Graph.of(features, pairs_of(relationships, numbers), labels, CLASSES, numbers)
    splits = divided(labels, 0.1, 0.1, numbers)
    return GraphCorpus(graph, *splits, tuple(files), public_classes=True, texts=said)


def _malformed(path: Path, number: int, what: str) -> BadInput:
    return BadInput(f"{path}, line {number}: {what}; take the file as it is published.")
