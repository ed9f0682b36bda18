import dataclasses
import math
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, ClassVar, Literal, Optional

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from dpnlp import checks
from dpnlp.checks import BadInput
from dpnlp.cli.config import from_dict, help_text, option, parse, to_dict, warn
from dpnlp.cli.ranges import FREE


class Animal(StrEnum):
    CAT = "cat"
    POLAR_BEAR = "polar-bear"


@dataclass(frozen=True, kw_only=True)
class Privacy:
    epsilon: float = option(1.0, help="The most that may be spent; inf stands for no privacy")
    delta: float | None = option(None, help="The slip")

    def __post_init__(self) -> None:
        checks.budget("epsilon", self.epsilon)


@dataclass(frozen=True, kw_only=True)
class Train:
    """Train a model on private texts, so that none of them can be told from what comes out.

    This paragraph is for the developer.
    """

    EXAMPLES: ClassVar[tuple[str, ...]] = ("dpnlp train --lot-size 256", "dpnlp train run.yaml --json")

    lot_size: int = option(help="How many examples a lot has on average.")
    rate: float = option(0.5, help="How fast it learns; 50 % is a lot", group="learning")
    animal: Animal = option(Animal.CAT, help="Whose texts they are")
    sampler: Literal["Poisson", "shuffled"] | None = option("Poisson", help="How lots are drawn", group="learning")
    digits: Literal[1, 2] = option(2, help="How many digits are printed")
    orders: tuple[float, ...] = option((2.0, 4.0), help="The orders to try")
    animals: tuple[Animal, ...] = option((), help="More of them")
    out: Path = option(Path("runs"), help="Where it is written")
    title: Optional[str] = option(None, within=FREE, help="Its title")  # noqa: UP045
    privacy: Privacy = option(Privacy(epsilon=3.0), help="What is promised")
    json: bool = option(False, help="Print one JSON object")


@dataclass(frozen=True, kw_only=True)
class Show:
    """Show a ledger."""

    dataset: Path = option(help="The data set whose ledger is shown", positional=True)
    others: tuple[Path, ...] = option((), help="More data sets", positional=True)
    last: int | None = option(None, help="How many entries")


def train(*arguments: str) -> Train:
    return parse(Train, ["--lot-size", "8", *arguments], "dpnlp train")


def sentence_of(cls: type, *arguments: str) -> str:
    with pytest.raises(BadInput) as refusal:
        parse(cls, arguments, "dpnlp verb")
    return str(refusal.value)


# Flags


def test_without_flags_everything_is_at_its_default() -> None:
    assert train() == Train(lot_size=8)


def test_every_type_is_read_from_flags() -> None:
    line = (
        "--rate 1e-3 --animal polar-bear --sampler shuffled --digits 1 --orders 1.5 -2 inf --animals cat polar-bear "
        "--out a/b --title hello --privacy.epsilon 1 --privacy.delta 1e-5 --json"
    )
    assert train(*line.split()) == Train(
        lot_size=8,
        rate=0.001,
        animal=Animal.POLAR_BEAR,
        sampler="shuffled",
        digits=1,
        orders=(1.5, -2.0, math.inf),
        animals=(Animal.CAT, Animal.POLAR_BEAR),
        out=Path("a/b"),
        title="hello",
        privacy=Privacy(epsilon=1.0, delta=1e-5),
        json=True,
    )


def test_a_default_instance_goes_before_the_defaults_of_its_class() -> None:
    assert train("--privacy.delta", "0.1").privacy == Privacy(epsilon=3.0, delta=0.1)


def test_a_flag_may_be_joined_to_its_value_and_the_last_one_counts() -> None:
    assert train("--rate=2", "--rate=3", "--json", "--no-json") == Train(lot_size=8, rate=3.0)


def test_a_list_may_be_given_in_pieces() -> None:
    assert train("--orders", "1", "2", "--json", "--orders", "3").orders == (1.0, 2.0, 3.0)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("12", 12),
        ("-3", -3),
        ("1e6", 10**6),
        ("1_000_000", 10**6),
        ("2.0", 2),
        ("1.5e1", 15),
        ("1e23", 10**23),
        ("-1e2", -100),
    ],
)
def test_whole_numbers_in_any_notation(text: str, number: int) -> None:
    value = train("--lot-size", text).lot_size
    assert value == number
    assert type(value) is int


