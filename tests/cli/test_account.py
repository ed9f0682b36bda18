"""`dpnlp account`, run as a person runs it."""

import json
import math
import struct

import pytest
from matplotlib.figure import Figure

from dpnlp.accounting.accountant import epsilon
from dpnlp.accounting.planning import Question
from dpnlp.accounting.subsampling import Sampling, Schedule
from dpnlp.cli.main import main
from dpnlp.cli.pictures import _draw_steps
from dpnlp.events import Gaussian, Repeated
from dpnlp.guarantee import Adjacency, Guarantee

BSD = "account --examples 22051 --lot-size 2048 --epochs 25 --delta 1e-8 --epsilon 5"


@pytest.fixture
def dpnlp(capsys):
    """Runs one command line; gives its exit code, stdout and stderr."""

    def run(line):
        code = main(line.split())
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def test_the_figure_of_abadi_et_al(dpnlp):
    line = "account --examples 60000 --lot-size 600 --steps 10000 --noise-multiplier 4 --delta 1e-5"
    code, out, _ = dpnlp(f"{line} --accountant moments --json")
    assert code == 0
    assert json.loads(out)["epsilon"] == 1.2586


def test_noise_for_a_target(dpnlp):
    code, out, err = dpnlp(f"{BSD} --json")
    plan = json.loads(out)
    assert (code, err, plan["steps"], plan["solved_for"]) == (0, "", 275, "noise_multiplier")
    event = Schedule(22_051, 2048, 275).event(plan["noise_multiplier"])
    assert 4.99 < epsilon(event, 1e-8, Adjacency.ADD_REMOVE) <= plan["epsilon"] <= 5
    assert Guarantee.parse(plan["signature"]) == Guarantee.from_json(plan["guarantee"])


def test_a_million_steps(dpnlp):
    line = "account --examples 22051 --lot-size 2048 --steps 1e6 --delta 1e-8 --epsilon 5 --json"
    plan = json.loads(dpnlp(line)[1])
    assert 4.99 < plan["epsilon"] <= 5


def test_shuffled_lots_are_told_apart_from_poisson(dpnlp):
    poisson = json.loads(dpnlp(f"{BSD} --json")[1])
    shuffled = json.loads(dpnlp(f"{BSD} --sampling shuffled --json")[1])
    figure = shuffled["as_if_poisson_epsilon_no_guarantee"]
    assert shuffled["epsilon"] > 3 * figure
    assert shuffled["noise_multiplier"] > 2 * poisson["noise_multiplier"]
    # The noise that a paper would have taken guarantees three times the ε that it would have printed.
    assert shuffled["noise_multiplier_if_mistaken_for_poisson"] == poisson["noise_multiplier"]
    assert shuffled["epsilon_if_mistaken_for_poisson"] > 3 * poisson["epsilon"]
    assert shuffled["lower_bound_epsilon"] <= shuffled["lower_bound_epsilon_same_order_every_epoch"]
    assert shuffled["lower_bound_epsilon_same_order_every_epoch"] <= shuffled["epsilon"]
    assert shuffled["adjacency"] == "zero-out"


def test_samplers_and_accountants_side_by_side(dpnlp):
    rows = json.loads(dpnlp(f"{BSD} --json")[1])["comparison"]
    cells = {(row["sampling"], row["accountant"]): row["epsilon"] for row in rows}
    assert len(cells) == 15
    assert cells["poisson", "pld"] < cells["poisson", "rdp"] < cells["poisson", "moments"]
    assert cells["truncated-poisson", "rdp"] is None
    assert cells["shuffled", "pld"] > 3 * cells["poisson", "pld"]


