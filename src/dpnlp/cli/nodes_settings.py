"""The settings that are those of graphs: which nodes, what is promised of whom, and which network learns."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from dpnlp import checks
from dpnlp.checks import BadInput
from dpnlp.cli import sections
from dpnlp.cli.config import option
from dpnlp.cli.ranges import COUNT, COUNT_OR_0, EPOCHS, FEW, FEW_OR_0, PART, RATE, SHARE, SIZE, SIZE_OR_0, between
from dpnlp.guarantee import Adjacency, Unit
from dpnlp.runs.provenance import Door

if TYPE_CHECKING:
    from dpnlp.accounting.planning import Question
    from dpnlp.data.graph_texts import Encode
    from dpnlp.data.graphs import Graph, GraphCorpus
    from dpnlp.data.identity import Seen


@dataclass(frozen=True)
class Texts:
    """Texts that are joined by edges."""

    texts: str | None = option(
        None, help="A table of texts, one a node, with ids, and labels to learn: a .jsonl, .csv, .tsv or .parquet file"
    )
    edges: str | None = option(None, help="A list of edges: two ids a line, with a tab, a comma or spaces between them")
    id: str = option("id", help="The column of the id")
    text: str = option("text", help="The column of the text")
    words: int = option(
        4096, within=SIZE, help="The features of a text are its words, as so many columns of a checksum"
    )
    encoder: str | None = option(
        None, help="Instead of words, vectors by a sentence encoder: a folder or id of Hugging Face with a BERT"
    )
    public_encoder: bool = option(False, help="Say that the encoder was made of public data alone, where nothing tells")

    def unlabelled(self, classes: Sequence[str], door: Door) -> "Graph":
        """The graph of these texts, of which the classes are to be told."""
        from dpnlp.data.graph_texts import Columns, unlabelled

        if self.texts is None:
            raise BadInput("data.texts is not given: name the file with the texts.")
        encode = self._encode(door)
        return unlabelled(self.texts, self._listed, Columns(self.id, self.text), classes=classes, encode=encode)

    @property
    def _listed(self) -> str:
        if self.edges is None:
            raise BadInput("data.edges is not given: name the file with the edges between the texts.")
        return self.edges

    def _encode(self, door: Door) -> "Encode":
        """What makes features of texts."""
        if self.encoder is None:
            from dpnlp.data.graph_texts import HashedWords

            return HashedWords(self.words)
        from dpnlp.models.sentence_vectors import SentenceEncoder

        return door.open(SentenceEncoder.load, self.encoder, public=self.public_encoder)


@dataclass(frozen=True)
class Data(Texts):
    """Which nodes, and what is known of them."""

    corpus: str | None = option(None, help="Instead of both, a graph by name: cora, citeseer, pubmed, reddit or pokec")
    folder: Path | None = option(None, help="Where the files of the graph lie")
    label: str = option("label", help="The column of the label")
    split: str | None = option(
        None, help="The column that says train, validation or test; else nodes are kept apart by their ids"
    )
    held_out: float = option(
        0.1,
        within=PART,
        help="The share of the nodes of a table that is kept for the test, without --data.split",
    )
    validation: float = option(
        0.0,
        within=between(0, 1e9),
        help="The share that is kept for validation, of a table; of a citation network, the number of nodes",
    )
    labels: tuple[str, ...] = option(
        (),
        help="The classes to learn; by default those of the graph by name, or those that occur in the training nodes, "
        "which the statement then names as not covered",
    )
    share: float = option(
        1.0, within=SHARE, help="The share of the training nodes that is learned from, by their names"
    )
    joined: bool = option(
        False,
        help="Let messages pass between the nodes that are learned from and those that are kept apart; only without "
        "privacy, as answers would hold what private nodes say",
    )

    def seen(self) -> "Seen":
        """The fingerprints of the nodes that are learned from."""
        from dpnlp.data.identity import Identity, Seen

        corpus = self.corpus_of_nodes(Door())
        found = Identity.of_owner().nodes(corpus, corpus.train)
        return Seen(found, found)

    def corpus_of_nodes(self, door: Door) -> "GraphCorpus":
        """The graph, and what its nodes are for."""
        from dpnlp.data.corpora.graphs import NETWORKS, graph_corpus
        from dpnlp.data.corpora.source import one_of
        from dpnlp.data.graph_texts import Columns, graph_of_texts

        if (self.corpus is None) == (self.texts is None):
            given = "both are given" if self.corpus else "neither is given"
            raise BadInput(f"data.texts and data.corpus: {given}; give one of the two.")
        if self.corpus is not None:
            number = "give the number of nodes of a citation network"
            kept = checks.count("data.validation", self.validation, 0, number) or None
            known = NETWORKS[one_of("corpus", self.corpus, list(NETWORKS))]
            encode = self._encode(door) if "encode" in known.options else None
            for name in ("words", "encoder"):
                if encode is None and (value := getattr(self, name)) != getattr(type(self), name):
                    raise BadInput(f"data.{name} = {value}: the features of {self.corpus} are given; leave it out.")
            return graph_corpus(self.corpus, self.folder, validation=kept, encode=encode)
        return graph_of_texts(
            self.texts or "",
            self._listed,
            Columns(self.id, self.text, self.label, self.split),
            classes=self.labels,
            encode=self._encode(door),
            validation=self.validation,
            test=self.held_out,
        )


@dataclass(frozen=True)
class Privacy(sections.Privacy):
    """What is promised of nodes."""

    unit: Literal["node", "subgraph", "graph"] = option(
        "node", help="Whose presence is hidden: a node with all its edges, a subgraph, or the whole graph"
    )
    splits: int = option(
        0,
        within=SIZE_OR_0,
        help="Cut the graph into so many disjoint subgraphs, each of which is one record; 0 cuts nothing",
    )
    neighbours: int = option(
        0,
        within=SIZE_OR_0,
        help="A node learns beside so many of its neighbours; without them, and without splits, by itself",
    )
    aggregations: int = option(
        0,
        within=FEW_OR_0,
        help="Noisy sums over neighbours, over the neighbours of these and so on, made before the first step (GAP)",
    )
    edges: int = option(
        10, within=COUNT, help="With neighbours or aggregations, the most edges of a node that the promise covers"
    )

    def __post_init__(self) -> None:
        ways = {"splits": self.splits, "neighbours": self.neighbours, "aggregations": self.aggregations}
        used = [name for name, value in ways.items() if value]
        if len(used) > 1:
            raise BadInput(f"privacy.{used[0]} and privacy.{used[1]} are both given; give one of the two.")
        if self.unit != "node" and used and used != ["splits"]:
            raise BadInput(f"privacy.{used[0]}: it promises for a node; leave out --privacy.unit {self.unit}.")
        if self.unit == "graph" and self.splits:
            raise BadInput(f"privacy.splits = {self.splits}: --privacy.unit graph is one record; leave it out.")
        if self.unit == "subgraph" and self.splits < 2:
            raise BadInput(f"privacy.splits = {self.splits}: --privacy.unit subgraph needs at least 2; give more.")
        if self.splits and self.unit == "node" and self.adjacency not in (None, Adjacency.REPLACE):
            raise BadInput(
                f"privacy.adjacency = {self.adjacency}: a node that comes or goes leaves another subgraph behind, "
                "which is bounded under replace; leave it out."
            )

    @property
    def bounded(self) -> bool:
        """Whether a node with more than so many edges is not covered."""
        return bool(self.neighbours or self.aggregations)

    def question(self, records: int, learning: "sections.Learning") -> "Question":
        all_at_once = replace(learning, lot_size=learning.lot_size or records)
        asked = self._asked(records, all_at_once, Unit(self.unit))
        if self.splits and self.unit == "node":
            return replace(asked, adjacency=Adjacency.REPLACE)
        if self.neighbours:
            return replace(asked, sharing=1 + self.edges)
        if self.aggregations:
            # As much of the budget as the steps: these cost about q²T/z², and k sums with noise rz cost k/(rz)².
            q = all_at_once.lot_size / records
            steps = learning.steps or math.ceil(learning.epochs / q)
            return replace(asked, aggregations=(math.sqrt(self.aggregations / steps) / q,) * self.aggregations)
        return asked


@dataclass(frozen=True)
class Learning(sections.Learning):
    """How it is learned."""

    lot_size: int = option(
        0, within=COUNT_OR_0, help="Records in a lot; for Poisson sampling, expected. 0 takes all of them in each step"
    )
    epochs: float = option(100.0, within=EPOCHS, help="Passes over the data, of ⌈records/lot size⌉ steps each")
    rate: float = option(1e-2, within=RATE, help="The learning rate")
    physical_batch: int = option(
        256, within=SIZE, help="Records on the device at once; changes nothing but speed and memory"
    )


@dataclass(frozen=True)
class Model:
    """The network."""

    layers: int = option(2, within=FEW, help="How many layers it has; one is a linear model")
    hidden: int = option(32, within=SIZE, help="The width of the layers between")
    hops: int = option(
        1,
        within=FEW_OR_0,
        help="How often each layer averages over neighbours; 0 passes no messages, which is a plain network",
    )
    dropout: float = option(0.5, within=PART, help="The share of the numbers that each layer drops in training")
    start: str | None = option(
        None, help="With aggregations: a run for nodes, whose answers are added up over neighbours instead of features"
    )
