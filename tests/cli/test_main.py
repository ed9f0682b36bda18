import os
import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import pytest

from dpnlp import checks
from dpnlp.cli.config import option
from dpnlp.cli.main import COMMANDS, Command, main


@dataclass(frozen=True)
class Echo:
    """Say a word back."""

    word: str = option("hello", help="The word")
    times: int = option(1, help="How often")

    def run(self) -> None:
        checks.count("times", self.times)
        print(" ".join([self.word] * self.times))


@dataclass(frozen=True)
class Fail:
    """Fail in some way."""

    how: str = option(help="The exception", positional=True)

    def run(self) -> None:
        raise {
            "broken": RuntimeError("the disk\n  is full."),
            "mute": RuntimeError(),
            "interrupted": KeyboardInterrupt(),
        }[self.how]


VERBS = {
    ("echo",): Command(f"{__name__}:Echo", "Say a word back"),
    ("echo", "far", "away"): Command(f"{__name__}:Echo", "Say it far away"),
    ("fail",): Command(f"{__name__}:Fail", "Fail in some way"),
    ("ledger", "show"): Command("no.such.module:Show", "Show it"),
    ("ledger", "add"): Command("no.such.module:Add", "Add to it"),
}

TOP = """\
usage: dpnlp COMMAND [FLAGS]

commands:
  echo           Say a word back
  echo far away  Say it far away
  fail           Fail in some way
  ledger show    Show it
  ledger add     Add to it

dpnlp COMMAND --help says what it does and which flags it takes.
"""

LEDGER = """\
usage: dpnlp ledger COMMAND [FLAGS]

commands:
  show  Show it
  add   Add to it

dpnlp ledger COMMAND --help says what it does and which flags it takes.
"""

FAR = """\
usage: dpnlp echo far COMMAND [FLAGS]

commands:
  away  Say it far away

dpnlp echo far COMMAND --help says what it does and which flags it takes.
"""


@pytest.mark.parametrize(
    ("line", "code", "out", "err"),
    [
        ("echo", 0, "hello\n", ""),
        ("echo --word good --times 2", 0, "good good\n", ""),
        ("echo far away --times 1e0", 0, "hello\n", ""),
        ("--debug echo --times 2 --debug", 0, "hello hello\n", ""),
        ("--version", 0, f"dpnlp {version('dpnlp')}\n", ""),
        # Incomplete
        ("", 2, "", TOP),
        ("--help", 0, TOP, ""),
        ("-h", 0, TOP, ""),
        ("ledger", 2, "", LEDGER),
        ("ledger --help", 0, LEDGER, ""),
        ("echo far", 2, "", FAR),
        ("echo far --times 2", 2, "", FAR),
        ("run.yaml", 2, "", TOP),
        # Misspelt
        ("ehco", 2, "", "dpnlp: ehco: unknown command; the nearest known one is echo.\n"),
        ("led --help", 2, "", "dpnlp: led: unknown command; the nearest known one is ledger.\n"),
        ("ledger shwo", 2, "", "dpnlp: ledger shwo: unknown command; the nearest known one is ledger show.\n"),
        ("echo fra away", 2, "", "dpnlp: echo fra: no command and no file; the nearest command is echo far.\n"),
        ("echo --tims 2", 2, "", "dpnlp: --tims: unknown flag; the nearest known one is --times.\n"),
        # Bad input, failure, interrupt
        ("echo --times two", 2, "", "dpnlp: --times = two: it must be a whole number.\n"),
        ("echo --times 0", 2, "", "dpnlp: --times = 0: it must be a whole number of at least 1.\n"),
        ("fail", 2, "", "dpnlp: HOW is not given: The exception.\n"),
        ("fail broken", 1, "", "dpnlp: RuntimeError: the disk is full; --debug shows the traceback.\n"),
        ("fail mute", 1, "", "dpnlp: RuntimeError; --debug shows the traceback.\n"),
        ("fail interrupted", 130, "", "dpnlp: interrupted.\n"),
        (
            "ledger show",
            1,
            "",
            "dpnlp: ModuleNotFoundError: No module named 'no'; --debug shows the traceback.\n",
        ),
    ],
)
def test_what_a_line_does(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, line: str, code: int, out: str, err: str
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main(line.split(), VERBS) == code
    assert capsys.readouterr() == (out, err)


def test_a_settings_file_goes_to_a_verb_that_has_commands_below_it(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "echo.yaml"
    file.write_text("word: good\ntimes: 3\n", encoding="utf-8")
    assert main(["echo", str(file), "--times", "2"], VERBS) == 0
    assert capsys.readouterr().out == "good good\n"


@pytest.mark.parametrize("line", ["fail broken --debug", "--debug echo --times 0"])
def test_debug_shows_the_traceback_before_the_sentence(capsys: pytest.CaptureFixture[str], line: str) -> None:
    assert main(line.split(), VERBS) in (1, 2)
    err = capsys.readouterr().err
    assert err.startswith("Traceback (most recent call last):\n")
    assert err.splitlines()[-1].startswith("dpnlp: ")


def test_help_of_a_verb_lists_the_commands_below_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["echo", "--times", "--help"], VERBS) == 0
    out = capsys.readouterr().out
    assert out.startswith("usage: dpnlp echo [FILE.yaml] [FLAGS]\n\nSay a word back.\n")
    assert out.endswith("\n  -h, --help       Show this help.\n\nmore commands:\n  far away  Say it far away\n")


def test_arguments_come_from_the_process_when_none_are_passed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["dpnlp", "echo"])
    assert main(commands=VERBS) == 0
    assert capsys.readouterr().out == "hello\n"


def test_every_command_is_listed_with_a_summary(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    assert main(["--help"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert all(f"{' '.join(path)} {command.summary}" in text for path, command in COMMANDS.items())


def python(code: str, **options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env=os.environ | options
    )


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; from dpnlp.cli.main import main; main(['--help']); "
        "print(sorted({'numpy', 'scipy', 'matplotlib', 'yaml', 'rich', 'dp_accounting', 'jax'} & set(sys.modules)))"
    )
    assert python(code).stdout.splitlines()[-1] == "[]"


def test_help_on_a_terminal_without_greek_letters() -> None:
    done = python("from dpnlp.cli.main import main; raise SystemExit(main(['--help']))", PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, "")
    assert "\\u03b5" in done.stdout


def test_a_reader_that_goes_away_ends_it_quietly(tmp_path: Path) -> None:
    (tmp_path / "chatter.py").write_text(
        "from dataclasses import dataclass\n"
        "@dataclass(frozen=True)\n"
        "class Chatter:\n"
        "    '''Talk on.'''\n"
        "    def run(self):\n"
        "        while True: print('x' * 1000)\n"
    )
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from dpnlp.cli.main import Command, main; "
        "raise SystemExit(main(['talk'], {('talk',): Command('chatter:Chatter', '')}))"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(10)
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(timeout=5) == 141
