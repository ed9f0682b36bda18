"""`dpnlp train --task modelling`, `evaluate` and `generate`, run as a person runs them, on made-up words."""

import json
import math
import shutil

import numpy as np
import pytest
from safetensors.numpy import load_file

from dpnlp import events
from dpnlp.accounting import pld
from dpnlp.data.plain import Columns, Text, plain
from dpnlp.data.records import divided
from dpnlp.events import Composed, Gaussian
from dpnlp.guarantee import Adjacency, Guarantee, Unit
from dpnlp.runs.folder import Run
from dpnlp.runs.privacy import Origin, Privacy, new_id

from ..tasks.modellers import decoder, sentences, tokenizer, write_texts

SMALL = "--data.longest 8 --learning.lot-size 4 --learning.physical-batch 8 --learning.steps 3 --privacy.delta 1e-3"
SMALL += " --privacy.seed 0 --model.width 8 --model.hidden 12 --model.heads 2 --data.cache cache"
FILES = "--data.train train.jsonl --data.test test.jsonl --data.owner who"


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with a public vocabulary, 60 private texts of 12 owners, and 6 to test on."""
    home = tmp_path_factory.mktemp("home")
    tokenizer().save_pretrained(home / "words")
    write_texts(home / "train.jsonl", sentences(60, seed=1, owners=12))
    write_texts(home / "test.jsonl", sentences(6, seed=2))
    return home


def command(name, flags="", start="lstm --model.vocabulary words"):
    return f"train --task modelling --name {name} --model.start {start} {FILES} {SMALL} {flags}"


@pytest.fixture(scope="module")
def trained(home, dpnlp):
    """A private run with the user as unit that is finished."""
    code, _, err = dpnlp(command("first", "--privacy.unit user --privacy.epsilon 4 --data.tokens-per-owner 20"))
    assert code == 0, err
    return home / "runs" / "first"


def event(run):
    return privacy(run)["origins"][-1]["event"]


def privacy(run):
    return json.loads((run / "privacy.json").read_text())


def test_users_may_train_by_themselves_and_contribute_updates(home, dpnlp):
    rounds = "--federated.local-epochs 1 --learning.optimizer sgd --learning.rate 1 --learning.decay constant"
    code, _, err = dpnlp(command("rounds", f"--privacy.unit user --privacy.epsilon 4 {rounds}"))
    assert code == 0, err
    promised = Guarantee.from_json(privacy(home / "runs" / "rounds")["guarantee"])
    assert (promised.unit, promised.mechanism.name) == (Unit.USER, "federated-averaging")
    assert promised.epsilon <= 4


def test_a_run_leaves_the_model_the_guarantee_scores_and_a_page(trained):
    assert sorted(path.name for path in trained.iterdir()) == [
        *("config.yaml", "details.json", "metrics.jsonl", "model", "predictions", "privacy.json", "report.html"),
    ]
    promised = Guarantee.from_json(privacy(trained)["guarantee"])
    assert (promised.unit, promised.epsilon <= 4) == (Unit.USER, True)
    rows = [json.loads(line) for line in (trained / "metrics.jsonl").read_text().splitlines()]
    assert [(row["step"], row["split"]) for row in rows] == [(3, "test")]  # There was nothing to score before.
    assert 0 <= rows[0]["accuracy_top1"] <= 100
    assert 1 < rows[0]["perplexity"] < 100
    assert "Beside a guess without context" in (trained / "report.html").read_text()


def test_the_records_are_owners(trained):
    schedule = privacy(trained)["plan"]["schedule"]
    assert (schedule["records"], schedule["lot_size"]) == (12, 4)
    assert event(trained)["of"]["q"] == 4 / 12


def test_law_9_no_file_that_a_private_run_writes_holds_a_text_of_the_training_set(trained):
    known = " ".join(text.text for text in sentences(6, seed=2))
    texts = {text.text for text in sentences(60, seed=1, owners=12)}
    private = {text for text in texts if len(text.split()) > 3 and text not in known}
    assert len(private) > 20
    for path in (path for path in trained.rglob("*") if path.is_file()):
        written = path.read_bytes()
        assert not [text for text in private if text.encode() in written], path


def test_the_guess_without_context_is_that_of_the_held_out_texts_alone(trained):
    learned = {text.text for text in sentences(60, seed=1, owners=12)}
    others = [text.text for text in sentences(6, seed=2) if text.text not in learned]
    assert 2 < len(others) < 6
    tokens = [word for text in others for word in (*text.split(), "</s>")]
    found = json.loads((trained / "details.json").read_text())["test"]["unigram"]
    most = max(tokens.count(word) for word in set(tokens) - {"what"})
    assert found["accuracy"] == pytest.approx(100 * most / len(tokens))
    assert found["unknown"] == pytest.approx(100 * tokens.count("what") / len(tokens))


def test_it_is_scored_again_and_gives_the_same(trained, dpnlp):
    code, out, _ = dpnlp("evaluate runs/first --json")
    assert code == 0
    last = json.loads((trained / "metrics.jsonl").read_text().splitlines()[-1])
    assert json.loads(out)["perplexity"]["score"] == pytest.approx(last["perplexity"], rel=1e-5)
    assert json.loads(out)["accuracy_top1"]["signature"] == last["accuracy_top1_signature"]
    assert "unigram" in json.loads(out)["details"]


def test_prompts_go_on_line_by_line(trained, home, dpnlp):
    (home / "prompts.txt").write_text("ba be\n\ndu\n", encoding="utf-8")
    code, out, _ = dpnlp("generate runs/first prompts.txt --writing.longest 5")
    lines = out.split("\n")
    assert (code, len(lines), lines[1]) == (0, 4, "")
    assert lines[0].startswith("ba be")
    assert lines[2].startswith("du")
    drawn = [dpnlp(f"generate runs/first prompts.txt --writing.sample --writing.seed {seed}")[1] for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]


@pytest.fixture(scope="module")
def gpt2(home, dpnlp):
    """A run without privacy from scratch, with the text as unit."""
    code, _, err = dpnlp(command("gpt", "--privacy.epsilon inf", "decoder --model.vocabulary words"))
    assert code == 0, err
    return home / "runs" / "gpt"


def test_a_decoder_opens_in_transformers(gpt2):
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("torch")
    model = transformers.AutoModelForCausalLM.from_pretrained(gpt2 / "model")
    ours = load_file(gpt2 / "model" / "model.safetensors")
    np.testing.assert_array_equal(model.get_input_embeddings().weight.detach().numpy(), ours["transformer.wte.weight"])
    assert transformers.AutoTokenizer.from_pretrained(gpt2 / "model").eos_token_id == 1


def test_a_run_goes_on_from_a_run_with_adapters_and_pays_for_both(gpt2, home, dpnlp):
    flags = "--model.lora 2 --privacy.epsilon 4"
    code, _, err = dpnlp(command("lost", flags, "runs/gpt --model.public-start"))
    assert (code, "said to be public" in err) == (2, True)  # It has learned from the same texts.
    public = command("public", "--privacy.epsilon inf", "decoder --model.vocabulary words")
    write_texts(home / "public.jsonl", [Text(f"ba be bi bo number {one}", f"{one}") for one in range(40)])
    code, _, err = dpnlp(public.replace("train.jsonl", "public.jsonl"))
    assert code == 0, err
    code, _, err = dpnlp(command("more", flags, "runs/public --model.public-start"))
    assert code == 0, err
    assert Run.open(home / "runs" / "more").guarantee.epsilon <= 4
    code, _, err = dpnlp(command("both", flags, "runs/gpt"))
    assert (code, "dpnlp train gpt was made at ε = ∞" in err) == (0, True)
    assert Run.open(home / "runs" / "both").guarantee.epsilon == math.inf
    first, more = (load_file(home / "runs" / name / "model" / "model.safetensors") for name in ("public", "more"))
    moved = {name for name in first if not np.array_equal(first[name], more[name])}
    assert moved == {name for name in first if name.endswith("c_attn.weight")}


@pytest.fixture(scope="module")
def released(home):
    """The vocabulary as if it had been made of private texts, by one answer with Gaussian noise, for a user each."""
    folder = home / "private-words"
    shutil.copytree(home / "words", folder)
    event = Gaussian(3.0)
    own = Guarantee.from_json(
        {**_promise(home), "epsilon": pld.epsilon(event, 1e-3, Adjacency.ADD_REMOVE), "delta": 1e-3}
    )
    Run(folder).write_privacy(Privacy((Origin(new_id(), "words of many", event, own),)))
    return event, own


def _promise(home):
    return privacy(home / "runs" / "first")["guarantee"]


@pytest.fixture(scope="module")
def paid(released, home, dpnlp):
    """The same run as the first, with that vocabulary; and what it said."""
    flags = "--privacy.unit user --privacy.epsilon 4 --data.tokens-per-owner 20"
    code, _, err = dpnlp(command("paid", flags, "lstm --model.vocabulary private-words"))
    assert code == 0, err
    return home / "runs" / "paid", err


def test_law_10_what_a_vocabulary_of_private_texts_cost_is_part_of_the_guarantee(trained, released, paid):
    (vocabulary, own), (run, said) = released, paid
    entry, alone = privacy(run), privacy(trained)
    steps = events.from_json(alone["origins"][0]["event"])
    expected = pld.epsilon(Composed((vocabulary, steps)), 1e-3, Adjacency.ADD_REMOVE)
    assert entry["guarantee"]["epsilon"] == pytest.approx(expected, abs=2e-3)
    assert entry["guarantee"]["epsilon"] > alone["guarantee"]["epsilon"] + 0.01
    assert [one["event"] for one in entry["origins"]] == [events.to_json(vocabulary), alone["origins"][0]["event"]]
    assert entry["origins"][0]["guarantee"] == own.to_json()
    assert "words of many was made at ε = " in said


def test_law_10_who_goes_on_from_there_pays_for_the_vocabulary_too(paid, home, dpnlp):
    code, _, err = dpnlp(command("paid-on", "--privacy.unit user --privacy.epsilon 4", "runs/paid"))
    assert code == 0, err
    found = privacy(home / "runs" / "paid-on")
    assert found["origins"][:2] == privacy(paid[0])["origins"]
    assert len(found["origins"]) == 3


def test_law_10_the_words_of_private_texts_are_made_used_and_paid_for(home, dpnlp):
    made = "vocabulary --data.train train.jsonl --data.owner who --privacy.epsilon 60 --privacy.delta 1e-4 --words 12"
    code, _, err = dpnlp(f"{made} --output made")
    assert code == 0, err
    flags = "--privacy.unit user --privacy.epsilon 4 --privacy.ledger train.jsonl.ledger"
    code, _, err = dpnlp(command("made", flags, "lstm --model.vocabulary made"))
    assert code == 0, err
    whole, words = Run.open(home / "runs" / "made"), Run(home / "made")
    assert whole.privacy.earlier == words.privacy.origins
    composed = Composed(tuple(origin.event for origin in whole.privacy.origins))
    assert whole.guarantee.epsilon == pytest.approx(pld.epsilon(composed, 1e-3, Adjacency.ADD_REMOVE), rel=1e-3)
    assert whole.guarantee.epsilon > 10
    assert whole.guarantee.mechanism.name == "composition"


def test_a_share_of_the_owners_is_held_out(home, dpnlp):
    flags = "--data.train train.jsonl --data.owner who --data.held-out 0.4 --privacy.unit user --privacy.epsilon inf"
    code, _, err = dpnlp(
        f"train --task modelling --name apart --model.start lstm --model.vocabulary words {SMALL} {flags}"
    )
    assert code == 0, err
    held = {
        json.loads(line)["source"] for line in (home / "runs/apart/predictions/test.jsonl").read_text().splitlines()
    }
    records = privacy(home / "runs" / "apart")["plan"]["schedule"]["records"]
    most, few = divided(plain(home / "train.jsonl", Columns(owner="who")), 0.4)
    assert 0 < records == len({text.owner for text in most}) < 12
    assert held == {text.text for text in few} - {text.text for text in most}


def test_a_share_of_the_owners_is_learned_from_and_the_held_out_ones_stay_the_same(home, dpnlp):
    flags = "--data.train train.jsonl --data.owner who --data.held-out 0.4 --privacy.unit user --privacy.epsilon inf"
    start = f"train --task modelling --model.start lstm --model.vocabulary words {SMALL} {flags}"
    found = {}
    for share in (1.0, 0.5, 0.01):
        code, _, err = dpnlp(f"{start} --name share-{share} --data.share {share}")
        if share < 0.1:
            assert (code, "none of its texts is within the bounds" in err) == (2, True)
            continue
        assert code == 0, err
        run = home / "runs" / f"share-{share}"
        tested = [json.loads(line)["source"] for line in (run / "predictions/test.jsonl").read_text().splitlines()]
        found[share] = (privacy(run)["plan"]["schedule"]["records"], tested)
    assert 0 < found[0.5][0] < found[1.0][0]
    assert found[0.5][1] == found[1.0][1]


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (
            command("no", start="lstm"),
            "--model.vocabulary is not given: a vocabulary made of the texts to learn from would give them away; name "
            "a folder or an id that has a tokenizer made of public texts, or one made by dpnlp vocabulary.",
        ),
        (
            command("no", start="start --model.vocabulary words"),
            "--model.vocabulary = words: start has one of its own; leave it out.",
        ),
        (
            command("no", "--model.lora 2"),
            "--model.lora = 2: adapters are for a GPT-2, and this is an LSTM; leave it out.",
        ),
        (
            command("no", "--privacy.unit user").replace("--data.owner who", ""),
            "--privacy.unit = user",
        ),
        (command("no").replace("--data.train train.jsonl", ""), "data.train is not given: name the file of the texts"),
        (command("no", "--data.longest 99", "start"), "--data.longest = 99: the model has positions for at most 16"),
        (
            command("no", start="lstm --model.vocabulary runs"),
            "runs: there is no tokenizer in it; give a folder or an id",
        ),
        ("generate runs/first --task classification", "--task = classification: its models write no texts"),
        ("evaluate runs/first --task translation", "the run in runs/first has learned modelling"),
        ("predict runs/first", "MODEL = runs/first: it is no run of classification"),
    ],
)
def test_what_cannot_be_is_refused_in_one_sentence_and_leaves_nothing(trained, home, dpnlp, line, sentence):
    from dpnlp.models.pretrained import save_language_model

    if not (home / "start").exists():
        save_language_model(decoder(), home / "start")
    code, out, err = dpnlp(line)
    assert (code, out) == (2, "")
    assert sentence.replace("--", "") in err.replace("--", ""), err
    assert err.count("\n") == 1
    assert not (home / "runs" / "no").exists()
