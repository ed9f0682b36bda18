"""`dpnlp train --task nodes`: a network learns to tell the class of a node in a graph of texts."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from dpnlp.checks import BadInput
from dpnlp.cli.config import option, to_dict
from dpnlp.cli.evaluate import Evaluate
from dpnlp.cli.nodes_settings import Data, Learning, Model, Privacy, Texts
from dpnlp.cli.places import check_file
from dpnlp.cli.sections import Scoring, changed
from dpnlp.cli.splits import apart, remembered
from dpnlp.cli.start import Start, data_of
from dpnlp.cli.streams import refuse_answers, written
from dpnlp.cli.train import Train
from dpnlp.cli.training import Job, Scored
from dpnlp.guarantee import Exposure
from dpnlp.runs.folder import Run
from dpnlp.runs.provenance import Door, run_of

if TYPE_CHECKING:
    from dpnlp.data.graphs import Graph, GraphCorpus
    from dpnlp.data.identity import Fingerprints, Seen
    from dpnlp.data.learned import Learned
    from dpnlp.models.pretrained import Network
    from dpnlp.tasks.aggregation import Noise
    from dpnlp.tasks.nodes import GraphRecords
    from dpnlp.training import Plan, Secret

_OTHERS, _SOURCES = ("texts", "corpus"), ("texts", "edges", "corpus", "folder")
"""What names another graph than that of the run, and all that says where a graph lies."""


@dataclass(frozen=True, kw_only=True)
class TrainNodes(Train):
    """Train a graph convolutional network to tell the class of a node. It is private unless --privacy.epsilon is inf,
    for a node with all its edges, for a subgraph, or for the whole graph. Nodes that are kept for the test are a graph
    of their own: no edge leads from them to a private node. What it leaves is in runs/NAME: the network, the guarantee,
    scores, predictions for the nodes that were kept apart and report.html."""

    EXAMPLES: ClassVar[tuple[str, ...]] = (
        "dpnlp train --task nodes --name posts --data.texts posts.jsonl --data.edges replies.tsv --privacy.epsilon 3",
        "dpnlp train configs/graphs/cora.yaml --name cora-1 --privacy.epsilon 1",
    )

    task: str = option("nodes", help="What is learned", group="the run")
    data: Data = option(Data(), help="texts")
    model: Model = option(Model(), help="model")
    privacy: Privacy = option(Privacy(), help="privacy")
    learning: Learning = option(Learning(), help="learning")
    scoring: Scoring = option(Scoring(), help="scoring")

    def job(self, door: Door) -> "NodesJob":
        return NodesJob(self, door)


class NodesJob(Job):
    """A network and the graph that it learns from."""

    train: "GraphCorpus"

    def __init__(self, asked: TrainNodes, door: Door) -> None:
        from flax import nnx

        from dpnlp.models.gcn import GCN, Config
        from dpnlp.models.pretrained import Network

        self.asked, private = asked, asked.privacy.is_private
        asked.learning.refuse_smoothing()
        self._refuse_other_settings()
        if private:
            _refuse_joined(asked.data, "train with --privacy.epsilon inf")
        corpus = asked.data.corpus_of_nodes(door)
        self.train, self.graph = corpus, corpus.graph
        splits = {"validation": corpus.validation, "test": corpus.test}
        self.held_out = {name: nodes.tolist() for name, nodes in splits.items() if len(nodes)}
        self.others = dict.fromkeys(self.held_out, corpus)
        self.base = self._base(door)
        self.private_graph = self._learned_from(corpus.train)
        self.dataset = self._records()
        shape = asked.model
        config = Config(
            self.dataset.graph.features.shape[1],
            len(self.graph.classes),
            hidden=shape.hidden,
            layers=shape.layers,
            hops=shape.hops,
            dropout=shape.dropout,
        )
        model = GCN(config, rngs=nnx.Rngs(asked.privacy.seed or 0))
        self.network = Network(model, self.graph.classes, asked.privacy.aggregations, self.base)
        self.start, self.starts_knowing = Start(model, nnx.Param), False
        if asked.privacy.aggregations:
            self.aggregate = self._aggregated
        bounded = [Exposure.HUBS] if asked.privacy.bounded else []
        bounded += [Exposure.NAMES] if asked.privacy.splits and asked.privacy.unit == "node" else []
        occurring = [] if corpus.public_classes else [Exposure.CLASSES]
        self.exposures = (*occurring, *bounded) if private else ()

    @cached_property
    def seen(self) -> "Seen":
        from dpnlp.data.identity import Identity, Seen

        found = Identity.of_owner().nodes(self.train, self.train.train)
        return Seen(found, found)

    def is_in(self, learned: "Learned", node: int) -> bool:
        return learned.has_node(self.train, node)

    def texts_of(self, records: Sequence[Any]) -> "Fingerprints":
        from dpnlp.data.identity import Identity

        return Identity.of_owner().nodes(self.train, records)

    def _refuse_other_settings(self) -> None:
        """Sums over neighbours are made again where a run goes on. Of other data they would show their noise."""
        if self.asked.resume and self.asked.privacy.aggregations:
            run = Run.open(self.asked.runs / self.asked.name)
            for section in ("data", "model", "privacy"):
                if to_dict(self.asked)[section] != run.config[section]:
                    raise BadInput(
                        f"resume: the settings of {section} are not those in {run.path / 'config.yaml'}, and the noise "
                        "on sums over neighbours would be used twice; go on with those, or start another run."
                    )

    def _base(self, door: Door) -> "Network | None":
        """The network whose answers are added up over neighbours."""
        from dpnlp.models.pretrained import load_network

        if self.asked.model.start is None:
            return None
        if not self.asked.privacy.aggregations:
            raise BadInput(
                f"model.start = {self.asked.model.start}: only what it answers is used, in --privacy.aggregations; "
                "give these, or leave it out."
            )
        base = door.open(load_network, self.asked.model.start)
        if base.aggregations:
            raise BadInput(
                f"model.start = {self.asked.model.start}: it reads sums over neighbours itself; give a run without "
                "--privacy.aggregations."
            )
        return base

    def _learned_from(self, nodes: "np.ndarray[Any, Any]") -> "Graph":
        """The nodes to learn from and the edges between them, or all nodes where messages may pass between them."""
        from dpnlp.data.graphs import UNKNOWN
        from dpnlp.data.records import place_of

        share = self.asked.data.share
        chosen = [node for node in nodes.tolist() if place_of(f"share {self.graph.names[node]}") < share]
        if not chosen:
            raise BadInput(f"data.share = {share}: no node is left to learn from; give a larger one.")
        if not self.asked.data.joined:
            return self.graph.induced(chosen)
        labels = np.full_like(self.graph.labels, UNKNOWN)
        labels[chosen] = self.graph.labels[chosen]
        return replace(self.graph, labels=labels)

    def _records(self, noise: "Noise | None" = None) -> "GraphRecords":
        """What is learned from, with this noise on sums over neighbours, if there are any."""
        from dpnlp.tasks.nodes import neighbourhoods, subgraphs, whole

        privacy = self.asked.privacy
        graph = _seen(self.private_graph, privacy.aggregations, self.base, noise)
        if privacy.unit == "graph":
            return whole(graph)
        return subgraphs(graph, privacy.splits) if privacy.splits else neighbourhoods(graph, privacy.neighbours)

    def _aggregated(self, plan: "Plan", secret: "Secret") -> "GraphRecords":
        """The same records, of noisy sums over neighbours."""
        from dpnlp.tasks.aggregation import sensitivity
        from dpnlp.training.noise import normal

        moved = sensitivity(self.asked.privacy.edges)

        def noise(hop: int, shape: tuple[int, ...]) -> "np.ndarray[Any, Any]":
            drawn = np.asarray(normal(secret.key("aggregation", hop), shape))
            return plan.aggregation_stddev(hop, moved) * drawn

        return self._records(noise)

    def loss(self, model: Any, batch: Any) -> Any:
        from dpnlp.tasks.nodes import node_loss

        return node_loss(model, batch)

    def scored(self, model: Any, records: Sequence[Any]) -> Scored:
        return scored(replace(self.network, model=model), self.graph, records, self.asked.data.joined)

    def brief(self, model: Any, records: Sequence[Any]) -> dict[str, float]:
        return {name: score.value for name, score in self.scored(model, records).scores.items()}

    def save(self, model: Any, folder: Path) -> None:
        from dpnlp.models.pretrained import save_network

        save_network(replace(self.network, model=model), folder)


def scored(network: "Network", graph: "Graph", nodes: Sequence[int], joined: bool) -> Scored:
    """A network's classes for these nodes, in the graph of all nodes or in one of their own."""
    from dpnlp.tasks.nodes import Nodes

    chosen = np.asarray(nodes, np.int64)
    within, places = (graph, chosen) if joined else (graph.induced(chosen), np.arange(len(chosen)))
    seen = _seen(within, network.aggregations, network.base)
    found = Nodes(network.model, network.classes).score(seen, places)
    return Scored(found.scores(), found.lines(), found.details())


