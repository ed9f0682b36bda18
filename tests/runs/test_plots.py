"""Pictures of runs: every figure of the table stands where it should, and nothing is drawn that was not measured."""

import itertools
import math
import xml.etree.ElementTree as ElementTree

import pytest

from dpnlp.accounting.subsampling import Sampling
from dpnlp.checks import BadInput
from dpnlp.runs import plots
from dpnlp.runs.tables import Table

from .fakes import fake, row


@pytest.fixture
def grid(tmp_path):
    """Two samplers at two ε with two seeds each, and without privacy under one of them."""
    cases = [(e, s) for s in (Sampling.POISSON, Sampling.SHUFFLED) for e in (1.0, 5.0)] + [
        (math.inf, Sampling.SHUFFLED)
    ]
    return Table.of(
        fake(tmp_path / f"{n}-{seed}", epsilon, sampling, seed, bleu=10 * n + seed)
        for n, (epsilon, sampling) in enumerate(cases)
        for seed in (1, 2)
    )


def drawn(figure):
    """Name of each line of the one panel, with its points, by the nearest tick, and how far its error bars reach."""
    (axes,) = figure.axes
    return lines_of(axes)


def lines_of(axes):
    lines = {}
    for container in axes.containers:
        line, _, (bars,) = container.lines
        reach = [(segment[1][1] - segment[0][1]) / 2 for segment in bars.get_segments()]
        lines[container.get_label()] = list(zip(map(round, line.get_xdata()), line.get_ydata(), reach, strict=True))
    return lines


def test_scores_stand_over_their_epsilon_with_the_deviation_over_seeds(grid):
    figure = plots.comparison(grid)
    std = pytest.approx(math.sqrt(0.5))
    assert [text.get_text() for text in figure.axes[0].get_xticklabels()] == ["1", "5", "∞"]
    assert drawn(figure) == {
        "poisson, add-remove": [(0, 1.5, std), (1, 11.5, std), (2, 41.5, std)],
        "shuffled, zero-out": [(0, 21.5, std), (1, 31.5, std), (2, 41.5, std)],
    }


def test_a_line_ends_with_its_own_run_without_privacy_where_there_is_one(grid, tmp_path):
    runs = [run for found in grid.rows for run in found.runs]
    runs.append(fake(tmp_path / "poisson", math.inf, Sampling.POISSON, bleu=99.0))
    lines = drawn(plots.comparison(Table.of(runs)))
    assert [lines[name][-1][1] for name in ("poisson, add-remove", "shuffled, zero-out")] == [99.0, 41.5]


def test_panels_share_their_axes_and_a_line_looks_alike_in_all_of_them(grid):
    of = {name: [row for row in grid.rows if row.settings["sampling"] == name] for name in ("poisson", "shuffled")}
    lines = {"a": of["poisson"], "b": of["shuffled"]}
    figure = plots.panels({"one": {"b": of["poisson"][-1:]}, "two": lines}, "bleu")
    first, second = figure.axes
    assert [axes.get_title() for axes in figure.axes] == ["one", "two"]
    assert lines_of(first) == {"b": [(0, 1.5, pytest.approx(math.sqrt(0.5)))]}
    assert first.get_ylim() == second.get_ylim()
    assert first.get_ylim()[0] == 0
    assert first.get_ylim()[1] > 41.5
    assert [text.get_text() for text in first.get_xticklabels()] == ["1", "5", "∞"]
    colours = [{c.get_label(): c.lines[0].get_color() for c in axes.containers} for axes in figure.axes]
    assert colours[0]["b"] == colours[1]["b"] != colours[1]["a"]
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["b", "a"]


def test_more_lines_than_colours_have_a_panel_for_each_corpus_and_say_which_setting_they_have(tmp_path):
    rates = (0.1, 0.2, 0.3, 0.4, 0.5)
    runs = [
        fake(tmp_path / f"{corpus}-{rate}-{epsilon}", epsilon, corpus=corpus, bleu=rate, learning={"rate": rate})
        for corpus in ("a", "b")
        for rate in rates
        for epsilon in (1.0, 5.0)
    ]
    figure = plots.comparison(Table.of(runs))
    found = {axes.get_title(): lines_of(axes) for axes in figure.axes}
    lines = {f"rate {rate}": [(0, rate, 0), (1, rate, 0)] for rate in rates}
    assert found == {"a": lines, "b": lines}


