"""`dpnlp train`, `evaluate` and `predict` for nodes, run as a person runs them, on a micro table of texts and edges."""

import json
import math
import re
import shutil
from contextlib import contextmanager

import numpy as np
import pytest
from safetensors.numpy import load_file

from dpnlp.accounting.ledger import Ledger
from dpnlp.cli.config import from_dict
from dpnlp.cli.nodes import TrainNodes
from dpnlp.data.graph_texts import Columns, HashedWords, graph_of_texts
from dpnlp.guarantee import Adjacency, Exposure, Guarantee
from dpnlp.mechanisms.randomness import FixedSeed
from dpnlp.models.pretrained import load_network
from dpnlp.runs.provenance import Door
from dpnlp.tasks import aggregation
from dpnlp.tasks.aggregation import aggregated
from dpnlp.tasks.nodes import Nodes
from dpnlp.training import Secret

COUNT, WORDS, EDGES = 40, 16, 4
TOPICS = {"food": ("soup", "bread", "salt"), "sport": ("ball", "goal", "team")}
SMALL = f"--data.words {WORDS} --data.held-out 0.3 --model.hidden 4 --learning.steps 2 --privacy.delta 1e-3"
SMALL += " --privacy.seed 0"
NAMED = "--data.labels food sport"
RUNS = {
    "alone": "",
    "splits": f"{NAMED} --privacy.splits 3 --learning.lot-size 2",
    "subgraph": f"{NAMED} --privacy.unit subgraph --privacy.splits 3",
    "neighbours": f"{NAMED} --privacy.neighbours 2 --privacy.edges {EDGES}",
    "sums": f"{NAMED} --privacy.aggregations 2 --privacy.edges {EDGES} --model.start runs/alone",
    "graph": f"{NAMED} --privacy.unit graph",
}
"""What is protected, and by which way of making records."""
UNITS = dict.fromkeys(RUNS, "node") | {"subgraph": "subgraph", "graph": "graph"}


def nodes(count=COUNT, seed=0):
    """Texts about food or sport, each with a word of its own, and edges between any of them."""
    rng = np.random.default_rng(seed)
    rows = []
    for number in range(count):
        label = sorted(TOPICS)[number % 2]
        words = rng.choice(TOPICS[label], 4).tolist()
        text = " ".join([f"zq{seed}x{number:03}", *words])
        rows.append({"id": f"user-{seed}-{number:03}", "text": text, "label": label})
    return rows, [(rows[a]["id"], rows[b]["id"]) for a, b in rng.integers(0, count, (2 * count, 2)) if a != b]


