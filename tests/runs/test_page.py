"""The report page: what it says is what the folder says, it needs nothing from elsewhere, and no text is markup."""

import json
import math
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpnlp.events import to_json
from dpnlp.foreign import visible
from dpnlp.guarantee import Exposure
from dpnlp.runs.markup import element
from dpnlp.runs.page import account_command, page_of_audit, page_of_run, page_of_runs
from dpnlp.runs.privacy import Privacy

from .fakes import SENTENCES, fake

ATTACK = "<script>alert('ε')</script><img src=x onerror=alert(1)>\"'& $\\x$"
REFERENCES = {"src", "href", "xlink:href", "data", "action", "poster", "srcset", "formaction"}
VOID = {"meta", "br"}


class Page(HTMLParser):
    """What a browser would build: elements, attributes, and the text of each kind of element."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.texts, self.open = [], [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += attributes
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += attributes

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append((self.open[-1] if self.open else "", data))

    @property
    def text(self):
        return "".join(data for tag, data in self.texts if tag != "style")


def audited(run, text="4 7 1 9"):
    run.add_audit(
        "secrets", {"secrets": [{"text": text, "exposure": 10.5, "rank": 3, "candidates": 4096}], "note": "planted"}
    )
    return run


def test_the_page_says_what_the_folder_says(tmp_path):
    run = audited(fake(tmp_path / "clinic"))
    page = Page(page_of_run(run))
    promised = run.guarantee
    assert not page.open
    for paragraph in promised.statement().split("\n\n"):
        for sentence in re.split(r"(?<=\.) (?=[A-Z])", paragraph.partition(". ")[2]):
            assert sentence in page.text
    for phrase in (
        "ε ≤ 4",
        "1e-06",
        "one example",
        "98.21 %",
        promised.signature(),
        account_command(run),
        "10.5 of 12.0",
    ):
        assert phrase in page.text
    for sentence in SENTENCES:
        assert all(text in page.text for text in sentence.values())
    for name in ("model.start", "google/mt5-small", "learning.rate", "0.001", "dpnlp train --name clinic"):
        assert name in page.text
    assert [text for tag, text in page.texts if tag == "td"][:3] == ["BLEU", "3.00", "30.00"]


def test_what_is_not_covered_stands_in_a_list_of_its_own(tmp_path):
    run = fake(tmp_path / "clinic")
    weaker = run.guarantee.with_exposures(Exposure.VALIDATION, Exposure.LABELS)
    run.write_privacy(Privacy((replace(run.privacy.own, promised=weaker),)))
    items = [text for tag, text in Page(page_of_run(run)).texts if tag == "li"]
    assert items[-2:] == [Exposure.VALIDATION.sentence, Exposure.LABELS.sentence]


def test_a_run_without_privacy_is_said_to_promise_nothing(tmp_path):
    page = page_of_run(fake(tmp_path / "open", epsilon=math.inf))
    assert '<div class="banner bad" role="alert"><strong>Nothing is promised. </strong>' in page
    assert "ε ≤" not in page
    assert "dpnlp account" not in page


def test_a_run_with_a_seed_is_said_to_be_for_research(tmp_path):
    assert 'class="banner caution"' in page_of_run(fake(tmp_path / "seeded", seed=1))
    assert "banner caution" not in page_of_run(fake(tmp_path / "unseeded"))


def test_a_run_that_continues_others_says_whose_epsilon_can_be_computed(tmp_path):
    run = fake(tmp_path / "a")
    assert "This computes ε anew, from what the run did:" in page_of_run(run)
    earlier = fake(tmp_path / "b", epsilon=1.5).privacy.own
    run.write_privacy(Privacy((earlier, run.privacy.own), run.privacy.plan))
    text = Page(page_of_run(run)).text
    assert "This computes the ε of this run alone, from what the run did:" in text
    assert "the promise is for all of them together. These are theirs:eps:1.5|delta:1e-06|" in text


def test_a_seed_is_given_away_by_no_page(tmp_path):
    run = fake(tmp_path / "a", seed=90210)
    assert "--privacy.seed 90210" in run.command
    text = Page(page_of_run(run)).text + Page(page_of_runs([run, fake(tmp_path / "b")], tmp_path / "report.html")).text
    assert "90210" not in text
    assert "privacy.seedgiven, and left to config.yaml" in text


def test_pages_refer_to_nothing_elsewhere_and_hold_no_scripts(tmp_path):
    run, other = audited(fake(tmp_path / "a")), fake(tmp_path / "b", epsilon=math.inf)
    run.write_report("there is one")
    for text in (page_of_run(run), page_of_run(other), page_of_runs([run, other], tmp_path / "report.html")):
        page = Page(text)
        referred = [value for name, value in page.attributes if name in REFERENCES]
        assert all(value.startswith("#") or value == "a/report.html" for value in referred)
        assert not {"script", "link", "iframe", "img", "object", "embed", "form", "base"} & set(page.tags)
        assert not [name for name, _ in page.attributes if name.startswith("on")]
        assert "@import" not in text
        assert all(inside.startswith("#") for inside in re.findall(r"url\(([^)]*)\)", text))
        bare = re.sub(r'xmlns(:\w+)?="[^"]*"', "", text)
        assert not re.search(r"https?:|//\w+\.\w", bare)


def test_no_text_of_a_run_is_markup(tmp_path):
    run = audited(fake(tmp_path / "x <b>&", corpus=ATTACK, **{ATTACK: ATTACK}), ATTACK)
    run.write_predictions("test", [dict.fromkeys(SENTENCES[0], ATTACK)])
    run.write_metrics([{"step": n, "split": ATTACK, "bleu": 1.0, "bleu_signature": ATTACK} for n in range(4)])
    run.write_privacy(Privacy((replace(run.privacy.own, what=ATTACK),), {"method": ATTACK}))
    other = fake(tmp_path / "y", corpus="plain")
    for text in (page_of_run(run), page_of_runs([run, other], tmp_path / "report.html")):
        page = Page(text)
        assert not {"script", "img", "b"} & set(page.tags)
        assert not [name for name, _ in page.attributes if name.startswith("on")]
        assert ATTACK in page.text


@given(st.text(), st.text())
def test_an_element_holds_the_text_that_it_was_given(text, value):
    page = Page(element("p", text, element("b", text), title=value))
    assert page.tags == ["p", "b"]
    assert page.text == visible(text + text)
    assert dict(page.attributes)["title"] == visible(value)


def test_samples_are_as_many_as_asked_for(tmp_path):
    run = fake(tmp_path / "a")
    assert SENTENCES[0]["source"] in page_of_run(run, samples=1)
    assert SENTENCES[1]["source"] not in page_of_run(run, samples=1)
    assert "What it writes" not in page_of_run(run, samples=0)


def test_what_was_not_measured_has_no_section(tmp_path):
    run = fake(tmp_path / "a")
    run.write_metrics([])
    run.write_predictions("test", [])
    run.write_privacy(Privacy((run.privacy.own,)))
    page = Page(page_of_run(run))
    headings = [text for tag, text in page.texts if tag == "h2"]
    assert headings == ["The best attacker", "The promise, in words", "Check it yourself", "Settings"]
    assert account_command(run) == ""


def test_the_page_of_many_has_the_table_the_plot_and_a_place_for_each_run(tmp_path):
    runs = [fake(tmp_path / f"{corpus}-{seed}", seed=seed, corpus=corpus) for corpus in ("b", "a") for seed in (1, 2)]
    runs[0].write_report("there is one")
    page = Page(page_of_runs(runs, tmp_path / "pages" / "report.html"))
    assert page.tags.count("svg") == 1
    ids = [value for name, value in page.attributes if name == "id" and value.startswith("run-")]
    links = [value for name, value in page.attributes if name == "href" and not value.startswith("#m")]
    assert ids == ["run-0", "run-1", "run-2", "run-3"]
    assert links[:2] == ["#run-0", "#run-2"]
    assert links[-1] == "../b-1/report.html"
    assert [text for tag, text in page.texts if tag == "h3"] == ["a-1", "a-2", "b-2"]


def test_the_events_are_shown_as_they_are_recorded(tmp_path):
    run = fake(tmp_path / "a")
    boxes = re.findall(r"<pre>(.*?)</pre>", page_of_run(run), re.DOTALL)
    shown = [Page(box).text for box in boxes]
    assert [to_json(run.privacy.own.event)] in [json.loads(text) for text in shown if text.startswith("[")]


def attacked(run):
    """A run with a finding of each attack, as the attacks write them."""
    points = [{"level": level, "tpr": 10 * level} for level in (0.001, 0.01, 0.1)]
    attack = {"attack": "loss", "auc": 0.7, "points": points, "roc": [(0.0, 0.0), (0.1, 0.6), (1.0, 1.0)]}
    membership = {"unit": "user", "members": 1200, "attacks": [attack], "promised": [0.02, 0.2, 0.9], "notes": ["n1"]}
    side = {"texts": 30, "whole": 20, "verbatim_share": 0.75}
    unprompted = {"overlap": 0.5, "overlap_of_others": 0.125, "statement": "n3"}
    extraction = {"given": "the source", "members": side, "others": side | {"whole": 1}, "statement": "n2"}
    inverted = {"label": "<bad>", "text": "<ba> bo", "probability": 0.999, "by_chance": 0.25}
    run.add_audit("membership", membership)
    run.add_audit("extraction", extraction | {"unprompted": unprompted})
    run.add_audit("inversion", {"labels": [inverted], "notes": ["n4"]})
    return run


def test_the_page_of_an_audit_shows_every_attack_and_says_that_it_is_not_covered(tmp_path):
    page = Page(page_of_audit(audited(attacked(fake(tmp_path / "a")))))
    assert not page.open
    for phrase in (
        "Not to be published. This audit has looked at the training set, so that what it found is not covered",
        "The run promises ε ≤ 4 at δ = 1e-06 for one example.",
        "1,200 users that the model learned from, and as many others",
        "0.700",
        "at most, by the promise",
        "20 of 30",
        "12.5 %",
        "<ba> bo",
        "99.9 %",
        "Planted secrets",
        *("n1", "n2", "n3", "n4"),
    ):
        assert phrase in page.text, phrase
    assert "svg" in page.tags
    assert ("href", "../report.html") in page.attributes
    assert "The run promises nothing." in Page(page_of_audit(attacked(fake(tmp_path / "b", epsilon=math.inf)))).text


def test_law_9_the_report_shows_nothing_of_attacks_that_looked_at_the_training_set(tmp_path):
    run = fake(tmp_path / "a")
    before = page_of_run(run)
    run.add_audit("membership", {"unit": "user"})
    run.add_audit("extraction", {"given": "the source"})
    assert page_of_run(run) == before
    page = Page(page_of_run(attacked(run)))
    assert "How it was attacked" in page.text
    assert "<ba> bo" in page.text
    for phrase in ("n1", "n2", "n3", "1,200 users", "0.700", "20 of 30", "not covered by the guarantee of the run"):
        assert phrase not in page.text


@pytest.mark.parametrize("exposure", [-1.0, 0.0, 40.0])
def test_a_bar_stays_within_its_frame(tmp_path, exposure):
    run = fake(tmp_path / "a")
    run.add_audit("secrets", {"secrets": [{"text": "x", "exposure": exposure, "rank": 1, "candidates": 1}]})
    widths = [float(width) for width in re.findall(r"width: ([\d.-]+)%", page_of_run(run))]
    assert all(0 <= width <= 100 for width in widths)


def test_the_page_of_a_graph_network_speaks_of_nodes(tmp_path):
    run = fake(tmp_path / "run", task="nodes", model={"start": None}, data={"corpus": None, "texts": "posts.jsonl"})
    run.write_predictions("test", [{"source": "p17", "reference": "sport", "hypothesis": "music"}])
    page = Page(page_of_run(run))
    assert "a graph network, trained on posts.jsonl" in page.text
    assert "none, trained" not in page.text
    heads = [text for tag, text in page.texts if tag == "th"]
    assert heads[heads.index("node") :][:3] == ["node", "true class", "what the model says"]
    assert "These nodes were held out of training" in page.text