@pytest.mark.parametrize("count", [1, 2, 8, 40])
def test_lines_of_equal_scores_stand_side_by_side_at_their_tick(tmp_path, count):
    runs = [
        fake(tmp_path / f"{rate}-{epsilon}", epsilon, learning={"rate": rate})
        for rate in range(count)
        for epsilon in (1.0, 5.0)
    ]
    (axes,) = plots.comparison(Table.of(runs)).axes
    firsts, seconds = zip(*(container.lines[0].get_xdata() for container in axes.containers), strict=True)
    assert len(set(firsts)) == count
    assert [second - first for first, second in zip(firsts, seconds, strict=True)] == pytest.approx([1] * count)
    assert sum(firsts) == pytest.approx(0)
    assert max(firsts) - min(firsts) < 0.4


def test_no_two_lines_look_alike_though_there_are_more_than_colours(tmp_path):
    count = 2 * len(plots.COLORS) + 1
    rows = Table.of([fake(tmp_path / "run")]).rows
    (axes,) = plots.panels({"": {str(number): rows for number in range(count)}}, "bleu").axes
    lines = [container.lines[0] for container in axes.containers]
    looks = [(line.get_color(), line.get_marker(), line.get_linestyle(), line.get_fillstyle()) for line in lines]
    assert len(set(looks)) == count


def test_the_ticks_of_panels_side_by_side_leave_each_other_room(tmp_path):
    budgets = (1, 3, 10, 25, 100, 250, 500, 1000)
    runs = [fake(tmp_path / f"{epsilon}", float(epsilon)) for epsilon in budgets]
    figure = plots.panels({"one": {"a": Table.of(runs).rows}, "two": {"a": Table.of(runs).rows}}, "bleu")
    figure.draw_without_rendering()
    for axes in figure.axes:
        boxes = [text.get_window_extent() for text in axes.get_xticklabels()]
        assert all(right.x0 - left.x1 > 5 for left, right in itertools.pairwise(boxes))


def test_the_picture_grows_with_its_legend(tmp_path):
    runs = [fake(tmp_path / f"{rate}", learning={"rate": f"{rate} after a long warm-up"}) for rate in range(30)]
    figure = plots.comparison(Table.of(runs))
    figure.draw_without_rendering()
    (axes,), (legend,) = figure.axes, figure.legends
    assert legend.get_window_extent().y1 < axes.get_tightbbox().y0
    assert axes.get_window_extent().height > 200


def axis_of(figure):
    """What stands below the axis of the one panel."""
    (axes,) = figure.axes
    return [text.get_text() for text in axes.get_xticklabels()], axes.get_xlabel()


def test_runs_without_privacy_alone_are_drawn_too(tmp_path):
    figure = plots.comparison(Table.of(fake(tmp_path / corpus, math.inf, corpus=corpus) for corpus in ("a", "b")))
    assert list(drawn(figure)) == ["a", "b"]
    assert axis_of(figure) == (["∞"], "ε (less is more private; ∞ is no privacy)")


@pytest.mark.parametrize(("epsilon", "said"), [(math.inf, "no privacy"), (4.0, "ε = 4")])
def test_where_epsilon_does_not_vary_lines_lead_over_the_numbers_of_a_setting(tmp_path, epsilon, said):
    figure = plots.comparison(
        Table.of(
            fake(tmp_path / f"{corpus}-{share}", epsilon, bleu=30 * share, data={"corpus": corpus, "share": share})
            for corpus in ("a", "b")
            for share in (10, 0.5, 2)  # Neither in order, nor in order as text.
        )
    )
    assert axis_of(figure) == (["0.5", "2", "10"], f"data.share ({said})")
    assert drawn(figure) == {corpus: [(0, 15, 0), (1, 60, 0), (2, 300, 0)] for corpus in ("a", "b")}


def test_of_several_settings_that_vary_the_one_with_most_numbers_is_the_axis(tmp_path):
    figure = plots.comparison(
        Table.of(
            fake(tmp_path / f"{rate}-{epochs}", learning={"rate": rate, "epochs": epochs})
            for rate in (20, 40)
            for epochs in (2, 5, 10)
        )
    )
    assert axis_of(figure) == (["2", "5", "10"], "learning.epochs (ε = 4)")
    assert list(drawn(figure)) == ["rate 20", "rate 40"]


def test_where_epsilon_varies_it_is_the_axis_whatever_else_varies(tmp_path):
    figure = plots.comparison(
        Table.of(
            fake(tmp_path / f"{share}-{epsilon}", epsilon, data={"share": share})
            for share in (0.1, 0.2, 0.3)
            for epsilon in (1.0, math.inf)
        )
    )
    assert axis_of(figure) == (["1", "∞"], "ε (less is more private; ∞ is no privacy)")
    assert list(drawn(figure)) == ["share 0.1", "share 0.2", "share 0.3"]


def test_a_setting_that_is_not_a_number_everywhere_is_no_axis(tmp_path):
    runs = [fake(tmp_path / str(most), math.inf, data={"most": most}) for most in (1, 2, None)]
    figure = plots.comparison(Table.of(runs))
    assert axis_of(figure)[0] == ["∞"]
    assert sorted(drawn(figure)) == ["most 1", "most 2", "most none"]