def _seen(graph: "Graph", aggregations: int, base: "Network | None", noise: "Noise | None" = None) -> "Graph":
    """The graph as a network reads it: rows of length 1 and sums of them over neighbours, of what the base answers."""
    from dpnlp.tasks.aggregation import aggregated
    from dpnlp.tasks.nodes import Nodes

    if base is not None:
        answers = Nodes(base.model, base.classes).probabilities(aggregated(graph, 0))
        graph = replace(graph, features=answers)
    return aggregated(graph, aggregations, noise)


def _enter(corpus: "GraphCorpus", nodes: Sequence[int], model: str) -> None:
    """Tells the ledgers of a graph that scores on these nodes are written out."""
    from dpnlp.data.identity import Identity
    from dpnlp.data.ledgers import DataSet

    identity = Identity.of_owner()
    others = identity.nodes(corpus, corpus.train)
    DataSet.of(corpus, identity.nodes(corpus, nodes)).write_out(f"dpnlp evaluate {Path(model).name}", others)


def _refuse_joined(data: Data, otherwise: str) -> None:
    """Answers for other nodes that hold what private ones say would need noise of their own."""
    if data.joined:
        raise BadInput(
            "data.joined: the answers for other nodes would hold what private nodes say, without any noise; leave it "
            f"out, or {otherwise}."
        )


