"""The entry point: finds the verb, runs it, and turns whatever goes wrong into one sentence and an exit code.

0 is success, 2 bad input, 3 a claim that an audit finds broken, 1 any other failure, 130 an interrupt, 141 a reader
that went away, as in `| head`.
"""

import errno
import os
import sys
import textwrap
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from io import TextIOWrapper
from typing import NamedTuple, Protocol

from dpnlp.checks import BadInput
from dpnlp.cli.config import Config, as_typed, help_text, nearest, parse, shown, width
from dpnlp.cli.interruption import stoppable
from dpnlp.foreign import visible
from dpnlp.home import cache, owned


class Verb(Config, Protocol):
    """A frozen dataclass of options that does something. What it returns, if anything, is the exit code."""

    def run(self) -> int | None: ...


class Command(NamedTuple):
    """A verb, imported only when it is used, and what it does in one line."""

    verb: str
    summary: str


Words = tuple[str, ...]
Commands = Mapping[Words, Command]

COMMANDS: Commands = {
    ("train",): Command("dpnlp.cli.train:Train", "Train a model on private texts"),
    ("evaluate",): Command("dpnlp.cli.evaluate:Evaluate", "Score a model on texts that it has not learned from"),
    ("generate",): Command("dpnlp.cli.generate:Generate", "Translate texts, or write on from them, one a line"),
    ("predict",): Command("dpnlp.cli.predict:Predict", "Label or tag texts, or answer questions, one a line"),
    ("vocabulary",): Command(
        "dpnlp.cli.vocabulary:Vocabulary", "Make a vocabulary of public texts, or of private ones under a guarantee"
    ),
    ("pretrain",): Command("dpnlp.cli.pretrain:Pretrain", "Make a rewriter of public texts"),
    ("rewrite",): Command("dpnlp.cli.rewrite:Rewrite", "Exchange private texts for others that may be published"),
    ("sweep",): Command("dpnlp.cli.sweep:Sweep", "Train or rewrite with a grid of settings and compare them"),
    ("demo",): Command("dpnlp.cli.demo:Demo", "See all of it at work on made-up notes of a clinic, in a few minutes"),
    ("account",): Command("dpnlp.cli.account:Account", "Plan a private training run: noise, steps or ε from the rest"),
    ("account", "mechanism", "randomized-response"): Command(
        "dpnlp.cli.mechanism:RandomizedResponse", "Answers that are true with a known probability"
    ),
    ("account", "mechanism", "laplace"): Command("dpnlp.cli.mechanism:Laplace", "Laplace noise on one answer"),
    ("account", "mechanism", "gaussian"): Command("dpnlp.cli.mechanism:Gaussian", "Gaussian noise on one answer"),
    ("account", "mechanism", "exponential"): Command(
        "dpnlp.cli.mechanism:Exponential", "A choice among candidates with scores"
    ),
    ("audit",): Command("dpnlp.cli.audit_run:AuditRun", "Attack a finished run: who was trained on, what comes out?"),
    ("audit", "mechanism"): Command("dpnlp.cli.audit:BlackBox", "Test what any mechanism claims on two inputs"),
    ("audit", "mechanism", "randomized-response"): Command(
        "dpnlp.cli.audit:AuditRandomizedResponse", "Test randomized response"
    ),
    ("audit", "mechanism", "subset-response"): Command("dpnlp.cli.audit:AuditSubsetResponse", "Test subset response"),
    ("audit", "mechanism", "laplace"): Command("dpnlp.cli.audit:AuditLaplace", "Test Laplace noise"),
    ("audit", "mechanism", "gaussian"): Command("dpnlp.cli.audit:AuditGaussian", "Test Gaussian noise"),
    ("audit", "mechanism", "metric"): Command("dpnlp.cli.audit:AuditMetric", "Test the noise of metric privacy"),
    ("audit", "mechanism", "exponential"): Command(
        "dpnlp.cli.audit:AuditExponential", "Test a choice among candidates with scores"
    ),
    ("ledger",): Command("dpnlp.cli.ledger:Show", "Show what was released from a data set and what all of it cost"),
    ("ledger", "budget"): Command("dpnlp.cli.ledger:Budget", "Set what may be spent on a data set"),
    ("ledger", "add"): Command("dpnlp.cli.ledger:Add", "Enter a release that was made by other means"),
    ("report",): Command("dpnlp.cli.report:Report", "Show what runs promise and what they reached, and write a page"),
}