def write(folder, name, rows, edges):
    (folder / f"{name}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    (folder / f"{name}.tsv").write_text("".join(f"{one}\t{other}\n" for one, other in edges))


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with a table of texts and the edges between them, and with another graph without labels."""
    home = tmp_path_factory.mktemp("home")
    write(home, "posts", *nodes())
    rows, edges = nodes(10, 1)
    write(home, "new", [{"id": row["id"], "text": row["text"]} for row in rows], edges)
    return home


def command(name, flags=""):
    usual = "--data.texts posts.jsonl --data.edges posts.tsv"
    given = [pair for pair in re.findall(r"--\S+ \S+", usual) if pair.split()[0] not in flags.split()]
    corpus = "--data.corpus" in flags
    return f"train --task nodes --name {name} {'' if corpus else ' '.join(given)} {SMALL} {flags}"


@pytest.fixture(scope="module")
def runs(home, dpnlp):
    """Makes one of these runs, privately or not, when it is first asked for."""

    def made(name, epsilon="8"):
        folder = home / "runs" / (name if epsilon == "8" else f"{name}-{epsilon}")
        if "--model.start runs/alone" in RUNS[name]:
            made("alone")
        if not folder.exists():
            code, _, err = dpnlp(command(folder.name, f"{RUNS[name]} --privacy.epsilon {epsilon}"))
            assert code == 0, err
        return folder

    return made


def promised(run):
    return Guarantee.from_json(json.loads((run / "privacy.json").read_text())["guarantee"])


def schedule(run):
    return json.loads((run / "privacy.json").read_text())["plan"]["schedule"]


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def corpus(home):
    return graph_of_texts(
        home / "posts.jsonl", home / "posts.tsv", Columns(), encode=HashedWords(WORDS), test=0.3, validation=0.0
    )


# What a run leaves and promises


@pytest.mark.parametrize("epsilon", ["8", "inf"])
@pytest.mark.parametrize("name", RUNS)
def test_a_run_leaves_the_network_the_guarantee_scores_answers_and_a_page(name, epsilon, home, runs):
    run, graph = runs(name, epsilon), corpus(home)
    assert sorted(path.name for path in run.iterdir()) == [
        "config.yaml",
        "details.json",
        "metrics.jsonl",
        "model",
        "predictions",
        "privacy.json",
        "report.html",
    ]
    (row,) = lines(run / "metrics.jsonl")
    assert (row["step"], row["split"]) == (2, "test")
    assert row["macro_f1"] == json.loads((run / "details.json").read_text())["test"]["macro_f1"]
    found = lines(run / "predictions" / "test.jsonl")
    assert [line["source"] for line in found] == [graph.graph.names[node] for node in graph.test]
    assert {line["reference"] for line in found} == {*TOPICS}
    network = load_network(run / "model")
    assert network.classes == tuple(sorted(TOPICS))
    assert (network.base is not None, network.aggregations) == ((True, 2) if name == "sums" else (False, 0))


@pytest.mark.parametrize("name", RUNS)
def test_law_11_the_statement_names_the_unit_the_neighbours_and_who_is_not_covered(name, runs):
    run = runs(name)
    found, statement = promised(run), promised(run).statement()
    assert found.unit == UNITS[name]
    replaced = name == "splits"
    assert found.adjacency is (Adjacency.REPLACE if replaced else Adjacency.ADD_REMOVE)
    expected = "exchanged for any other" if replaced else "not in the data, or one more were in it"
    assert f"any one {UNITS[name]} were {expected}" in statement
    assert (Exposure.HUBS in found.not_covered) == (name in ("neighbours", "sums"))
    assert (Exposure.NAMES in found.not_covered) == (name == "splits")
    assert ("Exchanged for one of another name it counts as two nodes." in statement) == (name == "splits")
    assert ("more edges than the mechanism's bound" in statement) == (name in ("neighbours", "sums"))
    assert (Exposure.CLASSES in found.not_covered) == (name in ("alone", "sums"))  # as the start of the other has it
    page = (run / "report.html").read_text()
    sentences = (part for one in found.not_covered for part in re.split(r"(?<=\.) (?=[A-Z])", one.sentence))
    assert all(sentence in page.replace("&#x27;", "'") for sentence in sentences)
    if name != "sums":
        assert found.epsilon == pytest.approx(8, abs=0.05)


@pytest.mark.parametrize("name", RUNS)
def test_nothing_is_promised_without_noise(name, runs):
    found = promised(runs(name, "inf"))
    assert found.epsilon == math.inf
    assert found.unit == UNITS[name]


def test_law_1_records_and_what_a_unit_has_a_part_in_are_those_of_the_way(home, runs):
    train = len(corpus(home).train)
    records = {name: schedule(runs(name))["records"] for name in RUNS}
    assert records == dict.fromkeys(("alone", "neighbours", "sums"), train) | {"splits": 3, "subgraph": 3, "graph": 1}
    shared = {name: schedule(runs(name))["sharing"] for name in RUNS}
    assert shared == dict.fromkeys(RUNS, 1) | {"neighbours": 1 + EDGES}
    assert [name for name in RUNS if schedule(runs(name))["aggregations"]] == ["sums"]
    assert {name: schedule(runs(name))["lot_size"] for name in RUNS} == records | {"splits": 2}


def test_sums_are_paid_for_beside_the_steps_and_the_run_that_they_start_from(home, runs):
    sums, alone = promised(runs("sums")), promised(runs("alone"))
    assert sums.epsilon > alone.epsilon + 1
    assert sums.steps == alone.steps + 2 + 2
    said = json.loads((runs("sums") / "privacy.json").read_text())
    assert said["origins"][0] == json.loads((runs("alone") / "privacy.json").read_text())["origins"][0]
    assert [len(schedule(runs("sums"))["aggregations"]), len(said["origins"])] == [2, 2]
    releases = Ledger.beside(home / "posts.jsonl").read().releases
    assert {"dpnlp train alone", "dpnlp train sums"} <= {release.what for release in releases}


@pytest.mark.parametrize("name", RUNS)
def test_law_9_no_file_that_a_private_run_writes_holds_a_text_or_a_name_of_the_training_nodes(name, home, runs):
    rows, graph = nodes()[0], corpus(home)
    private = [rows[node] for node in graph.train]
    assert len(private) > COUNT // 2
    for path in (path for path in runs(name).rglob("*") if path.is_file()):
        text = path.read_bytes().decode("utf-8", "replace")
        assert not [row["id"] for row in private if row["id"] in text or row["text"].split()[0] in text], path
    held_out = (runs(name) / "predictions" / "test.jsonl").read_text()
    assert all(rows[node]["id"] in held_out for node in graph.test)


# Nodes that are kept apart


WELL = f"{NAMED} --privacy.epsilon inf --learning.steps 30 --learning.rate 0.1"
"""A network that has learned something, so that its answers depend on what it is shown."""


@pytest.mark.parametrize(
    ("name", "flags"), [("averaged", "--privacy.unit graph"), ("summed", "--privacy.aggregations 2")]
)
def test_whatever_training_nodes_say_the_answers_for_others_are_the_same(name, flags, home, dpnlp):
    """No message passes to nodes that are kept apart, though edges lead there; with --data.joined one would."""
    assert dpnlp(command(name, f"{WELL} {flags}"))[0] == 0
    rows, edges = nodes()
    seen = {rows[node]["id"] for node in corpus(home).train}
    opposite = {"food": "ball goal", "sport": "soup"}
    write(
        home, "changed", [row | {"text": opposite[row["label"]]} if row["id"] in seen else row for row in rows], edges
    )
    answers = []
    for joined in ("", "--data.joined"):
        given = f"--data.texts changed.jsonl --data.edges changed.tsv {joined}"
        code, _, err = dpnlp(f"evaluate runs/{name} {given} --output answers.jsonl")
        assert code == 0, err
        answers.append(lines(home / "answers.jsonl"))
    assert answers[0] == lines(home / "runs" / name / "predictions" / "test.jsonl")
    assert answers[1] != answers[0]


def test_messages_pass_between_all_nodes_only_where_nothing_is_promised(home, runs, dpnlp):
    assert dpnlp(command("joined", f"{WELL} --data.joined --privacy.unit graph"))[0] == 0
    network, graph = load_network(home / "runs" / "joined" / "model"), corpus(home)
    found = [line["hypothesis"] for line in lines(home / "runs" / "joined" / "predictions" / "test.jsonl")]
    answers = Nodes(network.model, network.classes).predict(aggregated(graph.graph, 0))
    assert found == [answers[node] for node in graph.test]
    assert found != Nodes(network.model, network.classes).predict(aggregated(graph.graph.induced(graph.test), 0))
    code, _, err = dpnlp(f"evaluate {runs('alone')} --data.joined")
    assert code == 2
    assert err.startswith("dpnlp: data.joined: the answers for other nodes would hold what private nodes say, without")


def test_a_share_of_the_training_nodes_is_learned_from(home, dpnlp):
    assert dpnlp(command("share", f"{NAMED} --data.share 0.5 --privacy.epsilon inf --learning.steps 1"))[0] == 0
    count = schedule(home / "runs" / "share")["records"]
    assert 0 < count < 0.8 * len(corpus(home).train)
    assert len(lines(home / "runs" / "share" / "predictions" / "test.jsonl")) == len(corpus(home).test)


def test_validation_nodes_are_scored_while_it_learns(home, dpnlp):
    flags = f"{NAMED} --data.validation 0.2 --learning.evaluate-every 1 --privacy.epsilon 8"
    code, _, err = dpnlp(command("watched", flags))
    assert code == 0, err
    rows = lines(home / "runs" / "watched" / "metrics.jsonl")
    assert [(row["step"], row["split"]) for row in rows] == [(1, "validation"), (2, "validation"), (2, "test")]


# Noise on sums over neighbours


def job_of(home, **privacy):
    settings = {
        "name": "noise",
        "data": {"texts": str(home / "posts.jsonl"), "edges": str(home / "posts.tsv"), "words": WORDS},
        "privacy": {"aggregations": 2, "edges": 9, "delta": 1e-3, **privacy},
        "learning": {"steps": 2},
    }
    asked = from_dict(TrainNodes, settings)
    job = asked.job(Door())
    return job, asked.privacy.plan(len(job.dataset), asked.learning)


@pytest.fixture
def noises(monkeypatch):
    """The noise that sums are made with, each time that they are made."""
    seen = []

    def watched(graph, hops, noise=None):
        if hops:
            seen.append(noise)
        return aggregated(graph, hops, noise)

    monkeypatch.setattr(aggregation, "aggregated", watched)
    return seen


def test_sums_that_are_learned_from_have_noise_of_the_planned_deviation(home, noises):
    """z·r·√D at each hop: 40,000 draws tell it to a hundredth. Only those before the plan is paid for have none."""
    job, plan = job_of(home)
    assert noises == [None]
    job.aggregate(plan, Secret.drawn(FixedSeed(5)))
    (noise,) = noises[1:]
    for hop in range(2):
        drawn = noise(hop, (200, 200))
        expected = plan.noise_multiplier * plan.schedule.aggregations[hop] * math.sqrt(9)
        assert drawn.std() == pytest.approx(expected, rel=0.02)
        assert abs(drawn.mean()) < 5 * expected / 200
    assert abs(np.corrcoef(noise(0, (40_000,)), noise(1, (40_000,)))[0, 1]) < 0.03


def test_the_noise_is_that_of_the_secret(home):
    job, plan = job_of(home)
    once, again, other = (job.aggregate(plan, Secret.drawn(FixedSeed(seed))).graph.features for seed in (5, 5, 6))
    np.testing.assert_array_equal(once, again)
    np.testing.assert_array_equal(once[:, :WORDS], job.dataset.graph.features[:, :WORDS])  # its own row has none
    for rows in (other, job.dataset.graph.features):
        assert (once[:, WORDS:] != rows[:, WORDS:]).all(axis=1).mean() > 0.9


@contextmanager
def stopped():
    """An interruption after the first step."""
    yield lambda: True


def test_a_run_that_was_stopped_goes_on_with_the_same_sums_and_with_no_others(home, runs, dpnlp, monkeypatch):
    runs("alone")
    flags = f"{RUNS['sums']} --privacy.epsilon 8"
    with monkeypatch.context() as patched:
        patched.setattr("dpnlp.cli.training.interruptible", stopped)
        assert dpnlp(command("stopped", flags))[0] == 130
    for other in ("--privacy.edges 3", "--data.words 15", "--model.hops 0"):
        code, _, err = dpnlp(f"train runs/stopped/config.yaml --resume {other}")
        assert code == 2
        assert "and the noise on sums over neighbours would be used twice; go on with those" in err
    code, _, err = dpnlp("train runs/stopped/config.yaml --resume")
    assert code == 0, err
    first, again = (load_file(home / "runs" / name / "model" / "model.safetensors") for name in ("stopped", "sums"))
    assert first.keys() == again.keys()
    assert all(np.array_equal(first[name], again[name]) for name in first)


# Models that are used


@pytest.mark.parametrize("name", ["neighbours", "sums"])
def test_a_run_is_scored_as_it_was(name, runs, dpnlp):
    code, out, err = dpnlp(f"evaluate {runs(name)} --json")
    assert code == 0, err
    (row,) = lines(runs(name) / "metrics.jsonl")
    assert json.loads(out)["macro_f1"]["score"] == pytest.approx(row["macro_f1"])


@pytest.mark.parametrize("name", ["neighbours", "sums"])
def test_another_graph_without_labels_is_answered_one_class_a_line(name, home, runs, dpnlp):
    code, out, err = dpnlp(f"predict {runs(name)} --data.texts new.jsonl --data.edges new.tsv")
    assert code == 0, err
    rows, _ = nodes(10, 1)
    write(home, "labelled", rows, nodes(10, 1)[1])
    graph = graph_of_texts(home / "labelled.jsonl", home / "labelled.tsv", encode=HashedWords(WORDS), test=0).graph
    network = load_network(runs(name) / "model")
    if network.base:
        answers = Nodes(network.base.model, network.base.classes).probabilities(aggregated(graph, 0))
        graph = aggregated(type(graph)(answers, graph.edges, graph.labels, graph.classes, graph.names), 2)
    else:
        graph = aggregated(graph, 0)
    assert out.splitlines() == Nodes(network.model, network.classes).predict(graph)
    assert dpnlp(f"predict {runs(name)} --data.texts labelled.jsonl --data.edges labelled.tsv --output out.txt")[0] == 0
    assert (home / "out.txt").read_text() == out


def test_a_folder_of_a_network_needs_no_run(home, runs, dpnlp):
    shutil.copytree(runs("neighbours") / "model", home / "published")
    line = f"--data.texts new.jsonl --data.edges new.tsv --data.words {WORDS}"
    code, out, err = dpnlp(f"predict published --task nodes {line}")
    assert code == 0, err
    assert out == dpnlp(f"predict {runs('neighbours')} --data.texts new.jsonl --data.edges new.tsv")[1]


def test_the_help_says_what_it_does(dpnlp):
    shown = {verb: dpnlp(f"{verb} --task nodes --help")[1] for verb in ("train", "evaluate", "predict")}
    helps = {verb: " ".join(text.split()) for verb, text in shown.items()}
    assert "for a node with all its edges, for a subgraph, or for the whole graph" in helps["train"]
    for flag in ("splits", "neighbours", "aggregations", "edges"):
        assert f"--privacy.{flag} INTEGER" in helps["train"]
    assert "only without privacy, as answers would hold what private nodes say" in helps["train"]
    assert "One of node, subgraph, graph. Default: node." in helps["train"]
    assert "dpnlp evaluate runs/posts --json" in helps["evaluate"]
    assert "dpnlp predict runs/posts --data.texts new.jsonl --data.edges new.tsv" in helps["predict"]
    assert "--data.held-out" not in helps["predict"]


# Bad input

REFUSALS = {
    "texts with messages from private nodes": ("--data.joined", "data.joined: the answers for other nodes would hold"),
    "two ways": ("--privacy.splits 3 --privacy.neighbours 2", "privacy.splits and privacy.neighbours are both given"),
    "two other ways": (
        "--privacy.neighbours 3 --privacy.aggregations 2",
        "privacy.neighbours and privacy.aggregations are both given; give one of the two.",
    ),
    "a graph in neighbourhoods": (
        "--privacy.unit graph --privacy.neighbours 2",
        "privacy.neighbours: it promises for a node; leave out --privacy.unit graph.",
    ),
    "a subgraph in sums": (
        "--privacy.unit subgraph --privacy.aggregations 2",
        "privacy.aggregations: it promises for a node; leave out --privacy.unit subgraph.",
    ),
    "a graph in splits": (
        "--privacy.unit graph --privacy.splits 2",
        "privacy.splits = 2: --privacy.unit graph is one record; leave it out.",
    ),
    "a subgraph without splits": (
        "--privacy.unit subgraph",
        "privacy.splits = 0: --privacy.unit subgraph needs at least 2; give more.",
    ),
    "a node that comes or goes in splits": (
        "--privacy.splits 3 --privacy.adjacency add-remove",
        "privacy.adjacency = add-remove: a node that comes or goes leaves another subgraph behind",
    ),
    "a node in neighbourhoods that is exchanged": (
        "--privacy.neighbours 2 --privacy.adjacency replace",
        "adjacency = replace: a unit that has a part in 11 records has no proved ε for it",
    ),
    "another sampler for neighbourhoods": (
        "--privacy.neighbours 2 --privacy.sampling shuffled",
        "sharing = 11: shuffled sampling has no proved ε for a unit that has a part in several records",
    ),
    "no unit": ("--privacy.unit user", "--privacy.unit = user: it must be one of node, subgraph, graph"),
    "fewer than no splits": ("--privacy.splits -1", "--privacy.splits = -1: it must be a whole number from 0 to"),
    "fewer than no neighbours": (
        "--privacy.neighbours -1",
        "--privacy.neighbours = -1: it must be a whole number from 0",
    ),
    "fewer than no sums": (
        "--privacy.aggregations -2",
        "--privacy.aggregations = -2: it must be a whole number from 0",
    ),
    "no edges": (
        "--privacy.neighbours 2 --privacy.edges 0",
        "--privacy.edges = 0: it must be a whole number from 1",
    ),
    "a start without sums": ("--model.start runs/alone", "only what it answers is used, in --privacy.aggregations"),
    "a start that makes sums": (
        "--privacy.aggregations 1 --model.start runs/sums",
        "--model.start = runs/sums: it reads sums over neighbours itself; give a run without",
    ),
    "a start with other features": (
        "--privacy.aggregations 1 --model.start runs/alone --data.words 17",
        "features = 17 a node: the network reads 16; make them as for what it learned.",
    ),
    "a start that is none": (
        "--privacy.aggregations 1 --model.start nowhere",
        "nowhere: there is no config.json in",
    ),
    "no graph": ("--data.texts none --data.corpus cora", "data.texts and data.corpus: both are given; give one"),
    "no texts": (
        "--data.corpus none",
        "--data.corpus = none: it must be one of pokec, cora, reddit, pubmed, citeseer.",
    ),
    "no file of edges": ("--data.edges nowhere.tsv", "nowhere.tsv"),
    "an edge to nowhere": ("--data.edges new.tsv", "new.tsv, line 1: there is no text with the id user-1-"),
    "texts without labels": ("--data.texts new.jsonl --data.edges new.tsv", "the label (label) is missing; there are"),
    "a class that is not named": ("--data.labels food music", "cannot be sport; there are"),
    "no words": ("--data.words 0", "--data.words = 0: it must be a whole number from 1 to 1,048,576."),
    "no share": ("--data.share 0", "--data.share = 0: it must be a number above 0 and at most 1."),
    "a share of nobody": (
        "--data.share 1e-9",
        "--data.share = 1e-09: no node is left to learn from; give",
    ),
    "less than nothing kept apart": (
        "--data.held-out -0.1",
        "--data.held-out = -0.1: it must be a number from 0 and below 1",
    ),
    "everything kept apart": ("--data.held-out 0.6 --data.validation 0.4", "test + validation = 1: it must be below 1"),
    "a share of a citation network": (
        "--data.corpus cora --data.validation 0.5",
        "--data.validation = 0.5: it must be a whole number of at least 0; give the number of nodes of a citation",
    ),
    "no layers": ("--model.layers 0", "--model.layers = 0: it must be a whole number from 1 to 1,024."),
    "all dropped": ("--model.dropout 1", "--model.dropout = 1: it must be a number from 0 and below 1."),
    "smoothing": ("--learning.smoothing 0.1", "--learning.smoothing = 0.1: it is for translation; leave it out."),
    "a lot of more than all": ("--learning.lot-size 99", "--learning.lot-size = 99: it must not exceed the"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_bad_input_is_one_sentence_and_leaves_nothing(case, home, runs, dpnlp):
    flags, sentence = REFUSALS[case]
    for name in re.findall(r"runs/(\w+)", flags):
        runs(name)
    code, _, err = dpnlp(command("bad", flags))
    assert code == 2, err
    assert sentence in err
    said = [line for line in err.splitlines() if not line.startswith("dpnlp: note:")]
    assert len(said) == 1
    assert not (home / "runs" / "bad").exists()


USES = {
    "no graph to answer for": ("predict {run}", "data.texts is not given: name the file with the texts."),
    "no edges to answer with": (
        "predict {run} --data.texts new.jsonl",
        "data.edges is not given: name the file with the edges between the texts.",
    ),
    "other features": (
        "predict {run} --data.texts new.jsonl --data.edges new.tsv --data.words 9",
        "features = 9 a node: the network reads 16; make them as for what it learned.",
    ),
    "another task": ("evaluate {run} --task tagging", "has learned nodes; leave --task out."),
    "a graph by name": ("evaluate {run} --data.corpus cora", "data.words = 16: the features of cora are given; leave"),
    "no network": (
        "predict new.jsonl --task nodes --data.texts a --data.edges b",
        "new.jsonl: there is no config",
    ),
}


@pytest.mark.parametrize(
    "flags",
    [
        "--data.held-out 0.9",
        "--data.held-out 0.7 --data.validation 0.2",
        "--data.held-out 0.9 --data.texts again.jsonl",
    ],
)
def test_no_node_that_was_learned_from_is_scored_whatever_its_name_and_the_split(home, runs, dpnlp, flags):
    rows, edges = nodes()
    write(home, "again", [{**row, "id": f"other {row['id']}"} for row in rows], edges)
    (home / "again.tsv").write_text("")
    run = runs("neighbours")
    kept = [line["source"].removeprefix("other ") for line in lines(run / "predictions" / "test.jsonl")]
    code, _, err = dpnlp(f"evaluate {run} {flags} --data.edges again.tsv --output scored.jsonl")
    assert code == 0, err
    assert "records that are trained on are left out" in err
    scored = [line["source"].removeprefix("other ") for line in lines(home / "scored.jsonl")]
    assert {*scored} <= {*kept}


@pytest.mark.parametrize("case", USES)
def test_bad_use_is_one_sentence(case, runs, dpnlp):
    line, sentence = USES[case]
    code, _, err = dpnlp(line.format(run=runs("neighbours")))
    assert code == 2, err
    assert sentence in err
    assert err.count("\n") == 1