@dataclass(frozen=True, kw_only=True)
class EvaluateNodes(Evaluate):
    """Score a network that tells the classes of nodes, on the nodes that its run kept for the test, or on those of
    another graph."""

    EXAMPLES: ClassVar[tuple[str, ...]] = ("dpnlp evaluate runs/posts", "dpnlp evaluate runs/posts --json")

    task: str = option("nodes", help="What it has learned")
    data: Data = option(Data(), help="texts")
    scoring: Scoring = option(Scoring(), help="scoring")

    def scored(self, door: Door) -> tuple[int, Scored]:
        from dpnlp.models.pretrained import load_network

        run = run_of(self.model)
        own = data_of(run, self.task, Data) if run else self.data
        data = changed(own, self.data, _OTHERS, _SOURCES)
        if run and run.guarantee.is_private:
            _refuse_joined(data, "evaluate a run without privacy")
        corpus, network = data.corpus_of_nodes(door), door.open(load_network, self.model)
        nodes = self._nodes(corpus, door)
        return len(nodes), scored(network, corpus.graph, nodes, data.joined)

    def _nodes(self, corpus: "GraphCorpus", door: Door) -> list[int]:
        """What the network is scored on: no node that it learned from, unless that is asked for."""
        if self.on_training_data:
            found: list[int] = corpus.train.tolist()
            return found
        nodes = corpus.test if len(corpus.test) else corpus.validation
        if not len(nodes):
            raise BadInput("data: no node is kept for the test; give --data.held-out, or --data.split.")
        learned = remembered(door)
        others = apart("data", nodes.tolist(), lambda node: learned.has_node(corpus, node))
        _enter(corpus, others, self.model)
        return others


@dataclass(frozen=True, kw_only=True)
class PredictNodes:
    """Tell the class of each node of another graph: a table of texts and the edges between them, read as in the run.
    What comes out is one class a line, in the order of the table."""

    EXAMPLES: ClassVar[tuple[str, ...]] = ("dpnlp predict runs/posts --data.texts new.jsonl --data.edges new.tsv",)

    model: str = option(help="A run, or a folder with a network for graphs", positional=True)
    task: str = option("nodes", help="What it has learned")
    data: Texts = option(Texts(), help="texts")
    output: Path | None = option(None, help="Where to write the classes; without it standard output")

    def run(self) -> None:
        """Classes, one a line."""
        check_file("--output", self.output, (self.model, self.data.texts, self.data.edges))
        from dpnlp.models.pretrained import load_network
        from dpnlp.tasks.nodes import Nodes

        run, door = run_of(self.model), Door()
        network = door.open(load_network, self.model)
        data = changed(data_of(run, self.task, Data) if run else Data(), self.data)
        graph = replace(data, texts=self.data.texts, edges=self.data.edges).unlabelled(network.classes, door)
        refuse_answers(
            f"dpnlp predict {Path(self.model).name}", *map(Path, filter(None, (self.data.texts, self.data.edges)))
        )
        seen = _seen(graph, network.aggregations, network.base)
        with written(self.output) as output:
            for answer in Nodes(network.model, network.classes).predict(seen):
                print(answer, file=output)
        if self.output:
            door.remember(self.output)