def test_lines_of_several_epsilons_over_a_setting_say_so_in_their_names_alone(tmp_path):
    table = Table.of(fake(tmp_path / f"{e}-{share}", e, data={"share": share}) for e in (1.0, 4.0) for share in (1, 2))
    lines = {name: [row for row in table.rows if row.epsilon == e] for name, e in {"little": 4.0, "much": 1.0}.items()}
    figure = plots.panels({"": lines}, "bleu", "data.share")
    assert axis_of(figure) == (["1", "2"], "data.share")


def test_without_scores_there_is_no_picture(tmp_path):
    run = fake(tmp_path / "a")
    run.write_metrics([])
    assert plots.comparison(Table.of([run])) is None
    assert plots.curves(run) == []


def test_the_curves_are_the_evaluations(tmp_path):
    run = fake(tmp_path / "a")
    bleu, epsilon = (figure.axes[0] for figure in plots.curves(run))
    rows = run.metrics()
    for line in bleu.lines:
        points = [(entry["step"], entry["bleu"]) for entry in rows if entry["split"] == line.get_label()]
        assert list(zip(line.get_xdata(), line.get_ydata(), strict=True)) == points
    assert {line.get_label(): line.get_linestyle() for line in bleu.lines} == {"validation": "-", "test": "None"}
    (line,) = epsilon.lines
    assert dict(zip(line.get_xdata(), line.get_ydata(), strict=True)) == {e["step"]: e["epsilon"] for e in rows}


def test_no_curve_of_epsilon_without_privacy_and_none_through_two_points(tmp_path):
    run = fake(tmp_path / "a", epsilon=math.inf)
    assert len(plots.curves(run)) == 1
    run.write_metrics([row(0, math.inf, "test", 1), row(9, math.inf, "test", 2)])
    assert plots.curves(run) == []


def test_attacks_are_drawn_over_their_false_alarms_without_a_word_about_what_lies_between():
    figure = plots.roc(
        {"loss": [(0.0, 0.02), (0.004, 0.1), (1.0, 1.0)], "$ratio": [(0.0, 0.0), (0.5, 0.9), (1.0, 1.0)]}
    )
    (axes,) = figure.axes
    loss, ratio, guessing = axes.lines
    assert list(zip(*loss.get_data(), strict=True)) == [(0.001, 0.02), (0.004, 0.1), (1, 1)]
    assert {line.get_drawstyle() for line in (loss, ratio)} == {"steps-post"}
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["loss", r"\$ratio", "guessing"]
    assert all(x == y for x, y in zip(*guessing.get_data(), strict=True))
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    assert axes.get_xlim() == axes.get_ylim() == (0.001, 1.1)
    figure.draw_without_rendering()
    shown = [text.get_text() for text in axes.get_xticklabels()]
    assert [text for text in shown if text in ("0.1 %", "1 %", "10 %", "100 %")] == ["0.1 %", "1 %", "10 %", "100 %"]


@pytest.mark.parametrize(("rate", "edge"), [(1.0, 0.1), (0.5, 0.1), (0.1, 0.01), (0.03, 0.01)])
def test_the_edge_of_the_picture_lies_below_every_rate_that_is_not_0(rate, edge):
    (axes,) = plots.roc({"loss": [(0.0, 0.0), (rate, 1.0)]}).axes
    assert axes.get_xlim()[0] == pytest.approx(edge)


def test_a_drawing_for_a_page_is_well_formed_and_takes_the_pages_colours(grid):
    figure = plots.comparison(grid)
    text = plots.as_svg(figure, "a")
    root = ElementTree.fromstring(text)
    words = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"BLEU", "∞", "poisson, add-remove"} <= set(words)
    assert "currentColor" in text
    assert "var(--line-0, #0072b2)" in text
    assert "metadata" not in text
    ids = [element.get("id") for element in root.iter() if element.get("id", "").startswith(("p", "m"))]
    other = plots.as_svg(figure, "b")
    hashed = [name for name in ids if len(name) > 8 and not name.startswith(("patch", "matplotlib"))]
    assert hashed
    assert not [name for name in hashed if name in other]


def test_a_picture_that_cannot_be_written_is_one_sentence(grid, tmp_path):
    plots.save(plots.comparison(grid), tmp_path / "a.pdf")
    assert (tmp_path / "a.pdf").read_bytes().startswith(b"%PDF")
    with pytest.raises(BadInput, match=r"a\.xyz: it cannot be written .*; try a path that ends in \.png"):
        plots.save(plots.comparison(grid), tmp_path / "a.xyz")