def test_whole_groups_in_turn_are_planned_without_amplification(dpnlp):
    found = json.loads(dpnlp(f"{BSD} --sampling cyclic --bands 11 --json")[1])
    assert epsilon(Repeated(Gaussian(found["noise_multiplier"]), 25), 1e-8, Adjacency.ADD_REMOVE) <= 5
    assert "|sampler:cyclic(groups=11,bands=11)|" in found["signature"]
    assert "cyclic-poisson" not in {row["sampling"] for row in found["comparison"]}  # its groups would be too small
    assert "each lot from one of 11 groups" in dpnlp(f"{BSD} --sampling cyclic --bands 11")[1]


def test_groups_in_turn_cost_more_noise_and_stand_beside_the_others(dpnlp):
    poisson = json.loads(dpnlp(f"{BSD} --json")[1])
    cyclic = json.loads(dpnlp(f"{BSD} --sampling cyclic-poisson --bands 4 --json")[1])
    event = Schedule(22_051, 2048, 275, Sampling.CYCLIC_POISSON, bands=4).event(cyclic["noise_multiplier"])
    assert 4.99 < epsilon(event, 1e-8, Adjacency.ADD_REMOVE) <= cyclic["epsilon"] <= 5
    assert cyclic["noise_multiplier"] > 1.5 * poisson["noise_multiplier"]
    assert (poisson["bands"], cyclic["bands"]) == (1, 4)
    assert "|sampler:cyclic-poisson(q=0.0928" in cyclic["signature"]
    assert Guarantee.parse(cyclic["signature"]) == Guarantee.from_json(cyclic["guarantee"])
    cells = {(row["sampling"], row["accountant"]): row["epsilon"] for row in cyclic["comparison"]}
    assert len(cells) == 18
    assert cells["poisson", "pld"] < cells["cyclic-poisson", "pld"] <= 5 < cells["shuffled", "pld"]
    assert cells["cyclic", "pld"] == cells["shuffled", "pld"]
    out = dpnlp(f"{BSD} --sampling cyclic-poisson --bands 4")[1]
    assert "each lot from one of 4 groups" in out
    assert "Noise in bands is covered by cyclic-poisson and cyclic alone." in " ".join(out.split())


def test_a_node_in_its_neighbours_records_costs_more_noise(dpnlp):
    line = "account --examples 2708 --lot-size 1354 --steps 20 --delta 1e-5 --epsilon 8 --unit node"
    alone, shared = (json.loads(dpnlp(f"{line} --sharing {sharing} --json")[1]) for sharing in (1, 5))
    assert (alone["sharing"], shared["sharing"]) == (1, 5)
    assert alone == json.loads(dpnlp(f"{line} --json")[1])
    event = Schedule(2708, 1354, 20, sharing=5).event(shared["noise_multiplier"])
    assert 7.99 < epsilon(event, 1e-5, Adjacency.ADD_REMOVE) <= shared["epsilon"] <= 8
    assert shared["noise_multiplier"] > 5 * alone["noise_multiplier"]
    assert "|sampler:poisson(q=0.5,sharing=5)|" in shared["signature"]
    assert Guarantee.parse(shared["signature"]) == Guarantee.from_json(shared["guarantee"])
    assert {row["sampling"] for row in shared["comparison"]} == {"poisson"}
    assert all(row["epsilon"] > 7.99 for row in shared["comparison"])
    out = " ".join(dpnlp(f"{line} --sharing 5")[1].split())
    assert "2,708, each one node, which has a part in up to 5 of them" in out
    assert "A unit with a part in several records is covered by poisson alone." in out


def test_one_group_is_not_shown_beside_poisson(dpnlp):
    plan = json.loads(dpnlp(f"{BSD} --sampling cyclic-poisson --json")[1])
    assert plan["epsilon"] == json.loads(dpnlp(f"{BSD} --json")[1])["epsilon"]
    assert "cyclic-poisson" not in {row["sampling"] for row in plan["comparison"]}


