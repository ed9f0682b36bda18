"""`dpnlp audit RUN`, run as a person runs it: on micro models that know their data by heart, and on others."""

import json
import random
import shutil
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from dpnlp.accounting.ledger import Ledger
from dpnlp.audit import lira
from dpnlp.cli.attacked_tasks import attacked
from dpnlp.cli.audit_run import AuditRun
from dpnlp.cli.shadow_runs import shadow_models
from dpnlp.data.labelled import Labelled
from dpnlp.data.pairs import Pair
from dpnlp.data.plain import Text
from dpnlp.data.views import Rows
from dpnlp.events import ApproximateDP
from dpnlp.guarantee import Adjacency
from dpnlp.runs.folder import NOT_COVERED_BY, Run
from dpnlp.runs.privacy import Privacy, new_id

from ..tasks import modellers, readers, translators

COUNT = 30
LEARNS = "--privacy.epsilon inf --privacy.sampling shuffled --learning.lot-size 8 --learning.physical-batch 8"
LEARNS += " --data.cache cache --learning.decay constant --learning.lengths 32"
BY_HEART = {
    "modelling": "--learning.steps 150 --learning.rate 0.03",
    "translation": "--learning.steps 260 --learning.rate 0.005",
    "classification": "--learning.steps 100 --learning.rate 0.02",
}
STILL = "--learning.steps 1 --learning.rate 1e-9"
FLAGS = {
    "modelling": "--model.start lstm --model.vocabulary words --model.width 16 --model.hidden 32 --data.longest 16",
    "translation": "--model.start start --data.source de --data.target en --data.longest 32 --scoring.beams 1",
    "classification": "--model.start glove.txt --data.longest 16 --model.strategy bilstm --model.hidden 16",
}


def words(rng, known, count):
    return " ".join(rng.choice(known) for _ in range(count))


def records(task, count, seed):
    """Texts of words at random, which cannot be known but by heart."""
    rng = random.Random(seed)
    if task == "modelling":
        return [Text(words(rng, modellers.WORDS[:10], 12), f"owner {n // 2} of {seed}") for n in range(count)]
    if task == "translation":
        sides = translators.ONE, translators.OTHER
        return [Pair(*(words(rng, side, 5) for side in sides), f"owner {n // 2} of {seed}") for n in range(count)]
    return [
        Labelled(words(rng, readers.WORDS, 6), None, rng.choice(readers.LABELS), f"owner {n}") for n in range(count)
    ]


WRITERS = {
    "modelling": modellers.write_texts,
    "translation": translators.write_pairs,
    "classification": readers.write_labelled,
}


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    home = tmp_path_factory.mktemp("home")
    modellers.tokenizer().save_pretrained(home / "words")
    translators.saved(home / "start")
    rng = np.random.default_rng(0)
    rows = (" ".join([word, *(f"{number:.3f}" for number in rng.normal(size=8))]) for word in readers.WORDS)
    (home / "glove.txt").write_text("".join(f"{row}\n" for row in rows))
    for task, write in WRITERS.items():
        write(home / f"{task}.jsonl", records(task, COUNT, 1))
        write(home / f"{task}-test.jsonl", records(task, COUNT, 2))
    return home


def command(task, name, flags):
    files = f"--data.train {task}.jsonl --data.test {task}-test.jsonl"
    return f"train --task {task} --name {name} {files} {FLAGS[task]} {LEARNS} {flags}"


@pytest.fixture(scope="module")
def runs(home, dpnlp):
    """Makes a run by its name, when it is first asked for: TASK-by-heart or TASK-still."""

    def made(name):
        task, _, kind = name.partition("-")
        if not (home / "runs" / name).exists():
            code, _, err = dpnlp(command(task, name, BY_HEART[task] if kind == "by-heart" else STILL))
            assert code == 0, err
        return home / "runs" / name

    return made


@pytest.fixture(scope="module")
def audit(home, dpnlp, runs):
    """Audits a run by its name, and gives what came out as JSON."""

    def audited(name, flags=""):
        runs(name)
        code, out, err = dpnlp(f"audit runs/{name} --json {flags}")
        assert code == 0, err
        return json.loads(out)

    return audited