def main(argv: Sequence[str] | None = None, commands: Commands = COMMANDS) -> int:
    """Runs one command line and returns its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in words
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")  # It would say that there is no PyTorch.
    _keep_programs()
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # A terminal without ε still gets the figures.
    try:
        with stoppable():
            code = _dispatch([word for word in words if word != "--debug"], commands)
            sys.stdout.flush()
        return code
    except BrokenPipeError:
        # What is still buffered would fail again when the interpreter exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except KeyboardInterrupt as error:
        return _fail(130, str(error) or "interrupted.", debug)
    except BadInput as error:
        return _fail(2, str(error), debug)
    except OSError as error:
        return _fail(*_denied(error), debug)
    except RuntimeError as error:
        if not str(error).startswith("Symlink loop"):
            return _unexpected(error, debug)
        return _fail(2, f"{str(error).partition(' from ')[2]}: its links lead back to one another; mend them.", debug)
    except Exception as error:
        return _unexpected(error, debug)


def _keep_programs() -> None:
    """Lets JAX keep compiled programs, which tell how long the longest text is, where their owner alone can look."""
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        with suppress(OSError, RuntimeError):  # Then nothing is kept.
            os.environ["JAX_COMPILATION_CACHE_DIR"] = str(owned(owned(cache()) / "compiled"))


def _denied(error: OSError) -> tuple[int, str]:
    """What the operating system refused, where nobody before said what that means."""
    place, why = shown(os.fsdecode(error.filename or "")), error.strerror or str(error)
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return 2, f"{place if error.filename else 'the disk'}: there is no room ({why}); make some, then run it again."
    if error.filename:
        return 2, f"{place}: it cannot be used ({why}); check the path and its permissions."
    return 1, _what(error)


def _what(error: Exception) -> str:
    return f"{' '.join(f'{type(error).__name__}: {error}'.split()).rstrip('.:')}; --debug shows the traceback."


def _unexpected(error: Exception, debug: bool) -> int:
    return _fail(1, _what(error), debug)


def _fail(code: int, sentence: str, debug: bool) -> int:
    if debug:
        traceback.print_exc()
    print(visible(f"dpnlp: {' '.join(sentence.split())}"), file=sys.stderr)
    return code


def _dispatch(words: Sequence[str], commands: Commands) -> int:
    path = _known_words(words, commands)
    rest = words[len(path) :]
    below = {longer[len(path) :]: command for longer, command in commands.items() if longer[: len(path)] == path}
    command = below.pop((), None)
    if below and rest and not _is_argument(rest[0]):
        known = (" ".join((*path, longer[0])) for longer in below)
        typed = " ".join((*path, rest[0]))
        what = (
            "unknown command; the nearest known one"
            if command is None
            else "no command and no file; the nearest command"
        )
        raise BadInput(f"{typed}: {what} is {nearest(typed, known)}.")
    name = " ".join(("dpnlp", *path))
    wants_help = "-h" in rest or "--help" in rest
    if command is None:
        return _answer_without_verb(name, rest, below, wants_help)
    verb = import_verb(command)
    if hasattr(verb, "chosen"):
        verb = verb.chosen(rest)
    if wants_help:
        print(help_text(verb, name) + _listing(below, "\nmore commands:"), end="")
    else:
        chosen = parse(verb, rest, name)
        try:
            return chosen.run() or 0
        except BadInput as error:
            raise BadInput(as_typed(verb, str(error))) from error
    return 0


def _known_words(words: Sequence[str], commands: Commands) -> Words:
    """The longest beginning of the line that is also the beginning of a command."""
    length = 0
    while length < len(words) and any(path[: length + 1] == tuple(words[: length + 1]) for path in commands):
        length += 1
    return tuple(words[:length])


def _is_argument(word: str) -> bool:
    """True for a flag and for a file; what else stands where a command could is a misspelt one."""
    return word.startswith("-") or "." in word or "/" in word or os.path.exists(word)  # noqa: PTH110  (starts faster)


def _answer_without_verb(name: str, rest: Sequence[str], below: Commands, wants_help: bool) -> int:
    if name == "dpnlp" and "--version" in rest:
        from importlib.metadata import version  # Here, because it takes longer than all the rest of a start.

        print(f"dpnlp {version('dpnlp')}")
        return 0
    text = f"usage: {name} COMMAND [FLAGS]\n" + _listing(below, "\ncommands:")
    print(
        f"{text}\n{name} COMMAND --help says what it does and which flags it takes.",
        file=sys.stdout if wants_help else sys.stderr,
    )
    return 0 if wants_help else 2


def _listing(commands: Commands, heading: str) -> str:
    """The commands under a heading, one to a line; nothing at all where there is none."""
    if not commands:
        return ""
    column = 4 + max(len(" ".join(path)) for path in commands)
    lines = (
        textwrap.fill(
            command.summary,
            max(width(), column + 30),
            initial_indent=f"  {' '.join(path)}".ljust(column),
            subsequent_indent=" " * column,
        )
        for path, command in commands.items()
    )
    return "\n".join((heading, *lines, ""))


def import_verb(command: Command) -> type[Verb]:
    """The class behind a command."""
    module, _, name = command.verb.partition(":")
    verb: type[Verb] = getattr(import_module(module), name)
    return verb
