"""Every number that can be set has a range, and no value outside of it is taken."""

from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpnlp.checks import BadInput
from dpnlp.cli import ranges
from dpnlp.cli.config import MISSING, from_dict, help_text, option, options_of, parse

from .verbs import verbs

VERBS = [pytest.param(verb, id=" ".join(words)) for words, verb in verbs()]


@pytest.mark.parametrize("verb", VERBS)
def test_every_number_text_and_path_has_a_range(verb):
    kinds = {one.name: one.kind for one in options_of(verb).values()}
    free = [name for name, kind in kinds.items() if not kind.within and not kind.is_switch]
    assert [name for name in free if kinds[name].metavar != "CHOICE"] == []


@pytest.mark.parametrize("verb", VERBS)
def test_every_default_is_in_its_range(verb):
    for one in options_of(verb).values():
        if (bounds := one.kind.within) and one.default is not None and one.default is not MISSING:
            values = one.default if one.kind.is_list else (one.default,)
            assert all(map(bounds.holds, values)), one.name


@pytest.mark.parametrize("verb", VERBS)
def test_the_help_shows_the_range_of_every_number(verb):
    text = " ".join(help_text(verb, "dpnlp").split())
    for one in options_of(verb).values():
        if one.kind.metavar in ("NUMBER", "INTEGER"):
            assert one.kind.within.sentence in text


@dataclass(frozen=True, kw_only=True)
class Verb:
    """A verb."""

    share: float = option(0.5, within=ranges.SHARE, help="A share")
    sizes: tuple[int, ...] = option((1,), within=ranges.SIZE, help="Sizes")
    name: str = option("a", within=ranges.NAME, help="A name")
    text: str = option("text", help="A text")
    file: Path | None = option(None, help="A file")


@given(st.floats(allow_nan=True) | st.integers())
def test_what_is_out_of_range_is_refused_by_flag_and_by_file(value):
    for read in (lambda: parse(Verb, [f"--share={value}"], "dpnlp verb"), lambda: from_dict(Verb, {"share": value})):
        if 0 < value <= 1:
            assert read().share == value
        else:
            with pytest.raises(BadInput, match=r"share = .*: it must be a number above 0 and at most 1"):
                read()


@given(st.lists(st.integers(-2, 3) | st.sampled_from([2**20, 2**20 + 1, 10**30]), min_size=1))
def test_every_entry_of_a_list_is_in_its_range(values):
    arguments = ["--sizes", *map(str, values)]
    if all(1 <= value <= 2**20 for value in values):
        assert parse(Verb, arguments, "dpnlp verb").sizes == tuple(values)
    else:
        with pytest.raises(BadInput, match="each entry a whole number from 1 to 1,048,576"):
            parse(Verb, arguments, "dpnlp verb")


NAMES = ["../escaped", "/absolute", "", " ", ".", "..", "a\nb", "\x1b[31mred", "a/b", "a\\b", " a", "x" * 201, "\udcff"]


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_one_folder_among_the_runs(name):
    with pytest.raises(BadInput, match="it must be text that can name a folder"):
        parse(Verb, [f"--name={name}"], "dpnlp verb")


@given(st.text())
def test_a_name_that_is_taken_is_a_folder_of_its_own(name):
    try:
        taken = parse(Verb, [f"--name={name}"], "dpnlp verb").name
    except BadInput:
        return
    assert taken == name
    assert (Path("runs") / name).parent == Path("runs")
    assert name.isprintable()


@pytest.mark.parametrize("flag", ["--text", "--file"])
@pytest.mark.parametrize("value", ["", " ", "a\nb", "\x1b]0;title\x07", "\x00"])
def test_texts_and_paths_are_one_line_that_says_something(flag, value):
    with pytest.raises(BadInput, match=rf"{flag} = .*: it must be (text|a path)"):
        parse(Verb, [f"{flag}={value}"], "dpnlp verb")


def test_a_number_of_thousands_of_digits_is_refused():
    for value in (10**5000, -(10**5000)):
        with pytest.raises(BadInput, match="thousands of digits"):
            from_dict(Verb, {"share": value})
    with pytest.raises(BadInput, match="share = 999"):
        parse(Verb, ["--share", "9" * 5000], "dpnlp verb")
