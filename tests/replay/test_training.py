"""`dpnlp train` of every task, run again with one record exchanged: only the sums over lots may tell the two apart."""

import pytest

from ..cli.test_nodes import nodes, write
from ..tasks import modellers, translators
from ..tasks.readers import (
    LABELS,
    TAGS,
    encoder,
    labelled,
    questions,
    tagged,
    write_labelled,
    write_questions,
    write_tagged,
)
from .commands import exchange, replayed

COUNT = 12
SMALL = "--learning.physical-batch 8 --learning.steps 2 --privacy.delta 1e-3"
SMALL += " --privacy.epsilon 4"
TEXTS = "--data.longest 16 --learning.lengths 16"
ROUNDS = "--federated.local-epochs 2 --federated.local-batch 2 --learning.optimizer sgd --learning.rate 1"
ROUNDS += " --learning.decay constant --privacy.unit user"
NODES = "--data.texts posts.jsonl --data.edges posts.tsv --data.words 16 --data.held-out 0.1 --model.hidden 4"
NODES += " --data.labels food sport"
RUNS = {
    "translation": (
        "--data.train pairs.jsonl --data.test pairs-test.jsonl --data.source de --data.target en --model.start start "
        "--scoring.beams 1 --data.longest 32",
        exchange("pairs.jsonl", 3, de=" ".join(["ba do"] * 9), en="pru"),  # longer than all others
    ),
    "modelling": (
        "--data.train texts.jsonl --data.test texts-test.jsonl --data.owner who --model.start lstm --privacy.unit user "
        "--model.vocabulary words --model.width 8 --model.hidden 12 --data.longest 16",
        exchange("texts.jsonl", 3, text="ba du ba du ba du ba du ba"),
    ),
    "modelling by federated rounds": (
        "--data.train texts.jsonl --data.test texts-test.jsonl --data.owner who --model.start lstm "
        f"--model.vocabulary words --model.width 8 --model.hidden 12 {ROUNDS} {TEXTS}",
        exchange("texts.jsonl", 3, text="ba du ba du ba du ba du ba"),
    ),
    "classification with canaries": (
        "--data.train labelled.jsonl --data.test labelled-test.jsonl --data.pair pair --model.start bert "
        f"--data.labels {' '.join(LABELS)} --audit.canaries 10 {TEXTS}",
        exchange("labelled.jsonl", 3, text="ba", label="good"),
    ),
    "tagging": (
        f"--data.train tagged.jsonl --data.test tagged-test.jsonl --model.start bert --data.labels {' '.join(TAGS)} "
        f"{TEXTS}",
        exchange("tagged.jsonl", 3, words=["ba"], tags=["O"]),
    ),
    "answering": (
        "--data.train questions.jsonl --data.test questions-test.jsonl --model.start bert --data.stride 8 "
        "--data.longest 32 --learning.lengths 32",
        exchange("questions.jsonl", 3, question="du", answers=[]),
    ),
    "nodes": (NODES, exchange("posts.jsonl", 11, text="soup", label="food")),
    "nodes with sums over neighbours": (
        f"{NODES} --privacy.aggregations 2 --privacy.edges 4",
        exchange("posts.jsonl", 11, text="soup", label="food"),
    ),
}
"""The flags of a task, and an exchange of one of its records."""


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with small models, private records for each task, and some to test on."""
    home = tmp_path_factory.mktemp("replay")
    translators.saved(home / "start")
    modellers.tokenizer().save_pretrained(home / "words")
    encoder(home / "bert")
    for ending, count, seed in (("", COUNT, 1), ("-test", 4, 2)):
        translators.write_pairs(home / f"pairs{ending}.jsonl", translators.sentences(count, seed))
        modellers.write_texts(home / f"texts{ending}.jsonl", modellers.sentences(count, seed, owners=11))
        write_labelled(home / f"labelled{ending}.jsonl", labelled(count, seed, pairs=True))
        write_tagged(home / f"tagged{ending}.jsonl", tagged(count, seed))
        write_questions(home / f"questions{ending}.jsonl", questions(count, seed))
    write(home, "posts", *nodes(30))
    return home


@pytest.mark.parametrize("what", RUNS)
def test_one_record_moves_nothing_but_the_sums_over_lots(home, what):
    (flags, edit), task = RUNS[what], what.split()[0]
    private = ("posts.jsonl", "posts.tsv") if task == "nodes" else (flags.split()[1],)
    more = "--learning.lot-size 24" if task == "nodes" else "--learning.lot-size 10 --data.cache cache"
    tape = replayed(home, edit, f"train --task {task} --name run {flags} {SMALL} {more}", private=private)
    sums = ["sum over neighbours"] * 2 if "sums" in what else []
    assert [answer.what for answer in tape.answers] == [*sums, "lot", "lot"]
