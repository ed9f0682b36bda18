"""What a verb is written with: a frozen dataclass is the one source of its flags, YAML keys, defaults and help.

This is a small layer of our own over argparse because tyro, which we tried, reports a mistake in a box of many lines
and reads no YAML with an error that names the nearest key.
"""

import argparse
import dataclasses
import difflib
import inspect
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar, get_type_hints

from dpnlp.checks import BadInput
from dpnlp.cli.ranges import Range
from dpnlp.cli.values import Kind, Refused, kind_of
from dpnlp.foreign import visible


class Config(Protocol):
    """Any dataclass whose fields are options, or are such dataclasses themselves."""

    __dataclass_fields__: ClassVar[dict[str, Any]]


C = TypeVar("C", bound=Config)

_FILE = "FILE.yaml"
_NEGATIVE = re.compile(r"-\.?\d.*|-inf(inity)?|-nan", re.IGNORECASE)
_LONGEST = 200
"""Characters of a value that a refusal quotes."""
_SHIELD = "\0"
"""Put before a negative number, which argparse would take for a flag; no argument of a process can hold it."""


def option(
    default: Any = MISSING, *, help: str, within: Range | None = None, group: str = "", positional: bool = False
) -> Any:
    """A field of a verb. Without a default it is required; `within` says which values it may have, which a number must
    say (`cli/ranges.py`); `group` is its heading in the help."""
    about = {"help": help, "within": within, "group": group, "positional": positional}
    return dataclasses.field(default=default, metadata=about)


def warn(text: str) -> None:
    """Says something on stderr that the user should know and that is no error."""
    print(visible(f"dpnlp: note: {text}"), file=sys.stderr)


def width() -> int:
    """Columns for help: the terminal's, but no more than the eye follows."""
    return min(shutil.get_terminal_size().columns - 2, 100)


def nearest(word: str, known: Iterable[str]) -> str:
    """The known word that this one abbreviates, or else the one that looks most like it."""
    words = list(known)
    return next((k for k in words if k.startswith(word)), difflib.get_close_matches(word, words, n=1, cutoff=0)[0])


# From a dataclass to its options


@dataclass(frozen=True)
class Option:
    """One setting: a field of the verb, or of a dataclass inside it (then its name has dots)."""

    name: str
    kind: Kind
    default: Any
    help: str
    heading: str
    positional: bool

    @property
    def typed(self) -> str:
        """The name as it stands on the command line."""
        spelled = self.name.replace("_", "-")
        return spelled.upper() if self.positional else f"--{spelled}"

    @property
    def place(self) -> str:
        """A positional in the line of usage."""
        place = f"{self.typed} ..." if self.kind.is_list else self.typed
        return place if self.default is MISSING else f"[{place}]"

    def read(self, value: Any, called: str, where: str = "") -> Any:
        try:
            return self.kind.read(value)
        except Refused as refused:
            remedy = f"; {refused}" if str(refused) else ""
            sentence = f"{called} = {shown(value)}{where}: it must be {self.kind.allowed}{remedy}."
            raise BadInput(sentence) from None

    def explanation(self) -> str:
        """Its help, with what it may be and what it is when not given."""
        allowed = self.kind.allowed
        values = f" {allowed[0].upper()}{allowed[1:]}." if self.kind.metavar == "CHOICE" else ""
        values += self.kind.within.sentence if self.kind.within else ""
        text = f"{self.help.rstrip('.')}.{values}"
        if self.default is MISSING:
            return f"{text} Required."
        if self.default is None or self.default == ():
            return text
        default = {True: "yes", False: "no"}[self.default] if isinstance(self.default, bool) else shown(self.default)
        return f"{text} Default: {default}."


@cache
def options_of(cls: type[Config]) -> Mapping[str, Option]:
    """The settings of a verb by their names."""
    return {option.name: option for option in _walk(cls)}


