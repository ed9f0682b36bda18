"""The report page in a browser, headless: what a person sees on a phone and on a desk, in the light and in the dark."""

import html
import json
import math
import re
import shutil
import subprocess

import pytest

from dpnlp.accounting.subsampling import Sampling
from dpnlp.runs.page import page_of_run, page_of_runs

from .fakes import fake

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
WIDTHS = (360, 1100)

pytestmark = pytest.mark.skipif(BROWSER is None, reason="there is no Chromium to show the page in")

LOOK = """<script>
const channels = text => text.match(/[\\d.]+/g).map(Number);
const light = color => channels(color).slice(0, 3).map(c => c / 255)
  .map(c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
  .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
function paper(element) {
  const color = getComputedStyle(element).backgroundColor;
  return channels(color)[3] !== 0 || !element.parentElement ? color : paper(element.parentElement);
}
function contrast(element) {
  const style = getComputedStyle(element), svg = element instanceof SVGElement;
  const [a, b] = [light(svg ? style.fill : style.color), light(paper(element))];
  return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
}
function scale(element) {
  const matrix = element.getScreenCTM?.();
  return matrix ? Math.hypot(matrix.a, matrix.b) : 1;
}
addEventListener("load", () => {
  const root = document.documentElement;
  const written = [...document.body.querySelectorAll("*")].filter(element => element.checkVisibility() &&
    element.tagName != "SCRIPT" && [...element.childNodes].some(node => node.nodeType == 3 && node.data.trim()));
  parent.postMessage({
    at: location.hash.slice(1), width: innerWidth, reach: root.scrollWidth, text: document.body.innerText,
    boxes: [...document.querySelectorAll("pre")].map(box => box.innerText),
    drawings: [...document.querySelectorAll("svg")].map(svg => [svg.clientWidth, svg.clientHeight]),
    letters: Math.min(...written.map(e => parseFloat(getComputedStyle(e).fontSize) * scale(e))),
    faint: written.filter(e => contrast(e) < 4.5).map(e => e.className.baseVal ?? e.tagName + "." + e.className),
    paper: light(getComputedStyle(document.body).backgroundColor),
  }, "*");
});
</script>"""


def look(folder, pages, scheme):
    """Shows every page in frames of both widths, and gives what a script in each copy saw, by page and width."""
    frames = []
    for name, page in pages.items():
        (folder / f"{name}.html").write_text(page.replace("</body>", f"{LOOK}</body>"), encoding="utf-8")
        frames += [
            f'<iframe src="{name}.html#{name}-{width}" width="{width}" height="800"></iframe>' for width in WIDTHS
        ]
    listen = "const seen = {}; addEventListener('message', e => { seen[e.data.at] = e.data; "
    listen += "document.querySelector('output').textContent = JSON.stringify(seen); });"
    frame = folder / "frame.html"
    text = f"<!doctype html><meta charset=utf-8><output></output><script>{listen}</script>{''.join(frames)}"
    frame.write_text(text, encoding="utf-8")
    flags = ["--headless=new", "--no-sandbox", "--hide-scrollbars", "--disable-dev-shm-usage", "--window-size=1300,900"]
    flags += [f"--user-data-dir={folder / 'profile'}", f"--blink-settings=preferredColorScheme={scheme}"]
    done = subprocess.run(
        [BROWSER, *flags, "--virtual-time-budget=10000", "--dump-dom", frame.as_uri()],
        capture_output=True,
        timeout=60,
        check=True,
    )
    (output,) = re.findall(r"<output>(.*?)</output>", done.stdout.decode(), re.DOTALL)
    return json.loads(html.unescape(output))


@pytest.fixture(scope="module", params=[1, 0], ids=["light", "dark"])
def seen(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    private, nothing = fake(folder / "private"), fake(folder / "open", epsilon=math.inf)
    private.add_audit(
        "secrets", {"secrets": [{"text": "4 7 1 9", "exposure": 9.0, "rank": 8, "candidates": 4096}], "note": "n"}
    )
    private.write_predictions("test", [{"source": "x" * 300, "reference": "y " * 99, "hypothesis": "z"}])
    samplers = (Sampling.POISSON, Sampling.SHUFFLED)
    others = [fake(folder / f"{sampler}-{e}", e, sampler) for e in (1.0, 5.0) for sampler in samplers]
    runs = [private, nothing, *others]
    pages = {
        "private": page_of_run(private),
        "open": page_of_run(nothing),
        "seeded": page_of_run(fake(folder / "seeded", seed=1)),
        "many": page_of_runs(runs, folder / "many.html"),
    }
    found = look(folder, pages, request.param)
    assert set(found) == {f"{name}-{width}" for name in pages for width in WIDTHS}
    return found, private.guarantee, request.param


def test_nothing_makes_the_page_scroll_sideways(seen):
    for name, page in seen[0].items():
        assert page["reach"] <= page["width"], name
    assert {page["width"] for page in seen[0].values()} == set(WIDTHS)


def test_a_person_sees_the_epsilon_the_statement_and_what_is_not_covered(seen):
    found, promised, _ = seen
    for width in WIDTHS:
        text = " ".join(found[f"private-{width}"]["text"].split())
        assert "ε ≤ 4" in text
        for paragraph in promised.statement().split("\n\n")[:3]:
            assert paragraph.partition(". ")[2] in text
        assert "What is not covered The promise is for one example." in text
        assert "Nothing is promised." in found[f"open-{width}"]["text"]
        assert "A run for research." in found[f"seeded-{width}"]["text"]


def test_what_is_copied_from_a_box_is_what_was_put_into_it(seen):
    found, promised, _ = seen
    for width in WIDTHS:
        assert promised.signature() in found[f"private-{width}"]["boxes"]
        assert any(box.startswith("dpnlp account --examples 20000 ") for box in found[f"private-{width}"]["boxes"])


def test_drawings_have_a_size_and_letters_can_be_read(seen):
    for name, page in seen[0].items():
        assert len(page["drawings"]) == (2 if name.startswith(("private", "seeded")) else 1)
        assert all(width > 250 and height > 150 for width, height in page["drawings"]), name
        assert page["letters"] >= 8.5, f"{name}: {page['letters']}"


def test_the_page_is_light_or_dark_as_asked_and_no_text_is_faint(seen):
    found, _, scheme = seen
    for name, page in found.items():
        assert page["paper"] > 0.8 if scheme else page["paper"] < 0.05, name
        assert page["faint"] == [], name