def attacks(found):
    return {attack["attack"]: attack for attack in found["membership"]["attacks"]}


@pytest.mark.parametrize("task", FLAGS)
def test_members_of_a_model_that_knows_them_by_heart_are_found(audit, task):
    found = audit(f"{task}-by-heart", "--attacks membership")
    loss = attacks(found)["loss"]
    assert (loss["members"], loss["others"]) == (COUNT, COUNT)
    assert loss["auc"] > 0.9
    assert loss["points"][2]["tpr"] > 0.7
    assert found["not_covered"] == NOT_COVERED_BY
    assert "An attack that fails proves nothing" in found["membership"]["notes"][-1]


@pytest.mark.parametrize("task", FLAGS)
def test_those_of_one_that_has_learned_nothing_are_not(audit, task):
    for attack in attacks(audit(f"{task}-still", "--attacks membership")).values():
        assert attack["chance"] > 1e-3
        assert attack["auc"] < 0.75


@pytest.mark.parametrize("task", ["modelling", "translation"])
def test_training_texts_come_out_of_a_model_that_knows_them_by_heart(audit, task):
    found = audit(f"{task}-by-heart", "--attacks extraction --samples 40")["extraction"]
    assert found["members"]["whole_share"] > 0.5
    assert found["others"]["whole"] == 0
    assert found["members"]["verbatim_share"] > 2 * found["others"]["verbatim_share"]
    assert found["precision_of_suspicion"] > 0.5
    assert found["chance"] < 1e-6
    assert found["ranked_by"] == {"modelling": "zlib's compression", "translation": "a reference model"}[task]
    if task == "modelling":
        assert found["unprompted"]["overlap"] > 4 * found["unprompted"]["overlap_of_others"]
    else:
        assert "unprompted" not in found


@pytest.mark.parametrize("task", ["modelling", "translation"])
def test_none_come_out_of_one_that_has_learned_nothing(audit, task):
    found = audit(f"{task}-still", "--attacks extraction --samples 0")["extraction"]
    assert (found["members"]["whole"], found["precision_of_suspicion"]) == (0, 0.0)
    assert found["chance"] == 1.0
    assert "unprompted" not in found


def test_a_reference_tells_members_from_texts_that_are_easy_anyway(audit, home, dpnlp):
    found = attacks(audit("translation-by-heart", "--attacks membership"))
    assert list(found) == ["loss", "loss beside a reference"]
    assert found["loss beside a reference"]["auc"] > 0.9
    assert list(attacks(audit("modelling-by-heart", "--attacks membership"))) == ["loss"]
    modellers.write_texts(home / "strange.jsonl", records("modelling", COUNT, 5))
    code, _, err = dpnlp(
        command("modelling", "stranger", f"{STILL} --data.train strange.jsonl").replace(
            "--data.train modelling.jsonl --data.test modelling-test.jsonl", ""
        )
    )
    assert code == 0, err
    named = attacks(audit("modelling-by-heart", "--attacks membership --reference runs/stranger"))
    assert list(named) == ["loss", "loss beside a reference"]
    code, _, err = dpnlp("audit runs/modelling-by-heart --attacks membership --reference runs/modelling-by-heart")
    assert code == 2
    assert "reference = runs/modelling-by-heart: it has learned from some of the records itself" in err


def test_inversion_finds_a_text_that_each_label_is_believed_of(audit):
    found = audit("classification-by-heart", "--attacks inversion --length 4")["inversion"]
    assert [one["label"] for one in found["labels"]] == list(readers.LABELS)
    assert all(one["probability"] > 0.9 > one["by_chance"] for one in found["labels"])
    assert "Nothing but the model was looked at" in found["notes"][0]


def test_what_is_covered_by_the_guarantee_does_not_say_otherwise(home, dpnlp, runs):
    run = runs("classification-still")
    shutil.rmtree(run / "not-covered", ignore_errors=True)
    code, out, _ = dpnlp("audit runs/classification-still --attacks inversion --length 2")
    assert code == 0
    assert NOT_COVERED_BY not in out
    assert "report.html" in out
    assert not (run / "not-covered").exists()


