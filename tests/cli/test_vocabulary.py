"""`dpnlp vocabulary`: words of public texts, and words of private ones that are paid for and give nobody away."""

import json
import math
import re
import sys

import pytest
from transformers import AutoTokenizer

from dpnlp.accounting.ledger import Ledger
from dpnlp.cli.vocabulary import Vocabulary
from dpnlp.events import ApproximateDP, Composed, Gaussian
from dpnlp.guarantee import Adjacency, Exposure, Unit
from dpnlp.models.pretrained import load_tokenizer
from dpnlp.runs.folder import Run
from dpnlp.runs.provenance import Door

PRIVATE = "vocabulary --data.train chats.jsonl --data.owner author --privacy.epsilon 3 --privacy.delta 1e-9 --output"
PUBLIC = "vocabulary --data.train wiki.txt --data.public --output"
USERS = 400


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Everybody says good morning, and something that nobody else says, a hundred times."""
    home = tmp_path_factory.mktemp("vocabulary")
    rows = [{"text": "Good morning to you", "author": f"user{n}"} for n in range(USERS)]
    rows += [{"text": f"secret{n} " * 100, "author": f"user{n}"} for n in range(USERS)]
    rows += [{"text": "onlyme " * 5, "author": "user7"}] * 200
    (home / "chats.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (home / "wiki.txt").write_text("the cat\nThe dog\na the bird\n" * 20)
    return home


@pytest.fixture
def chats(home, tmp_path, monkeypatch):
    """The private texts, as if nothing had been released from them yet."""
    monkeypatch.setenv("DPNLP_HOME", str(tmp_path))
    yield home / "chats.jsonl"
    for file in home.glob("chats.jsonl.ledger*"):
        file.unlink()


def words_in(folder):
    return set(AutoTokenizer.from_pretrained(folder).get_vocab()) - {"<pad>", "</s>", "<unk>"}


def test_a_public_vocabulary_has_the_most_frequent_words_and_no_guarantee(home, dpnlp):
    code, out, err = dpnlp(f"{PUBLIC} public --lower --most 2")
    assert (code, err) == (0, "")
    assert "tokens  5, with padding, end and unknown" in out
    assert words_in(home / "public") == {"the", "a"}
    assert not (home / "public" / "privacy.json").exists()
    assert not list(home.glob("wiki.txt.ledger*"))


def test_a_public_vocabulary_of_parts_of_words(home, dpnlp):
    code, out, _ = dpnlp(f"{PUBLIC} parts --subwords --most 300 --json")
    assert code == 0
    found = json.loads(out)
    assert found["signature"] is None
    assert len(AutoTokenizer.from_pretrained(home / "parts")) == found["tokens"] <= 300


def test_a_vocabulary_that_was_made_and_taken_away_is_made_again_for_another_price(home, dpnlp, chats, monkeypatch):
    """Killed when its folder was in its place, with nothing left to do but to forget that it had begun."""
    with monkeypatch.context() as patch:
        patch.setattr(Vocabulary, "_forget", lambda self: sys.exit(137))
        with pytest.raises(SystemExit):
            dpnlp(f"{PRIVATE} taken --lower --words 8")
    assert (home / ".taken.charged").exists()
    (home / "taken").rename(home / "away")
    assert dpnlp(f"{PRIVATE} taken --lower --words 8")[0] == 0
    assert not (home / ".taken.charged").exists()
    runs = [Run(home / name).id for name in ("away", "taken")]
    assert [release.id for release in Ledger.beside(chats).read().releases] == runs


def test_a_private_vocabulary_is_promised_charged_and_gives_nobody_away(home, dpnlp, chats):
    code, out, err = dpnlp(f"{PRIVATE} private --lower --words 8")
    assert (code, err) == (0, "")
    assert words_in(home / "private") == {"good", "morning", "to", "you"}
    run = Run(home / "private")
    promised = run.guarantee
    assert (promised.epsilon, promised.delta, promised.unit) == (3.0, 1e-9, Unit.USER)
    assert promised.adjacency is Adjacency.ADD_REMOVE
    assert promised.signature() in out
    (release,) = Ledger.beside(chats).read().releases
    assert (release.what, release.unit, release.adjacency) == ("dpnlp vocabulary private", "user", "add-remove")
    assert (run.privacy.own.event, run.id) == (release.event, release.id)
    assert isinstance(release.event, Composed)
    noise, failure = release.event.events
    assert isinstance(noise, Gaussian)
    assert failure == ApproximateDP(0.0, 5e-10)
    assert Ledger.beside(chats).spent(1e-9).epsilon == pytest.approx(3, rel=1e-3)
    # Law 9: no file, and no line that is printed, has a word or a name of one user alone.
    written = [path.read_text() for path in (home / "private").rglob("*") if path.is_file()]
    assert len(written) == 4
    for text in (*written, out, (home / "chats.jsonl.ledger").read_text()):
        assert not re.search(r"secret\d|onlyme|user\d", text, re.IGNORECASE)


def test_a_model_with_this_vocabulary_pays_for_it(home, dpnlp, chats):
    assert dpnlp(f"{PRIVATE} paid")[0] == 0
    door = Door()
    door.open(load_tokenizer, home / "paid")
    (origin,) = door.provenance.origins
    assert origin.event == Ledger.beside(chats).read().releases[0].event
    assert origin.promised == Run(home / "paid").guarantee


def test_the_most_is_the_most(home, dpnlp, chats):
    assert dpnlp(f"{PRIVATE} few --most 2 --privacy.seed 1")[0] == 0
    assert len(words_in(home / "few")) == 2
    assert "noise:fixed-seed" in Run(home / "few").guarantee.signature()


def test_a_user_has_a_say_in_so_many_words_and_no_more(home, dpnlp, chats):
    """Of its words each user names that alone which it uses most often, and nobody else has that one."""
    code, _, err = dpnlp(f"{PRIVATE} none --words 1")
    assert code == 2
    assert re.fullmatch(
        r"dpnlp: --privacy\.epsilon = 3: no word is above the threshold of \d+\.\d, and the cost stays in the ledger; "
        r"take a larger ε, texts of more users, or a public vocabulary\.\n",
        err,
    )
    assert not (home / "none").exists()
    assert len(Ledger.beside(chats).read().releases) == 1


def test_a_base_of_which_nothing_is_known_is_named_by_what_is_made_of_it(home, dpnlp, chats):
    assert dpnlp(f"{PUBLIC} foreign")[0] == 0
    (home / "foreign" / "provenance.json").unlink()
    for flags, named in (("", (Exposure.ORIGIN,)), (" --public-base", ())):
        folder = f"on-foreign{flags.replace(' ', '')}"
        code, out, err = dpnlp(f"{PRIVATE} {folder} --base foreign{flags}")
        assert (code, err) == (0, "")
        promised = Run(home / folder).guarantee
        assert promised.not_covered == named
        assert promised.signature() in out
        door = Door()
        door.open(load_tokenizer, home / folder)
        assert door.provenance.origins[0].promised.not_covered == named


def test_private_texts_are_asked_only_for_what_a_public_vocabulary_lacks(home, dpnlp, chats):
    """With three of the words known, a user's one vote goes to the fourth, once it is not spent on his own word."""
    (home / "known.txt").write_text("good morning to " + " ".join(f"secret{n}" for n in range(USERS)) + " onlyme\n")
    assert dpnlp("vocabulary --data.train known.txt --data.public --lower --output known")[0] == 0
    assert dpnlp(f"{PRIVATE} more --lower --words 1 --base known")[0] == 0
    public = words_in(home / "known")
    assert words_in(home / "more") == public | {"you"}
    assert AutoTokenizer.from_pretrained(home / "more").convert_tokens_to_ids("you") == len(public) + 3
    for base, sentence in {
        "more": "it is made of private data, so that its cost would be lost; give another.",
        "nowhere": "it has no tokenizer; make one by dpnlp vocabulary.",
    }.items():
        code, _, err = dpnlp(f"{PRIVATE} x --base {base}")
        assert (code, err) == (2, f"dpnlp: --base = {base}: {sentence}\n")
    code, _, err = dpnlp(f"{PRIVATE} x --base known")
    assert (code, "tokenizer: it finds words in another way" in err) == (2, True)
    code, _, err = dpnlp(f"{PUBLIC} x --base known")
    assert (code, "it is for private texts; leave out --base or --data.public." in err) == (2, True)
    assert len(Ledger.beside(chats).read().releases) == 1