def test_the_tables_say_what_was_computed(dpnlp):
    code, out, err = dpnlp(f"{BSD} --sampling shuffled")
    assert (code, err) == (0, "")
    for phrase in (
        "noise multiplier  5.695",
        "← computed",
        "as papers print; no guarantee here",
        "What is promised",
        "What it means for an attacker",
        "What is not covered",
        "|acct:pld|",
    ):
        assert phrase in out


@pytest.mark.parametrize("sampling", ["poisson", "shuffled", "poisson --sharing 3"])
def test_pictures(dpnlp, tmp_path, sampling):
    file = tmp_path / "plan.png"
    line = "account --examples 1000 --lot-size 100 --epochs 3 --delta 1e-5 --noise-multiplier 2"
    assert dpnlp(f"{line} --sampling {sampling} --plot {file}")[0] == 0
    data = file.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">II", data[16:24]) == (1650, 660)


def test_a_picture_begins_with_what_was_released_before_the_first_step():
    known = {"records": 1000, "delta": 1e-5, "lot_size": 100, "steps": 9, "noise_multiplier": 4.0}
    for aggregations, start in (((), 0.0), ((1.5,), epsilon(Gaussian(6.0), 1e-5, Adjacency.ADD_REMOVE))):
        plan, axes = Question(**known, aggregations=aggregations).answer(), Figure().subplots()
        _draw_steps(axes, plan)
        drawn = axes.lines[0].get_xydata()
        assert tuple(drawn[0]) == (0, start)
        assert drawn[-1] == pytest.approx((9, plan.guarantee.epsilon), rel=1e-4)


def test_no_privacy_is_said_to_be_none(dpnlp):
    line = "account --examples 1000 --lot-size 100 --steps 10 --delta 1e-5"
    plan = json.loads(dpnlp(f"{line} --noise-multiplier 0 --json")[1])
    assert (plan["epsilon"], plan["statement"][:22]) == ("inf", "No privacy is promised")
    plan = json.loads(dpnlp(f"{line} --epsilon inf --json")[1])
    assert plan["noise_multiplier"] == 0


def test_a_large_delta_draws_a_note_that_explains_itself(dpnlp):
    line = "account --examples 1000 --lot-size 100 --steps 10 --delta 0.01 --epsilon 1 --json"
    code, out, err = dpnlp(line)
    assert code == 0
    assert err.startswith("dpnlp: note: delta = 0.01 is not below 1/1000 = 0.001: publishing one record in clear")
    assert json.loads(out)["notes"][0] in err


def test_settings_from_a_file_are_overridden_by_flags(dpnlp, tmp_path):
    file = tmp_path / "plan.yaml"
    file.write_text("examples: 60000\nlot_size: 600\nsteps: 10000\nnoise_multiplier: 4\ndelta: 1e-5\n")
    first = json.loads(dpnlp(f"account {file} --json")[1])
    second = json.loads(dpnlp(f"account {file} --noise-multiplier 8 --json")[1])
    assert (first["noise_multiplier"], second["noise_multiplier"]) == (4, 8)
    assert second["epsilon"] < first["epsilon"]


