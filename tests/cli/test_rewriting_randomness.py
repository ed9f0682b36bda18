"""`dpnlp rewrite`: no two batches, splits or texts share randomness, and nothing is drawn before it is charged."""

import json

import pytest

from dpnlp.accounting.ledger import Ledger
from dpnlp.data.ledgers import DataSet
from dpnlp.mechanisms.randomness import FixedSeed
from dpnlp.runs.folder import Run

from ..tasks.readers import LABELS, WORDS, encoder
from .test_rewrite import MAKE

COUNT, BATCH = 24, 6


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with a rewriter, and two files of texts that all mean the same, three of which one person has.

    No word of them is known, so that they have the same vector, while no file holds a record of the other.
    """
    home = tmp_path_factory.mktemp("home")
    encoder(home / "encoder")
    (home / "bank.txt").write_text("".join(f"{one} {two}\n" for one in WORDS[:9] for two in WORDS[9:18]))
    for name in ("one", "other"):
        rows = [{"text": f"{name} zz", "label": LABELS[0], "who": f"{name} {number // 3}"} for number in range(COUNT)]
        (home / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return home


@pytest.fixture(scope="module", autouse=True)
def rewriter(dpnlp):
    code, _, err = dpnlp(MAKE.format("echo"))
    assert code == 0, err


def blind(name, flags=""):
    """At an ε that tells nothing, so that what comes out is what was drawn."""
    usual = "--data.label label --data.labels " + " ".join(LABELS)
    return (
        f"rewrite --name {name} --rewriter echo --data.train one.jsonl --privacy.epsilon 0.001 --batch {BATCH} "
        f"{usual} {flags}"
    )


def written(home, name, split="train"):
    return [(row["text"], row["label"]) for row in Run(home / "runs" / name).rewritten_texts(split)]


@pytest.mark.parametrize("seed", ["", "--privacy.seed 0"])
@pytest.mark.parametrize("labels", ["--privacy.label-epsilon 0.001", "--privacy.joint-labels"])
def test_equal_texts_of_all_batches_and_splits_are_drawn_apart(home, dpnlp, seed, labels):
    name = f"{'seeded' if seed else 'fresh'}-{labels[10]}"
    code, _, err = dpnlp(blind(name, f"--data.validation other.jsonl {seed} {labels}"))
    assert code == 0, err
    train, validation = written(home, name), written(home, name, "validation")
    batches = [tuple(lines[start : start + BATCH]) for lines in (train, validation) for start in range(0, COUNT, BATCH)]
    assert len({*batches}) == 2 * COUNT // BATCH
    for part in (0, 1):  # what is said, and how it is labelled
        told = [tuple(line[part] for line in batch) for batch in batches]
        assert len({*told}) > 1.3 * COUNT // BATCH  # as many as there are, or by chance one or two fewer


def test_places_of_a_seed_have_words_of_their_own():
    places = [(), *((split, line) for split in range(3) for line in (0, 1, 2, 6, 1024))]
    found = set()
    for place in places:
        source = FixedSeed(5)
        if place:
            source.restart(*place)
        found.add(source.bytes(32))
    assert len(found) == len(places)
    source = FixedSeed(5)
    source.restart(1, 6)
    again = source.bytes(32)
    source.restart(1, 6)
    assert source.bytes(32) == again


@pytest.mark.parametrize("many", [1, 3])
def test_the_labels_of_all_texts_of_a_person_are_paid_for(home, dpnlp, many):
    flags = "--privacy.label-epsilon 0.5 --data.owner who" if many > 1 else "--privacy.label-epsilon 0.5"
    line = blind(f"labels-{many}", f"{flags} --privacy.texts-per-person {many}")
    code, _, err = dpnlp(line.replace("--privacy.epsilon 0.001", "--privacy.epsilon 2"))
    assert code == 0, err
    promised = Run(home / "runs" / f"labels-{many}").guarantee
    assert promised.epsilon == pytest.approx(many * (2 + 0.5))


class Killed(BaseException):
    """What no program expects."""


@pytest.mark.parametrize("charged", [False, True], ids=["before the charge", "after it"])
def test_a_rewriting_that_is_killed_around_its_charge_pays_once_before_its_first_text(
    home, dpnlp, monkeypatch, charged
):
    name, ordinary = f"killed-{charged}", DataSet.charge
    spent = []

    def dying(self, *args):
        if charged:
            ordinary(self, *args)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(DataSet, "charge", dying)
        with pytest.raises(Killed):
            dpnlp(blind(name))
    assert not (home / "runs" / name).exists() or not any(written(home, name))

    def noted(self, *args):
        spent.append(
            (args[0].what, len(written(home, name)) if list(Run(home / "runs" / name).rewritten_splits()) else 0)
        )
        return ordinary(self, *args)

    again = f"rewrite runs/{name}/config.yaml --resume" if (home / "runs" / name).exists() else blind(name)
    with monkeypatch.context() as patch:
        patch.setattr(DataSet, "charge", noted)
        code, _, err = dpnlp(again)
    assert code == 0, err
    assert spent
    assert all(lines == 0 for _, lines in spent)
    releases = [one for one in Ledger.beside(home / "one.jsonl").read().releases if one.what.endswith(name)]
    assert len(releases) == 1
    assert len(written(home, name)) == COUNT