def _walk(cls: type[Config], prefix: str = "", group: str = "", defaults: Any = MISSING) -> Iterator[Option]:
    """The options in the order of declaration. `defaults`, an instance, goes before the defaults of its class."""
    hints = get_type_hints(cls)
    for item in dataclasses.fields(cls):
        if "help" not in item.metadata:
            raise TypeError(f"{cls.__name__}.{item.name} has no help; declare it through option().")
        name, hint, about = prefix + item.name, hints[item.name], item.metadata
        default = item.default if defaults is MISSING else getattr(defaults, item.name)
        heading = about.get("group") or group
        if isinstance(hint, type) and dataclasses.is_dataclass(hint):
            yield from _walk(hint, f"{name}.", heading or about["help"].rstrip("."), default)
        else:
            positional = about.get("positional", False)
            heading = "arguments" if positional else heading or "options"
            yield Option(name, kind_of(hint, about.get("within")), default, about["help"], heading, positional)


def as_typed(cls: type[Config], sentence: str) -> str:
    """A refusal that begins with a field, "lot_size = 7: ...", with the flag that the user knows it by.

    The library knows nothing of sections: a name that only one of them has is meant.
    """
    name, found, rest = sentence.partition(" = ")
    meant = [option for known, option in options_of(cls).items() if name in (known, known.rpartition(".")[2])]
    return f"{meant[0].typed}{found}{rest}" if found and len(meant) == 1 else sentence


# From values to a dataclass, and back


def parse(cls: type[C], arguments: Sequence[str], command: str) -> C:
    """The verb as the command line gives it: defaults, overridden by the YAML file, overridden by flags."""
    options = options_of(cls)
    given = _scan(options, arguments, _parser(cls, options, command))
    values = {}
    if _FILE in given:
        from dpnlp.cli.settings import read_settings  # Here, because most commands need no YAML.

        values = _once(_flat(options, read_settings(given[_FILE]), f" in {given[_FILE]}"), f" in {given[_FILE]}")
    values |= {name: option.read(given[name], option.typed) for name, option in options.items() if name in given}
    return _build(cls, options, values, called=lambda option: option.typed)


def from_dict(cls: type[C], entries: Mapping[str, Any]) -> C:
    """Reads what `to_dict` gives, or any part of it that leaves out no more than defaults."""
    options = options_of(cls)
    return _build(cls, options, _once(_flat(options, entries)), called=lambda option: option.name)


def to_dict(config: Config) -> dict[str, Any]:
    """The config in values that YAML can hold; `from_dict` gives back an equal config."""
    return {item.name: _plain(getattr(config, item.name)) for item in dataclasses.fields(config)}


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return to_dict(value)
    if isinstance(value, tuple):
        return [_plain(entry) for entry in value]
    return str(value) if isinstance(value, (StrEnum, Path)) else value


def _build(
    cls: type[C],
    options: Mapping[str, Option],
    given: Mapping[str, Any],
    called: Callable[[Option], str],
    prefix: str = "",
) -> C:
    hints, values = get_type_hints(cls), {}
    for short in (item.name for item in dataclasses.fields(cls)):
        name = prefix + short
        if name not in options:
            values[short] = _build(hints[short], options, given, called, f"{name}.")
        elif (value := given.get(name, options[name].default)) is MISSING:
            raise BadInput(f"{called(options[name])} is not given: {options[name].help.rstrip('.')}.")
        else:
            values[short] = value
    return cls(**values)


def _flat(
    options: Mapping[str, Option], entries: Mapping[Any, Any], where: str = "", prefix: str = ""
) -> Iterator[tuple[str, Any]]:
    """The values of nested mappings under their dotted names, each read and checked."""
    for key, value in entries.items():
        name = f"{prefix}{key}"
        inside = [other for other in options if other.startswith(f"{name}.")]
        if name in options:
            yield name, options[name].read(value, name, where)
        elif not inside:
            raise BadInput(f"{name}{where}: unknown key; the nearest known one is {nearest(name, options)}.")
        elif not isinstance(value, Mapping):
            raise BadInput(f"{name} = {shown(value)}{where}: it must be a mapping that holds {', '.join(inside)}.")
        else:
            yield from _flat(options, value, where, f"{name}.")


def _once(values: Iterable[tuple[str, Any]], where: str = "") -> dict[str, Any]:
    """The values by name, of which none is given twice, as by its dotted name and inside its section."""
    found: dict[str, Any] = {}
    for name, value in values:
        if name in found:
            raise BadInput(f"{name}{where}: it is given twice, by this name and inside its section; keep one of them.")
        found[name] = value
    return found