def test_one_text_can_be_protected_instead_of_a_user(home, dpnlp, chats):
    (home / "lines.txt").write_text("good morning to you\n" * 500)
    line = "vocabulary --data.train lines.txt --privacy.unit example --privacy.epsilon 3 --privacy.delta 1e-4 --output"
    assert dpnlp(f"{line} lines")[0] == 0
    assert Run(home / "lines").guarantee.unit is Unit.EXAMPLE
    assert words_in(home / "lines") == {"good", "morning", "to", "you"}


def test_whoever_is_held_out_has_no_say(home, dpnlp, chats):
    """Nearly everybody: 3 % of the users are too few for any word."""
    code, _, err = dpnlp(f"{PRIVATE} rest --words 8 --data.held-out 0.97 --privacy.seed 1")
    assert code == 2
    assert "no word is above the threshold" in err


def test_a_budget_is_not_exceeded_and_nothing_is_left(home, dpnlp, chats):
    assert dpnlp("ledger budget chats.jsonl --epsilon 3.5 --delta 1e-9 --unit user --owner author")[0] == 0
    assert dpnlp(f"{PRIVATE} first")[0] == 0
    code, _, err = dpnlp(f"{PRIVATE} second")
    assert code == 2
    assert "'dpnlp vocabulary second' would bring it to" in err
    assert not (home / "second").exists()
    assert len(Ledger.beside(chats).read().releases) == 1