GOOD = {"--examples": "1000", "--lot-size": "100", "--steps": "10", "--delta": "1e-5", "--epsilon": "1"}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            {"--epsilon": "0"},
            "--epsilon = 0: it must be a number above 0 and at most 1e4, or inf,",
        ),
        (
            {"--epsilon": "-3"},
            "--epsilon = -3: it must be a number above 0 and at most 1e4, or inf,",
        ),
        (
            {"--epsilon": "nan"},
            "--epsilon = nan: it must be a number above 0 and at most 1e4, or inf,",
        ),
        (
            {"--delta": "0"},
            "--delta = 0: it must be a number above 0 and below 1; choose it well below one in the number of",
        ),
        (
            {"--delta": "1"},
            "--delta = 1: it must be a number above 0 and below 1; choose it well below one in the number of",
        ),
        ({"--delta": "nan"}, "--delta = nan: it must be a number above 0 and below 1; nan is not one."),
        ({"--lot-size": "1001"}, "--lot-size = 1001: it must not exceed the 1000 records; choose a smaller lot."),
        ({"--lot-size": "0"}, "--lot-size = 0: it must be a whole number from 1 to 1e12, or none."),
        ({"--lot-size": "2.5"}, "--lot-size = 2.5: it must be a whole number from 1 to 1e12, or none."),
        ({"--examples": "0"}, "--examples = 0: it must be a whole number from 1 to 1e12."),
        ({"--examples": "nan"}, "--examples = nan: it must be a whole number from 1 to 1e12; nan is not one."),
        ({"--steps": "-1"}, "--steps = -1: it must be a whole number from 1 to 1e9, or none."),
        (
            {"--noise-multiplier": "0", "--steps": None},
            "--noise-multiplier = 0: no finite ε, such as 1.0, can hold without noise.",
        ),
        (
            {"--noise-multiplier": "-1", "--epsilon": None},
            "--noise-multiplier = -1: it must be a number of 0, or from 0.01 to 1e6, or none; 0 takes none.",
        ),
        (
            {"--sampling": "bernoulli"},
            "--sampling = bernoulli: it must be one of poisson, truncated-poisson, fixed-size, shuffled, "
            "cyclic-poisson, cyclic.",
        ),
        (
            {"--sampling": "cyclic-poisson", "--bands": "11"},
            "--bands = 11: a lot of 100 does not fit into one of as many groups of the 1000 records; use at most 10, "
            "or smaller lots.",
        ),
        (
            {"--bands": "2"},
            "--bands = 2: only cyclic-poisson and cyclic sampling have more than one; choose one of them, or 1.",
        ),
        ({"--sharing": "0"}, "--sharing = 0: it must be a whole number from 1 to 1e12."),
        (
            {"--sharing": "3", "--sampling": "shuffled"},
            "--sharing = 3: shuffled sampling has no proved ε for a unit that has a part in several records, so none "
            "is given; use poisson, or 1.",
        ),
        (
            {"--sharing": "3", "--adjacency": "replace"},
            "--adjacency = replace: a unit that has a part in 3 records has no proved ε for it, so none is given; use "
            "add-remove.",
        ),
        ({"--delta": None}, "--delta is not given: The δ of the guarantee, well below one in the number of records."),
        ({"--epsilom": "3"}, "--epsilom: unknown flag; the nearest known one is --epsilon."),
        (
            {"--sampling": "fixed-size", "--adjacency": "add-remove"},
            "--adjacency = add-remove: fixed-size sampling has no proved ε for it, so none is given; use replace.",
        ),
        (
            {"--sampling": "truncated-poisson", "--accountant": "rdp"},
            "rdp knows no bound for TruncatedPoissonSampled",
        ),
    ],
)
def test_bad_input_is_one_sentence_and_writes_nothing(dpnlp, tmp_path, monkeypatch, change, sentence):
    monkeypatch.chdir(tmp_path)
    flags = {**GOOD, "--plot": "plan.png", **change}
    code, out, err = dpnlp(
        "account " + " ".join(f"{name} {value}" for name, value in flags.items() if value is not None)
    )
    assert (code, out) == (2, "")
    assert err.startswith(f"dpnlp: {sentence}")
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_there(dpnlp):
    flags = " ".join(f"{name} {value}" for name, value in GOOD.items())
    code, out, err = dpnlp(f"account {flags} --plot no/such/plan.png")
    assert (code, out) == (2, "")
    assert err == "dpnlp: --plot = no/such/plan.png: there is no folder no/such; create it first.\n"


def test_json_has_no_nan_and_no_bare_infinity(dpnlp):
    out = dpnlp("account --examples 10 --lot-size 10 --steps 1 --delta 1e-3 --noise-multiplier 0 --json")[1]
    assert not math.isnan(len(json.loads(out, parse_constant=lambda word: pytest.fail(f"bare {word}"))))