def test_shadow_runs_tell_members_by_the_likelihood_ratio(audit):
    found = audit("classification-by-heart", "--attacks membership --shadows 4")
    ratio = attacks(found)["likelihood ratio of 4 shadow runs"]
    assert ratio["auc"] > 0.9
    in_turn = attacks(found)["likelihood ratio, on each shadow run"]
    assert (in_turn["runs"], in_turn["epsilon"]["of_the_training"]) == (4, True)
    assert in_turn["auc"] > 0.85
    assert in_turn["epsilon"]["above"] > 0.1
    assert not ratio["epsilon"]["of_the_training"]
    assert found["membership"]["violated"] is False  # Nothing was promised.
    assert any("no ledger is charged for them" in note for note in found["membership"]["notes"])


def test_a_shadow_run_learns_from_its_coins_and_from_all_members_that_are_not_attacked(home, runs, monkeypatch):
    runs("classification-still")
    monkeypatch.chdir(home)
    seen = []

    def train(model, loss, data, plan, *rest, **options):
        seen.append((data, plan.schedule.records, options["secret"]))
        return type("Outcome", (), {"model": None})

    monkeypatch.setattr("dpnlp.training.train", train)
    target = attacked(home / "runs" / "classification-still")
    chosen = target.drawn(12, 0)
    coins = np.random.default_rng(5).random((3, 24)) < 0.5
    assert list(shadow_models(target, chosen, coins, 0)) == [None] * 3
    pool = [record for unit in chosen.attacked + chosen.rest for record in unit]
    ids = target.task.numbers(pool)["ids"]
    for line, (data, count, _) in zip(coins, seen, strict=True):
        expected = [ids[place] for place in range(len(pool)) if place >= 24 or line[place]]
        batch = data.batch(np.arange(len(data)), 16)
        learned = [row[real].tolist() for row, real in zip(batch["ids"], batch["mask"], strict=True)]
        assert learned == expected
        assert count == len(expected)
    assert all(one != other for one, other in pairwise(secret.value for _, _, secret in seen))


def test_rows_are_those_that_were_chosen():
    class Data:
        lengths = np.arange(10)

        def batch(self, rows, length):
            return rows * length

    chosen = Rows(Data(), np.array([7, 2, 5]))
    assert (len(chosen), chosen.lengths.tolist(), chosen.batch(np.array([2, 0]), 2).tolist()) == (
        3,
        [7, 2, 5],
        [10, 14],
    )


PRIVATE = "--privacy.epsilon 3 --privacy.sampling poisson --privacy.delta 1e-3 --learning.steps 3 --learning.rate 0.01"


@pytest.fixture(scope="module")
def private_run(home, dpnlp):
    code, _, err = dpnlp(command("classification", "private", PRIVATE))
    assert code == 0, err
    return home / "runs" / "private"


@pytest.fixture(scope="module")
def private(home, dpnlp, private_run):
    """A private run, after all that fits it was tried."""
    run = private_run
    before = {path.name: path.read_bytes() for path in run.iterdir() if path.is_file()}
    spent = Ledger.beside(home / "classification.jsonl").read()
    code, out, err = dpnlp("audit runs/private --shadows 4 --records 20 --length 3")
    assert code == 0, err
    return run, before, spent, out, err


def test_law_9_what_was_found_of_the_training_set_lies_apart_and_says_so(home, private):
    run, before, _, out, _ = private
    after = {path.name: path.read_bytes() for path in run.iterdir() if path.is_file()}
    changed = {name for name in after if after[name] != before.get(name)}
    assert changed == {"audit.json", "report.html"}
    assert list(json.loads(after["audit.json"])) == ["inversion"]
    report = after["report.html"].decode()
    assert "What does it take for a label?" in report
    for word in ("Who was trained on?", "shadow", "AUC", "likelihood ratio"):
        assert word not in report
    apart = Run(run).audit(covered=False)
    assert list(apart) == ["membership"]
    assert apart["membership"]["not_covered"] == NOT_COVERED_BY
    page = (run / "not-covered" / "audit.html").read_text()
    for text in (page, out):
        assert NOT_COVERED_BY in text
        assert "at most, by the promise" in text
        assert "An attack that fails proves nothing" in text
    assert "Not to be published" in page