@pytest.mark.parametrize(
    ("text", "number"), [("-1e-5", -1e-5), ("-.5", -0.5), ("inf", math.inf), ("-inf", -math.inf), ("1_0.5", 10.5)]
)
def test_real_numbers_in_any_notation(text: str, number: float) -> None:
    assert train("--rate", text).rate == number


@pytest.mark.parametrize("flag", ["--sampler", "--title", "--privacy.delta"])
def test_none_unsets_an_option_unless_it_is_text(flag: str) -> None:
    value = to_dict(train(flag, "none"))
    assert (value | value["privacy"])[flag.split(".")[-1].lstrip("-")] == ("none" if flag == "--title" else None)


def test_positionals_and_flags_mix() -> None:
    expected = Show(dataset=Path("a.yaml"), others=(Path("b"), Path("-c")), last=3)
    assert parse(Show, ["a.yaml", "--last", "3", "b", "--", "-c"], "dpnlp show") == expected
    assert parse(Show, ["--last", "3", "a"], "dpnlp show") == Show(dataset=Path("a"), last=3)


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("", "--lot-size is not given: How many examples a lot has on average."),
        ("--lot-size", "--lot-size: no value is given; it must be a whole number."),
        ("--lot-size --json", "--lot-size: no value is given; it must be a whole number."),
        ("--lot-size=", "--lot-size = '': it must be a whole number."),
        ("--lot-size 1.5", "--lot-size = 1.5: it must be a whole number."),
        ("--lot-size inf", "--lot-size = inf: it must be a whole number."),
        ("--lot-size many", "--lot-size = many: it must be a whole number."),
        ("--lot-size 1e-999999", "--lot-size = 1e-999999: it must be a whole number."),
        ("--lot-size 1e999999", "--lot-size = 1e999999: it must be a whole number; this one is too large."),
        ("--lot-size nan", "--lot-size = nan: it must be a whole number; nan is not one."),
        ("--rate nan", "--rate = nan: it must be a number; nan is not one."),
        ("--rate -nan", "--rate = -nan: it must be a number; nan is not one."),
        ("--rate 1e400", "--rate = 1e400: it must be a number; this one is too large."),
        ("--rate fast", "--rate = fast: it must be a number."),
        ("--privacy.delta x", "--privacy.delta = x: it must be a number, or none."),
        ("--orders 1 x", "--orders = 1 x: it must be a list, each entry a number."),
        ("--animal dog", "--animal = dog: it must be one of cat, polar-bear."),
        ("--animals cat dog", "--animals = cat dog: it must be a list, each entry one of cat, polar-bear."),
        ("--sampler poisson", "--sampler = poisson: it must be one of Poisson, shuffled, or none."),
        ("--digits 3", "--digits = 3: it must be one of 1, 2."),
        ("--json=yes", "--json: it takes no value; its opposite is --no-json."),
        ("--debug=1", "--debug: it takes no value."),
        ("--epsilom 1", "--epsilom: unknown flag; the nearest known one is --privacy.epsilon."),
        ("--lot_size=1", "--lot_size: unknown flag; the nearest known one is --lot-size."),
        ("--lot 1", "--lot: unknown flag; the nearest known one is --lot-size."),
        ("-j", "-j: unknown flag; the nearest known one is --json."),
        ("--lot-size 8 9", "9: unexpected argument; a settings file ends in .yaml or .yml, a flag begins with --."),
        ("a.yaml -5", "-5: one argument too many; the usage is dpnlp verb [FILE.yaml] [FLAGS]."),
        (
            "--lot-size 8 --privacy.epsilon -1",
            "epsilon = -1.0: it must be a number above 0; inf stands for no privacy.",
        ),
    ],
)
def test_what_is_wrong_with_a_flag(line: str, sentence: str) -> None:
    assert sentence_of(Train, *line.split()) == sentence


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "DATASET is not given: The data set whose ledger is shown."),
        (["a", "--lst", "3"], "--lst: unknown flag; the nearest known one is --last."),
        (["a", "--last", "two\nlines"], "--last = 'two\\nlines': it must be a whole number, or none."),
    ],
)
def test_what_is_wrong_with_a_positional(arguments: list[str], sentence: str) -> None:
    assert sentence_of(Show, *arguments) == sentence