# argparse


def help_text(cls: type[Config], command: str) -> str:
    """What `--help` prints."""
    return _parser(cls, options_of(cls), command).format_help()


def _parser(cls: type, options: Mapping[str, Option], command: str) -> argparse.ArgumentParser:
    places = [option.place for option in options.values() if option.positional]
    parser = argparse.ArgumentParser(
        usage=" ".join([command, *(places or [f"[{_FILE}]"]), "[FLAGS]"]),
        description=_description(cls),
        formatter_class=lambda prog: argparse.RawDescriptionHelpFormatter(prog, max_help_position=28, width=width()),
        argument_default=argparse.SUPPRESS,
        add_help=False,
        allow_abbrev=False,
        exit_on_error=False,
    )
    headings = dict.fromkeys(("arguments", *(option.heading for option in options.values()), "general"))
    groups = {heading: parser.add_argument_group(heading) for heading in headings}
    if not places:
        text = "Settings as key: value, with _ for - in a flag's name; flags override them."
        groups["arguments"].add_argument(_FILE, nargs="?", help=text)
    for option in options.values():
        _add(groups[option.heading], option)
    for names, text in {("--debug",): "Show the traceback of an error.", ("-h", "--help"): "Show this help."}.items():
        groups["general"].add_argument(*names, dest=f"{names}", action="store_true", help=text)
    return parser


def _add(group: "argparse._ArgumentGroup", option: Option) -> None:
    kind, text = option.kind, option.explanation().replace("%", "%%")
    if option.positional:
        group.add_argument(option.name, metavar=option.typed, nargs="*" if kind.is_list else "?", help=text)
    elif kind.is_switch:
        group.add_argument(option.typed, dest=option.name, action=argparse.BooleanOptionalAction, help=text)
    elif kind.is_list:
        group.add_argument(option.typed, dest=option.name, metavar=kind.metavar, action="extend", nargs="+", help=text)
    else:
        group.add_argument(option.typed, dest=option.name, metavar=kind.metavar, help=text)


def _scan(options: Mapping[str, Option], arguments: Sequence[str], parser: argparse.ArgumentParser) -> dict[str, Any]:
    """What was given, as text. argparse finds the values; the sentences about what is wrong are ours."""
    shielded = [_SHIELD + text if _NEGATIVE.fullmatch(text) else text for text in arguments]
    flags = {option.typed: option.kind for option in options.values() if not option.positional}
    try:
        namespace, rest = parser.parse_known_intermixed_args(shielded)
    except argparse.ArgumentError as error:
        flag = str(error.argument_name).split("/")[0]
        if flag in flags and not flags[flag].is_switch:
            raise BadInput(f"{flag}: no value is given; it must be {flags[flag].allowed}.") from None
        opposite = f"; its opposite is --no-{flag[2:]}" if flag in flags else ""
        raise BadInput(f"{flag}: it takes no value{opposite}.") from None
    for text in rest:
        if text.startswith("-"):
            flag = text.partition("=")[0]
            raise BadInput(f"{flag}: unknown flag; the nearest known one is {nearest(flag, [*flags, '--help'])}.")
    if rest:
        raise BadInput(f"{_unshield(rest[0])}: one argument too many; the usage is {parser.usage}.")
    return {name: _unshield(value) for name, value in vars(namespace).items()}


def _unshield(value: Any) -> Any:
    if isinstance(value, list):
        return [_unshield(entry) for entry in value]
    return value.removeprefix(_SHIELD) if isinstance(value, str) else value


def _description(cls: type) -> str:
    paragraph = textwrap.fill(inspect.cleandoc(cls.__doc__ or "").split("\n\n")[0], width())
    examples: tuple[str, ...] = getattr(cls, "EXAMPLES", ())
    return "\n  ".join([f"{paragraph}\n\nexamples:", *examples]) if examples else paragraph


def shown(value: Any) -> str:
    """A value as the user would write it, on one line."""
    if value is None or isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple)):
        return " ".join(map(shown, value)) or "none"
    try:
        text = str(value)
    except ValueError:  # Python spells no number of thousands of digits.
        return "a number of thousands of digits"
    text = text if text.isprintable() and text and text == text.strip() else repr(text)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