def test_law_9_no_text_of_a_member_and_no_score_of_one_is_written_down(home, private):
    run, *_ = private
    texts = [record.text for record in records("classification", COUNT, 1)]
    for path in run.rglob("*"):
        if path.is_file() and path.suffix != ".safetensors":
            content = path.read_text(encoding="utf-8")
            assert not any(text in content for text in texts), path
    found = json.dumps(Run(run).audit(covered=False))
    assert "scores" not in found
    assert "losses" not in found


def test_shadow_runs_of_a_private_run_are_announced_and_charge_no_ledger(home, private):
    _, _, spent, _, err = private
    assert "4 shadow runs learn from the training data for this" in err
    assert Ledger.beside(home / "classification.jsonl").read() == spent


def test_the_promise_caps_what_may_be_found(private):
    run, *_ = private
    found = Run(run).audit(covered=False)["membership"]
    promised = Run(run).guarantee
    assert found["promised"] == [promised.detection(level) for level in (0.001, 0.01, 0.1)]
    assert found["violated"] is False


@pytest.mark.parametrize(("adjacency", "code"), [("zero-out", 3), ("replace", 0)])
def test_a_promise_that_shadow_runs_refute_is_exit_code_3(home, dpnlp, runs, monkeypatch, adjacency, code):
    """They show who is in and who is out; where one is exchanged for another, that breaks no promise."""
    run = shutil.copytree(runs("classification-still"), home / "runs" / "liar", dirs_exist_ok=True)
    (Run(run).model / "provenance.json").unlink(missing_ok=True)  # It tells what the run really promised.
    lied = replace(Run(run).guarantee, epsilon=0.2, adjacency=Adjacency(adjacency))
    liar = replace(Run(run).privacy.own, run=new_id(), event=ApproximateDP(0.2), promised=lied)
    Run(run).write_privacy(Privacy((liar,), Run(run).privacy.plan))

    def told(self, target, drawn):
        coins = lira.drawn(len(drawn.attacked), 4, 0)
        return lira.Shadows(20.0 * coins + np.random.default_rng(0).normal(size=coins.shape), coins)

    monkeypatch.setattr(AuditRun, "_shadow_runs", told)
    found, out, err = dpnlp("audit runs/liar --attacks membership --shadows 4 --json")
    assert found == code, err
    said = json.loads(out)["membership"]
    assert said["violated"] is (code == 3)
    assert f"That {'breaks' if code else 'does not break'} the promise of ε = 0.2." in said["notes"][0]


@pytest.mark.parametrize("task", ["modelling", "translation"])
def test_law_9_training_texts_are_written_in_clear_only_where_that_is_asked_for(home, audit, task):
    run = home / "runs" / f"{task}-by-heart"
    rests = [
        " ".join(record.text.split()[4:]) if task == "modelling" else record.target
        for record in records(task, COUNT, 1)
    ]

    def told():
        return [
            path.name for path in sorted((run / "not-covered").iterdir()) if any(r in path.read_text() for r in rests)
        ]

    report = (run / "report.html").read_text()  # with answers of a model that says what it knows by heart
    said = json.dumps(audit(f"{task}-by-heart", "--attacks extraction --samples 0"))
    assert not any(rest in said for rest in rests)
    assert told() == []
    assert set(
        audit(f"{task}-by-heart", "--attacks extraction --samples 0 --show-texts")["extraction"]["texts"]
    ) <= set(rests)
    assert told() == ["audit.html", "audit.json"]
    assert (run / "report.html").read_text() == report