def test_one_positional_too_many_shows_the_usage() -> None:
    @dataclass(frozen=True)
    class Count:
        """Count."""

        file: Path = option(help="What is counted", positional=True)

    assert sentence_of(Count, "a", "b") == "b: one argument too many; the usage is dpnlp verb FILE [FLAGS]."


# YAML


def write(folder: Path, text: str) -> str:
    file = folder / "run.yaml"
    file.write_text(text, encoding="utf-8")
    return str(file)


def test_yaml_is_read_and_flags_override_it(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        "lot_size: 1e3\nrate: 1e-5\nanimals: cat\norders: [1, 2e0]\nprivacy:\n  epsilon: 8\n  delta: 1e-6\n"
        "title: null\njson: true\nsampler: none\n",
    )
    expected = Train(
        lot_size=1000,
        rate=1e-5,
        animals=(Animal.CAT,),
        orders=(1.0, 2.0),
        privacy=Privacy(epsilon=8.0, delta=1e-6),
        json=True,
        sampler=None,
    )
    assert parse(Train, [file], "dpnlp train") == expected
    changed = dataclasses.replace(expected, privacy=Privacy(epsilon=1.0, delta=1e-6), json=False)
    assert parse(Train, [file, "--privacy.epsilon", "1", "--no-json"], "dpnlp train") == changed


def test_an_empty_file_gives_nothing(tmp_path: Path) -> None:
    assert train(write(tmp_path, "# nothing yet\n")) == Train(lot_size=8)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("lot_size: true", "lot_size = true in FILE: it must be a whole number."),
        ("lot_size: 1.5", "lot_size = 1.5 in FILE: it must be a whole number."),
        ("lot_size: null", "lot_size = none in FILE: it must be a whole number."),
        ("rate: .nan", "rate = nan in FILE: it must be a number; nan is not one."),
        ("rate: no", "rate = false in FILE: it must be a number."),
        ("rate: {a: 1}", "rate = {'a': 1} in FILE: it must be a number."),
        ("title: 12", "title = 12 in FILE: it must be text, or none; put it in quotes."),
        ("out: 2024-01-01", "out = 2024-01-01 in FILE: it must be a path; put it in quotes."),
        ("json: 1", "json = 1 in FILE: it must be true or false."),
        ("digits: true", "digits = true in FILE: it must be one of 1, 2."),
        ("lot-size: 8", "lot-size in FILE: unknown key; the nearest known one is lot_size."),
        ("true: 8", "True in FILE: unknown key; the nearest known one is rate."),
        ("privacy: {epsilom: 1}", "privacy.epsilom in FILE: unknown key; the nearest known one is privacy.epsilon."),
        ("epsilon: 1", "epsilon in FILE: unknown key; the nearest known one is privacy.epsilon."),
        ("privacy: 3", "privacy = 3 in FILE: it must be a mapping that holds privacy.epsilon, privacy.delta."),
        ("- 1", "FILE: it must hold settings as key: value, one to a line."),
        ("lot_size: 1\nrate: 0.1\nlot_size: 2", "FILE: lot_size stands there again in line 3; keep one of them."),
        (
            "lot_size: 1\nprivacy:\n  epsilon: 8\n  epsilon: 1",
            "FILE: epsilon stands there again in line 4; keep one of them.",
        ),
        ("a: [", "FILE: it is not valid YAML; correct it near line 1."),
        ("rate: 2", "--lot-size is not given: How many examples a lot has on average."),
    ],
)
def test_what_is_wrong_with_a_file(tmp_path: Path, text: str, sentence: str) -> None:
    file = write(tmp_path, text)
    assert sentence_of(Train, file) == sentence.replace("FILE", file)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    missing = str(tmp_path / "missing.yml")
    cannot = "it cannot be read (No such file or directory); give the path of a YAML file."
    assert sentence_of(Train, missing) == f"{missing}: {cannot}"
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(b"\xff\xfe\xff")
    assert sentence_of(Train, str(binary)) == f"{binary}: it is not valid YAML; correct it."


# Round trips


