"""Tables of many runs: what is averaged, what tells rows apart, and that every form says the same."""

import csv
import io
import math
import statistics

import pytest

from dpnlp.accounting import pld
from dpnlp.accounting.subsampling import Sampling
from dpnlp.events import Composed
from dpnlp.runs.privacy import Privacy
from dpnlp.runs.tables import Table, cost, scores, settings

from .fakes import BLEU, DELTA, fake, row


def test_runs_that_differ_in_the_seed_alone_are_one_row(tmp_path):
    bleus = {1: 30.0, 2: 31.5, 3: 27.25}
    runs = [fake(tmp_path / f"seed-{seed}", seed=seed, bleu=bleu) for seed, bleu in bleus.items()]
    (only,) = Table.of(runs).rows
    assert only.scores["bleu"].mean == pytest.approx(sum(bleus.values()) / 3)
    assert only.scores["bleu"].std == pytest.approx(statistics.stdev(bleus.values()))
    assert (only.epsilon, only.runs) == (4.0, tuple(runs))
    assert 4.0 < only.together < 12.0
    together = Composed(tuple(run.privacy.own.event for run in runs))
    assert only.together == pytest.approx(pld.epsilon(together, DELTA, runs[0].guarantee.adjacency), rel=1e-3)
    table = Table.of(runs)
    assert table.columns[:3] == ["ε", "runs", "ε together"]
    assert table.cells() == [["4", "3", cost(only.together), "29.58 ± 2.16", "49.58 ± 2.16"]]
    assert "ε is that of one run." in " ".join(table.notes)


def test_one_run_has_no_deviation(tmp_path):
    assert Table.of([fake(tmp_path / "one")]).cells() == [["4", "1", "30.00", "50.00"]]


@pytest.mark.parametrize(
    ("changes", "column", "values"),
    [
        ({"corpus": "bsd"}, "corpus", {"clinic", "bsd"}),
        ({"model": {"start": "t5-base"}}, "model", {"google/mt5-small", "t5-base"}),
        ({"learning": {"rate": 0.01}}, "learning.lot_size", {"500", "none"}),
        ({"sampling": Sampling.SHUFFLED}, "sampling", {"poisson", "shuffled"}),
    ],
)
def test_what_differs_becomes_a_column_and_is_not_averaged_away(tmp_path, changes, column, values):
    table = Table.of([fake(tmp_path / "a"), fake(tmp_path / "b", **changes)])
    assert {found.settings[column] for found in table.rows} == values
    assert [len(found.runs) for found in table.rows] == [1, 1]


def test_what_a_run_is_called_and_where_its_files_lie_sets_no_run_apart(tmp_path):
    paths = {"data": {"corpus": "clinic", "cache": "/elsewhere"}}
    same = {"data": {"corpus": "clinic", "cache": "/here"}}
    table = Table.of([fake(tmp_path / "a", **paths), fake(tmp_path / "b", **same)])
    assert len(table.rows) == 1


def test_a_column_that_tells_no_more_rows_apart_is_left_out(tmp_path):
    one = {"data": {"corpus": "a", "source": "de"}}
    other = {"data": {"corpus": "b", "source": "ja"}}
    table = Table.of([fake(tmp_path / "a", **one), fake(tmp_path / "b", **other)])
    assert table.columns == ["corpus", "ε", "runs", "BLEU", "chrF"]


def test_the_rows_of_dp_nmts_table(tmp_path):
    grid = [
        (corpus, epsilon, sampling)
        for sampling in (Sampling.SHUFFLED, Sampling.POISSON)
        for epsilon in (1.0, math.inf, 5.0)
        for corpus in ("wmt16", "bsd")
    ]
    runs = [fake(tmp_path / str(n), e, s, corpus=c) for n, (c, e, s) in enumerate(grid)]
    table = Table.of(runs)
    assert [line[:4] for line in table.cells()[:6]] == [
        ["bsd", "poisson", "–", "∞"],
        ["bsd", "shuffled", "–", "∞"],
        ["bsd", "poisson", "add-remove", "5"],
        ["bsd", "shuffled", "zero-out", "5"],
        ["bsd", "poisson", "add-remove", "1"],
        ["bsd", "shuffled", "zero-out", "1"],
    ]
    assert table.notes[0] == "ε is not comparable between rows that are for different units, neighbours or δ."