def test_every_vocabulary_is_another_release(home, dpnlp, chats):
    """There is nothing to resume: whoever makes it again pays again, by what two Gaussians cost together."""
    for name in ("once", "twice"):
        assert dpnlp(f"{PRIVATE} {name}")[0] == 0
    assert len(Ledger.beside(chats).read().releases) == 2
    assert 3.5 < Ledger.beside(chats).spent(2e-9).epsilon < 6
    assert Ledger.beside(chats).spent(9e-10).epsilon == math.inf


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("vocabulary --data.train chats.jsonl", "--output is not given: The folder to make."),
        (f"{PUBLIC} .", "--output = .: it is there already; choose another folder."),
        (
            "vocabulary --output x --privacy.epsilon 1",
            "--data.train, --data.corpus: exactly one of them must say which texts.",
        ),
        (
            "vocabulary --output x --data.train chats.jsonl --data.owner author",
            "--privacy.epsilon is not given: the words of private texts give them away; give it, or say by "
            "--data.public that they are public.",
        ),
        (f"{PRIVATE} x --data.public", "--data.public = true: public texts need no ε; leave out --privacy.epsilon or"),
        (
            "vocabulary --output x --data.train chats.jsonl --privacy.epsilon 1",
            "--privacy.unit = user: nothing says whose each text is; name the column by --data.owner, or protect one "
            "text by --privacy.unit example.",
        ),
        (f"{PRIVATE} x --privacy.epsilon 0", "--privacy.epsilon = 0: it must be a number above 0 and at most 1e6"),
        (f"{PRIVATE} x --privacy.epsilon -1", "--privacy.epsilon = -1: it must be a number above 0 and at most 1e6"),
        (f"{PRIVATE} x --privacy.epsilon inf", "--privacy.epsilon = inf: it must be a number above 0 and at most 1e6"),
        (f"{PRIVATE} x --privacy.delta 1", "--privacy.delta = 1: it must be a number above 0 and below 1"),
        (
            f"{PRIVATE} x --privacy.delta 0.01",
            "--privacy.delta = 0.01: it must be below one in the number of users, 1/400, else one of them could be "
            "published in clear; take at most 3e-04.",
        ),
        (f"{PRIVATE} x --words 0", "--words = 0: it must be a whole number from 1 to 1,048,576"),
        (f"{PRIVATE} x --most 0", "--most = 0: it must be a whole number from 1 to 1e12"),
        (
            f"{PRIVATE} x --subwords",
            "--subwords = true: they are for public texts; say --data.public, or leave it out.",
        ),
        (f"{PUBLIC} x --subwords --lower", "--lower = true: parts of words keep their capital letters; leave out"),
        (
            f"{PRIVATE} x".replace("chats.jsonl", "wiki.txt"),
            "wiki.txt: it has a text a line and no column author; give a table, such",
        ),
        (f"{PRIVATE} x --data.owner who", "chats.jsonl, line 1: the owner (who) is missing; there are author, text."),
        (
            f"{PRIVATE} x".replace("chats", "gaps"),
            "gaps.jsonl, line 2: the owner (author) is empty; every text must have",
        ),
        (
            f"{PRIVATE} x --data.train gaps.jsonl",
            "--data.train = chats.jsonl gaps.jsonl: private texts must be in one file; join them.",
        ),
        ("vocabulary --output x --data.corpus chat --privacy.epsilon 1", "--data.corpus = chat: it must be one of"),
    ],
)
def test_what_is_wrong_is_one_sentence_and_leaves_nothing(home, dpnlp, line, sentence):
    (home / "gaps.jsonl").write_text('{"text": "a", "author": "ann"}\n{"text": "b", "author": null}\n')
    code, out, err = dpnlp(line)
    assert (code, out) == (2, "")
    assert err.startswith(f"dpnlp: {sentence}")
    assert err.count("\n") == 1
    assert not (home / "x").exists()
    assert not list(home.glob("chats.jsonl.ledger"))


def test_texts_with_a_ledger_are_not_public(home, dpnlp, chats):
    assert dpnlp("ledger budget chats.jsonl --epsilon 4 --delta 1e-3")[0] == 0
    code, _, err = dpnlp("vocabulary --data.train chats.jsonl --data.public --output x")
    assert code == 2
    assert "chats.jsonl.ledger is a ledger of texts in it, so they are private, and the words of private" in err
    assert not (home / "x").exists()


def test_a_folder_that_cannot_be_made_costs_nothing(home, dpnlp, chats):
    code, _, err = dpnlp(f"{PRIVATE} wiki.txt/x")
    assert code == 2
    assert "wiki.txt/x: " in err
    assert "wiki.txt is a file, in which there can be no folder" in err
    assert not Ledger.beside(chats).path.exists()