finite = st.floats(allow_nan=False)
configs = st.builds(
    Train,
    lot_size=st.integers(),
    rate=finite,
    animal=st.sampled_from(Animal),
    sampler=st.sampled_from(["Poisson", "shuffled", None]),
    digits=st.sampled_from([1, 2]),
    orders=st.lists(finite).map(tuple),
    animals=st.lists(st.sampled_from(Animal)).map(tuple),
    out=st.text(st.characters(categories=["L", "N", "P"]), min_size=1).map(Path),
    title=st.none() | st.text(),
    privacy=st.builds(Privacy, epsilon=st.floats(0, exclude_min=True), delta=st.none() | finite),
    json=st.booleans(),
)


@given(configs)
def test_a_config_survives_yaml(config: Train) -> None:
    assert from_dict(Train, yaml.safe_load(yaml.safe_dump(to_dict(config)))) == config


@given(st.integers(), finite, st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])))
def test_scalars_survive_the_command_line(whole: int, number: float, text: str) -> None:
    config = train(f"--lot-size={whole}", "--rate", repr(number), f"--title={text}")
    assert config == Train(lot_size=whole, rate=number, title=text)


@given(finite)
def test_a_number_may_be_text_in_yaml(number: float) -> None:
    assert from_dict(Privacy, {"delta": f"{number!r}"}).delta == number


def test_a_dict_without_a_required_key_is_refused_by_name() -> None:
    with pytest.raises(BadInput, match=r"^lot_size is not given: How many examples a lot has on average\.$"):
        from_dict(Train, {})


# Help and notes


HELP = """\
usage: dpnlp train [FILE.yaml] [FLAGS]

Train a model on private texts, so that none of them can be told from what
comes out.

examples:
  dpnlp train --lot-size 256
  dpnlp train run.yaml --json

arguments:
  FILE.yaml                 Settings as key: value, with _ for - in a flag's
                            name; flags override them.

options:
  --lot-size INTEGER        How many examples a lot has on average. Required.
  --animal CHOICE           Whose texts they are. One of cat, polar-bear.
                            Default: cat.
  --digits CHOICE           How many digits are printed. One of 1, 2. Default:
                            2.
  --orders NUMBER [NUMBER ...]
                            The orders to try. Default: 2.0 4.0.
  --animals CHOICE [CHOICE ...]
                            More of them. A list, each entry one of cat,
                            polar-bear.
  --out PATH                Where it is written. Default: runs.
  --title TEXT              Its title.
  --json, --no-json         Print one JSON object. Default: no.

learning:
  --rate NUMBER             How fast it learns; 50 % is a lot. Default: 0.5.
  --sampler CHOICE          How lots are drawn. One of Poisson, shuffled, or
                            none. Default: Poisson.

What is promised:
  --privacy.epsilon NUMBER  The most that may be spent; inf stands for no
                            privacy. Default: 3.0.
  --privacy.delta NUMBER    The slip.

general:
  --debug                   Show the traceback of an error.
  -h, --help                Show this help.
"""


def test_help(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert help_text(Train, "dpnlp train") == HELP


def test_help_names_positionals_and_no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    text = help_text(Show, "dpnlp show")
    assert text.startswith("usage: dpnlp show DATASET [OTHERS ...] [FLAGS]\n")
    assert "\narguments:\n  DATASET         The data set whose ledger is shown. Required.\n" in text


@pytest.mark.parametrize("columns", [40, 80, 300])
def test_help_fits_the_terminal(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    assert max(map(len, help_text(Train, "dpnlp train").splitlines())) <= min(columns - 2, 100)


def test_a_note_goes_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    warn("the seed is fixed.")
    assert capsys.readouterr() == ("", "dpnlp: note: the seed is fixed.\n")


# Mistakes of the one who writes a verb


@pytest.mark.parametrize("annotation", [dict, tuple[bool, ...], int | str])
def test_a_type_that_no_flag_can_have_is_refused(annotation: Any) -> None:
    cls = dataclasses.make_dataclass("Odd", [("odd", annotation, option(help="Odd"))])
    with pytest.raises(TypeError, match="no option can be of this type"):
        help_text(cls, "dpnlp odd")


def test_a_field_without_help_is_refused() -> None:
    cls = dataclasses.make_dataclass("Mute", [("field", int)])
    with pytest.raises(TypeError, match=r"Mute\.field has no help; declare it through option\(\)\."):
        help_text(cls, "dpnlp mute")
