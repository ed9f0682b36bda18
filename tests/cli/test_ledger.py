"""`dpnlp ledger ...`, run as a person runs it."""

import contextlib
import io
import json
import shlex

import pytest

from dpnlp.accounting import pld
from dpnlp.cli.main import main
from dpnlp.events import ApproximateDP, Composed, Gaussian
from dpnlp.guarantee import Adjacency


@pytest.fixture
def corpus(tmp_path, monkeypatch):
    monkeypatch.setenv("DPNLP_HOME", str(tmp_path / "home"))  # Else it would be known from the other tests.
    tmp_path = tmp_path / "data"
    tmp_path.mkdir()
    file = tmp_path / "corpus.jsonl"
    file.write_text('{"text": "a secret"}\n')
    return file


@pytest.fixture
def ledger(capsys, corpus):
    """Runs `dpnlp ledger VERB corpus.jsonl FLAGS`; gives its exit code, stdout and stderr."""

    def run(verb, flags=""):
        words = ["ledger"] if verb == "show" else ["ledger", verb]
        code = main([*words, str(corpus), *shlex.split(flags)])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def test_nothing_spent_yet_and_nothing_written(ledger, corpus):
    code, out, _ = ledger("show", "--delta 1e-6 --json")
    assert (code, json.loads(out)["epsilon"]) == (0, 0)
    assert [file.name for file in corpus.parent.iterdir()] == ["corpus.jsonl"]


def test_releases_are_composed_and_not_added_up(ledger):
    ledger("budget", "--epsilon 8 --delta 1e-6")
    event = json.dumps({"event": "gaussian", "noise_multiplier": 4})
    for number in range(4):
        assert ledger("add", f"--what run-{number} --event '{event}'")[0] == 0
    ledger("add", "--what counts --epsilon 0.5 --release-delta 1e-9")
    shown = json.loads(ledger("show", "--json")[1])
    composed = Composed((*[Gaussian(4.0)] * 4, ApproximateDP(0.5, 1e-9)))
    assert shown["epsilon"] == pytest.approx(pld.epsilon(composed, 1e-6, Adjacency.ADD_REMOVE))
    assert shown["epsilon"] < 4 * pld.epsilon(Gaussian(4.0), 1e-6, Adjacency.ADD_REMOVE)
    assert [release["what"] for release in shown["releases"]] == ["run-0", "run-1", "run-2", "run-3", "counts"]


def test_what_is_shown_of_a_copy_and_of_a_ledger_that_was_put_back_is_all_that_was_released(ledger, corpus):
    def shown(file):
        with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()):
            assert main(["ledger", str(file), "--delta", "1e-6", "--json"]) == 0
        return round(json.loads(out.getvalue())["epsilon"], 3)

    corpus.write_text('{"text": "a secret of more than sixteen letters"}\n')
    ledger("add", "--what first --epsilon 0.5")
    old = {path: path.read_bytes() for path in corpus.parent.glob("corpus.jsonl.ledger*")}
    copy, third = corpus.with_name("copy.jsonl"), corpus.with_name("third.jsonl")
    copy.write_bytes(corpus.read_bytes())
    third.write_bytes(corpus.read_bytes())
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        assert main(["ledger", "add", str(copy), "--what", "second", "--epsilon", "0.25"]) == 0
    assert [shown(corpus), shown(copy), shown(third)] == [0.75] * 3
    assert "has only a part" not in ledger("show", "--delta 1e-6")[2]
    for path, content in old.items():
        path.write_bytes(content)
    assert shown(corpus) == 0.75
    assert "corpus.jsonl.ledger: it has only a part of what was released" in ledger("show", "--delta 1e-6")[2]


def test_what_would_exceed_the_budget_is_refused_before_anything_is_written(ledger, corpus):
    ledger("budget", "--epsilon 2 --delta 1e-6")
    ledger("add", "--what counts --epsilon 0.5")
    before = {file.name: file.read_bytes() for file in corpus.parent.iterdir()}
    code, out, err = ledger("add", "--what second --epsilon 1.9")
    assert (code, out) == (2, "")
    assert "ε = 0.5 is spent and 'second' would bring it to 2.4, but the budget is 2.0 at δ = 1e-06" in err
    assert {file.name: file.read_bytes() for file in corpus.parent.iterdir()} == before


def test_the_table(ledger):
    ledger("add", "--what 'word counts' --epsilon 0.5 --unit user")
    code, out, err = ledger("show", "--delta 1e-6")
    assert (code, err) == (0, "")
    for phrase in ("word counts", "user", "ε = 0.5 at δ = 1e-06, all releases together", "none is set"):
        assert phrase in out
    assert "give --delta, or set a budget" in ledger("show")[1]


def test_an_edited_ledger_is_an_error_that_names_the_line(ledger, corpus):
    ledger("add", "--what first --epsilon 0.5")
    ledger("add", "--what second --epsilon 0.5")
    file = corpus.with_name("corpus.jsonl.ledger")
    file.write_text(file.read_text().replace('"epsilon": 0.5', '"epsilon": 0.1', 1))
    code, out, err = ledger("show", "--delta 1e-6")
    assert (code, out) == (2, "")
    assert "line 1: the line was changed after it was written" in err


@pytest.mark.parametrize(
    ("verb", "flags", "sentence"),
    [
        (
            "budget",
            "--epsilon 0 --delta 1e-6",
            "--epsilon = 0: it must be a number above 0 and at most 1e6.",
        ),
        ("budget", "--epsilon 1 --delta 1", "--delta = 1: it must be a number above 0 and below 1;"),
        ("add", "--what x", "--epsilon, --event: exactly one of them must say what the release costs."),
        ("add", "--what x --epsilon -1", "--epsilon = -1: it must be a number above 0 and at most 1e6, or none."),
        ("add", "--what x --event '{'", "--event = {: it is not valid JSON"),
        ("add", '--what x --event \'{"event": "laplas"}\'', "--event = {'event': 'laplas'}: it must be an object"),
        ("show", "--delta 0", "--delta = 0: it must be a number above 0 and below 1, or none;"),
    ],
)
def test_bad_input(ledger, corpus, verb, flags, sentence):
    code, out, err = ledger(verb, flags)
    assert (code, out) == (2, "")
    assert err.startswith(f"dpnlp: {sentence}")
    assert err.count("\n") == 1
    assert [file.name for file in corpus.parent.iterdir()] == ["corpus.jsonl"]


def test_a_data_set_that_is_not_there(capsys, tmp_path):
    assert main(["ledger", str(tmp_path / "nothing"), "--delta", "1e-6"]) == 2
    assert "there is no such file or directory; check the path." in capsys.readouterr().err