def test_the_notes_name_the_unit_and_how_scores_were_made(tmp_path):
    runs = [fake(tmp_path / "a"), fake(tmp_path / "b", epsilon=math.inf)]
    assert Table.of(runs).notes == (f"ε is for one example, under add-remove, at δ = {DELTA:g}.", f"BLEU: {BLEU}")
    runs[1].write_metrics([{"step": 1, "split": "test", "bleu": 1.0, "bleu_signature": "tok:char"}])
    assert Table.of(runs).notes[1] == f"BLEU was computed in different ways: {BLEU}; tok:char."


def test_a_run_that_came_to_less_than_it_was_made_for_keeps_its_own_epsilon(tmp_path):
    run = fake(tmp_path / "a")
    origins, plan = run.privacy.origins, run.privacy.plan
    for target, shown in ((4.01, "4.01"), (5.0, "4"), (3.9, "4"), (None, "4")):
        run.write_privacy(Privacy(origins, {**plan, "target": target}))
        assert Table.of([run]).cells()[0][0] == shown


def test_every_form_has_the_same_figures(tmp_path):
    runs = [fake(tmp_path / "a|b", bleu=30.125), fake(tmp_path / "c", epsilon=math.inf, corpus="x|y, z")]
    table = Table.of(runs)
    read = list(csv.DictReader(io.StringIO(table.csv())))
    assert [(line["corpus"], float(line["epsilon"]), float(line["bleu"]), line["bleu_std"]) for line in read] == [
        ("clinic", 4.0, 30.125, ""),
        ("x|y, z", math.inf, 30.0, ""),
    ]
    assert [entry["scores"]["bleu"]["mean"] for entry in table.to_json()] == [30.125, 30.0]
    assert table.markdown().splitlines()[3] == r"| x\|y, z | ∞ | 1 | 30.00 | 50.00 |"


def test_scores_are_of_test_data_first_and_of_the_last_step(tmp_path):
    run = fake(tmp_path / "a")
    run.write_metrics([row(step, 1, split, bleu) for step, split, bleu in _EVALUATIONS])
    assert [(found.split, found.before["bleu"], found.after["bleu"]) for found in scores(run)] == [
        ("test", 2, 4),
        ("validation", 1, 3),
    ]
    assert "step" not in scores(run)[0].after


_EVALUATIONS = [(0, "validation", 1), (0, "test", 2), (2, "validation", 9), (4, "validation", 3), (5, "test", 4)]


def test_scores_on_different_splits_are_not_averaged(tmp_path):
    runs = [fake(tmp_path / name) for name in "ab"]
    runs[0].write_metrics([row(5, 1, "validation", 99)])
    assert [(found.settings["split"], found.scores["bleu"].mean) for found in Table.of(runs).rows] == [
        ("test", 30.0),
        ("validation", 99.0),
    ]


def test_a_run_that_was_not_scored_is_a_row_without_scores(tmp_path):
    run = fake(tmp_path / "a")
    run.write_metrics([])
    table = Table.of([run, fake(tmp_path / "b", corpus="bsd")])
    assert table.cells() == [["bsd", "4", "1", "30.00", "50.00"], ["clinic", "4", "1", "–", "–"]]


def test_settings_are_flat_and_as_typed():
    nested = {"model": {"start": "t5", "lora": None}, "data": {"train": ["a", "b"], "test": []}, "fast": True}
    assert settings(nested) == {
        "model.start": "t5",
        "model.lora": "none",
        "data.train": "a b",
        "data.test": "none",
        "fast": "true",
    }


@pytest.mark.parametrize(
    ("epsilon", "shown"), [(4.99981, "4.9999"), (math.inf, "∞"), (1000.0, "1,000"), (15350.2, "15,351"), (0.0, "0")]
)
def test_an_epsilon_is_rounded_up(epsilon, shown):
    assert cost(epsilon) == shown


def test_nothing_to_show_is_an_empty_table():
    assert Table.of([]).cells() == []