def test_the_unit_of_the_promise_is_what_is_attacked(home, dpnlp):
    flags = f"--data.owner who --privacy.unit user --data.tokens-per-owner 40 {STILL}"
    code, _, err = dpnlp(command("modelling", "users", flags))
    assert code == 0, err
    code, out, err = dpnlp("audit runs/users --attacks membership --json")
    assert code == 0, err
    found = json.loads(out)["membership"]
    assert (found["unit"], found["members"], found["others"]) == ("user", COUNT // 2, COUNT // 2)


def test_a_run_with_canaries_is_attacked_without_them(home, dpnlp):
    code, _, err = dpnlp(command("translation", "canaries", f"{STILL} --audit.canaries 12"))
    assert code == 0, err
    code, out, err = dpnlp("audit runs/canaries --attacks membership --json")
    assert code == 0, err
    assert json.loads(out)["membership"]["members"] == COUNT
    run = Run(home / "runs" / "canaries")
    assert list(run.audit()) == ["canaries"]
    assert "Canaries" in (run.path / "not-covered" / "audit.html").read_text()


READING = {
    "tagging": (readers.tagged, readers.write_tagged, "--model.strategy tr-no --data.longest 24", "--shadows 4"),
    "answering": (
        readers.questions,
        readers.write_questions,
        "--data.longest 40 --data.stride 8 --learning.lengths 40",
        "",
    ),
    "classification": (
        lambda count, seed: readers.labelled(count, seed, pairs=True),
        readers.write_labelled,
        "--model.strategy tr-no --data.longest 24 --data.pair pair",
        "",
    ),
}


@pytest.mark.parametrize("task", READING)
def test_other_tasks_of_reading_are_attacked_by_who_is_a_member(home, dpnlp, task):
    made, write, flags, attack = READING[task]
    (home / "readers").mkdir(exist_ok=True)
    if not (home / "encoder").exists():
        readers.encoder(home / "encoder", layers=1)
    for split, seed in (("train", 1), ("test", 2)):
        write(home / "readers" / f"{task}-{split}.jsonl", made(12, seed))
    files = f"--data.train readers/{task}-train.jsonl --data.test readers/{task}-test.jsonl --model.start encoder"
    code, _, err = dpnlp(
        f"train --task {task} --name {task} {files} {LEARNS} {flags} --learning.steps 3 --learning.rate 0.01"
    )
    assert code == 0, err
    code, out, err = dpnlp(f"audit runs/{task} --json {attack}")
    assert code == 0, err
    found = json.loads(out)
    assert "extraction" not in found
    assert "inversion" not in found
    assert found["membership"]["members"] == 12
    assert len(found["membership"]["attacks"]) == (3 if attack else 1)


def test_other_records_may_be_named_and_members_among_them_do_not_count(home, dpnlp, runs):
    runs("translation-still")
    mixed = records("translation", COUNT, 1)[:20] + records("translation", 15, 3)
    translators.write_pairs(home / "mixed.jsonl", mixed)
    code, out, _ = dpnlp("audit runs/translation-still --attacks membership --others mixed.jsonl --json")
    assert (code, json.loads(out)["membership"]["members"]) == (0, 15)
    (home / "translation-test.jsonl").rename(home / "elsewhere.jsonl")
    code, out, _ = dpnlp("audit runs/translation-still --attacks membership --others mixed.jsonl --json")
    (home / "elsewhere.jsonl").rename(home / "translation-test.jsonl")
    assert (code, json.loads(out)["membership"]["members"]) == (0, 15)  # Its own test data are not needed then.
    code, _, err = dpnlp("audit runs/translation-still --others translation.jsonl")
    assert code == 2
    assert "others: all its records are trained on" in err


def test_another_seed_attacks_others(audit):
    one, same, other = (audit("translation-still", f"--attacks membership --records 15 --seed {s}") for s in (0, 0, 1))
    assert one == same
    assert attacks(one)["loss"]["auc"] != attacks(other)["loss"]["auc"]


def test_words_are_printed_where_no_json_is_asked_for(dpnlp, runs):
    runs("modelling-by-heart")
    code, out, _ = dpnlp("audit runs/modelling-by-heart --samples 20 --prompts 12")
    assert code == 0
    for phrase in (
        "Audit of modelling-by-heart",
        "nothing",
        "Who was trained on?",
        "What comes out of it?",
        "The model is given the first 4 words, and what it writes",
        "four words in a row, unprompted",
        "only the guarantee speaks of all attacks",
        NOT_COVERED_BY,
    ):
        assert phrase in " ".join(out.split()), phrase


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (
            "--attacks memory",
            "--attacks = memory: it must be a list, each entry one of membership, extraction, inversion",
        ),
        ("--attacks inversion", "what this run has learned is attacked by membership, extraction; leave it out"),
        ("--records 3", "--records = 3: it must be"),
        ("--shadows 2", "--shadows = 2: it must be 0, or at least 4; train more of them"),
        ("--prefix 10", "only 0 texts on one of the sides have 4 words after a prompt, and 10 are needed"),
        ("--others few.jsonl", "there must be at least 10 examples on each side"),
        ("--others gone.jsonl", "gone.jsonl"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_sentence(home, dpnlp, runs, flags, sentence):
    runs("modelling-still")
    modellers.write_texts(home / "few.jsonl", records("modelling", 3, 9))
    code, _, err = dpnlp(f"audit runs/modelling-still {flags}")
    assert code == 2
    assert sentence in err
    assert err.count("\n") == 1


def test_a_run_whose_data_are_gone_or_changed_is_not_attacked(home, dpnlp, runs, private_run):
    runs("translation-still")
    data = home / "translation.jsonl"
    kept = data.read_bytes()
    try:
        data.write_bytes(b"".join(kept.splitlines(keepends=True)[:-1]))
        code, _, err = dpnlp("audit runs/translation-still")
        assert (code, "translation.jsonl has changed since then; put back the file that it was" in err) == (2, True)
        data.unlink()
        code, _, err = dpnlp("audit runs/translation-still")
        assert (code, "what it learned from is not there as it was: " in err) == (2, True)
        assert "translation.jsonl" in err
    finally:
        data.write_bytes(kept)
    data = home / "classification.jsonl"
    kept = data.read_bytes()
    try:
        data.write_bytes(kept.replace(b"good", b"fair", 1))
        code, _, err = dpnlp("audit runs/private")
        assert (code, "classification.jsonl has changed since then; put back the file that it was" in err) == (2, True)
    finally:
        data.write_bytes(kept)


@pytest.mark.parametrize("change", [-1, 1])
def test_where_nothing_is_remembered_a_run_still_knows_how_many_records_it_had(
    home, dpnlp, runs, change, tmp_path, monkeypatch
):
    runs("translation-still")
    monkeypatch.setenv("DPNLP_HOME", str(tmp_path / "another"))
    ledger, data = home / "translation.jsonl.ledger", home / "translation.jsonl"
    kept = data.read_bytes()
    ledger.rename(tmp_path / "ledger")
    try:
        lines = kept.splitlines(keepends=True)
        data.write_bytes(b"".join(lines[:-1] if change < 0 else [*lines, lines[0].replace(b'": "', b'": "a ')]))
        code, _, err = dpnlp("audit runs/translation-still")
        assert (code, f"learned from {COUNT} records, and its data have {COUNT + change} by now" in err) == (2, True)
    finally:
        data.write_bytes(kept)
        (tmp_path / "ledger").rename(ledger)


def test_other_runs_are_refused(home, dpnlp):
    for name, config, what in (
        ("graph", "task: nodes\n", "has learned nodes"),
        ("rewritten", "method: echo\n", "has trained no model"),
    ):
        (home / "runs" / name).mkdir(parents=True)
        (home / "runs" / name / "config.yaml").write_text(config)
        code, _, err = dpnlp(f"audit runs/{name}")
        assert code == 2
        assert f"the run {what}, and what is attacked is one of translation, modelling, classification" in err
        shutil.rmtree(home / "runs" / name)
    code, _, err = dpnlp("audit runs/nowhere")
    assert (code, "there is no such folder; give the folder of a run" in err) == (2, True)


def test_a_run_that_is_not_finished_is_not_attacked(home, dpnlp, runs):
    shutil.copytree(runs("translation-still"), home / "runs" / "begun", ignore=shutil.ignore_patterns("model"))
    code, _, err = dpnlp("audit runs/begun")
    assert (code, "the run is not finished" in err) == (2, True)
