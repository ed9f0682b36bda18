"""Graphs of texts by name, from the files that their authors publish: the five of the thesis (3.5.1)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from dpnlp.data.corpora import planetoid, pokec, reddit
from dpnlp.data.corpora.source import Published, one_of, packed
from dpnlp.data.formats import missing
from dpnlp.data.graph_texts import Encode
from dpnlp.data.graphs import GraphCorpus


@dataclass(frozen=True)
class Network(Published):
    """A graph in a folder: its files, what reads them, and what can be chosen."""

    files: tuple[str, ...]
    read: Callable[..., GraphCorpus]
    options: tuple[str, ...] = ()

    def present(self, folder: Path | None) -> list[Path]:
        """Its files, all of which are there, packed or not."""
        place = self.within(folder)
        paths = [packed(place / file) for file in self.files]
        for path in paths:
            if not path.is_file():
                raise missing(path, self.remedy([path.name], place))
        return paths


def _citations(title: str, name: str, classes: Sequence[str]) -> Network:
    files = tuple(f"ind.{name}.{part}" for part in planetoid.PARTS)
    return Network(title, files, partial(planetoid.planetoid, classes=tuple(classes)), ("validation",))


NETWORKS: Mapping[str, Network] = {
    "cora": _citations(
        "Cora (Planetoid)",
        "cora",
        (
            "Theory",
            "Reinforcement_Learning",
            "Genetic_Algorithms",
            "Neural_Networks",
            "Probabilistic_Methods",
            "Case_Based",
            "Rule_Learning",
        ),
    ),
    "citeseer": _citations("CiteSeer (Planetoid)", "citeseer", ("AI", "ML", "IR", "DB", "Agents", "HCI")),
    "pubmed": _citations("PubMed (Planetoid)", "pubmed", ("0", "1", "2")),
    "reddit": Network("Reddit (GraphSAGE)", reddit.FILES, reddit.reddit),
    "pokec": Network("Pokec (SNAP)", pokec.FILES, pokec.pokec, ("most", "encode")),
}
"""The classes of Cora and CiteSeer are told by their sizes, which all differ and are published with the names. Of
PubMed's, sources do not agree which is diabetes of type 1 and which of type 2; these have numbers."""


def graph_corpus(
    name: str,
    folder: Path | str | None,
    *,
    validation: int | None = None,
    most: int | None = None,
    encode: Encode | None = None,
) -> GraphCorpus:
    """The graph of this name, whose files lie in the folder.

    Of a citation network `validation` training nodes are kept for validation, by default none. Of Pokec the `most` most
    complete profiles of each class are taken, by default 10,000, and `encode` makes features of their texts, by default
    hashed words. What does not fit the graph is refused.
    """
    known = NETWORKS[one_of("corpus", name, list(NETWORKS))]
    given = {"validation": validation, "most": most, "encode": encode}
    chosen = {option: value for option, value in given.items() if value is not None}
    for option, value in chosen.items():
        if option not in known.options:
            one_of(option, str(value), [])
    return known.read(known.present(None if folder is None else Path(folder)), **chosen)
