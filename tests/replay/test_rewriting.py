"""Every rewriter, given texts of which one was exchanged, and the same random words: only what gets noise differs."""

import json

import numpy as np
import pytest

from dpnlp.models.word_vectors import Vectors
from dpnlp.rewriting.adept import Adept
from dpnlp.rewriting.dp_bart import DPBart
from dpnlp.rewriting.echo import Echo
from dpnlp.rewriting.noisy_echo import NoisyEcho
from dpnlp.rewriting.word_metric import WordMetric
from dpnlp.tasks.translation import Writing

from ..cli.test_rewrite import MAKE
from ..rewriting import test_adept, test_clipped_sampling, test_echo, test_retell
from ..rewriting.barts import micro
from ..rewriting.test_dp_bart import WRITING
from ..tasks.readers import LABELS, WORDS, encoder, labelled, write_labelled
from .commands import exchange, replayed
from .tape import Tape, running

TEXTS = ("ba be", "di do du", "", "a song by the beatles", "bu")
OTHER = "de be bi bo bu da de di do du ba what is the weather in rome"
DRAWN = Writing(longest=8, beams=1, sample=True)


REWRITERS = {
    "adept, Laplace": lambda source: Adept(test_adept.untrained(order=1), 2.0, source=source),
    "adept, Gaussian": lambda source: Adept(test_adept.untrained(), 2.0, 1e-3, source=source),
    "dp-bart": lambda source: DPBart(micro(), 50.0, 1e-5, writing=WRITING, source=source, threads=1),
    "echo": lambda source: Echo(test_echo.BANK, test_echo.Meaning(), 2.0, source),
    "noisy-echo": lambda source: NoisyEcho(test_echo.BANK, test_echo.Meaning(), 2.0, 1e-3, 3, source),
    "retell": lambda source: test_retell.rewriter(50.0, retelling=test_retell.loud(), source=source),
    "retell, drawn": lambda source: test_retell.rewriter(
        50.0, retelling=test_retell.loud(), source=source, writing=DRAWN
    ),
    "sampling": lambda source: test_clipped_sampling.rewriter(
        test_clipped_sampling.logits(), tokens=3, source=source, batch=4
    ),
    "words": lambda source: WordMetric(
        Vectors(("ba", "be", "di", "do", "du"), np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)),
        2.0,
        source,
    ),
}


@pytest.mark.parametrize("method", REWRITERS)
def test_one_text_moves_nothing_but_what_gets_noise(method):
    other = "ba du" if method == "words" else OTHER  # how many words there are is not covered there
    texts = {"sampling": ("a b", "b", "", "b b a", "a"), "words": ("ba be", "ba be", "di", "xx", "du")}.get(
        method, TEXTS
    )
    first = Tape()
    rewriter = REWRITERS[method](first)
    with running(first):
        found = rewriter.rewrite(texts)
    second = Tape(first)
    rewriter = REWRITERS[method](second)
    with running(second):
        assert rewriter.rewrite((texts[0], other, *texts[2:])) == found
    second.end()


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with a micro encoder, public sentences, and private notes."""
    home = tmp_path_factory.mktemp("replay")
    encoder(home / "encoder")
    (home / "bank.txt").write_text("".join(f"{one} {two}\n" for one in WORDS[:9] for two in WORDS[9:18]))
    write_labelled(home / "notes.jsonl", labelled(20, 1))
    write_labelled(home / "test.jsonl", labelled(6, 2))
    rows = [{"text": "Good morning to you", "author": f"user{n}"} for n in range(400)]
    (home / "chats.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return home


LABEL = {
    "apart": "--privacy.label-epsilon 1",
    "together": "--privacy.joint-labels",
}


@pytest.mark.parametrize("label", LABEL)
def test_a_run_of_rewriting_writes_the_same_but_for_what_was_drawn(home, label):
    line = "rewrite --name run --rewriter echo --data.train notes.jsonl --data.test test.jsonl --data.label label "
    line += f"--data.labels {' '.join(LABELS)} --privacy.epsilon 3 --scoring.encoder encoder --batch 8 {LABEL[label]}"
    edit = exchange("notes.jsonl", 3, text="ba ba ba ba", label="good")
    tape = replayed(home, edit, MAKE.format("echo"), line, private=("notes.jsonl",))
    assert {answer.what for answer in tape.answers} >= {"SubsetResponse"}


def test_a_vocabulary_holds_the_same_words_but_for_what_was_drawn(home):
    line = "vocabulary --data.train chats.jsonl --data.owner author --privacy.epsilon 3 --privacy.delta 1e-9 --lower "
    edit = exchange("chats.jsonl", 7, text="to you")
    replayed(home, edit, f"{line} --words 8 --output words", private=("chats.jsonl",))
