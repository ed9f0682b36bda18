"""Where a command may write, looked at before it begins."""

import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from dpnlp.atomic import is_passing, refusals, sweep, whole_folder
from dpnlp.checks import BadInput
from dpnlp.home import home_place

PICTURES = (".png", ".svg", ".pdf", ".jpg", ".jpeg")


def check_file(
    flag: str,
    place: Path | None,
    read: Collection[str | Path | None] = (),
    endings: Collection[str] = (),
    is_ledger: bool = False,
) -> None:
    """A file may be written in a folder that is there, under one of the endings, and over nothing that is read or kept.

    A ledger that is there is written to, and not replaced.
    """
    if place is None:
        return
    _refuse_passing(flag, place)
    _refuse_kept(flag, place, is_ledger)
    if place.is_dir():
        raise BadInput(f"{flag} = {place}: it is a folder; give the name of a file.")
    if not place.parent.is_dir():
        raise BadInput(f"{flag} = {place}: there is no folder {place.parent}; create it first.")
    if endings and place.suffix.lower() not in endings:
        raise BadInput(f"{flag} = {place}: the name must end in {' or '.join(endings)}; choose such a one.")
    for source in (Path(source) for source in read if source):
        if _is_same(place, source) or (source.is_dir() and place.resolve().is_relative_to(source.resolve())):
            raise BadInput(f"{flag} = {place}: it is read from there; choose another place, so that nothing is lost.")
    _check_writable(flag, place, place.parent)


def check_ledger(place: Path | None) -> None:
    """A ledger may be chosen that is there, or where a file may be written."""
    if place is not None and place.exists() and not (place.is_file() or place.is_dir()):
        raise BadInput(f"--privacy.ledger = {place}: it is a pipe or a device; give the name of a file.")
    check_file("--privacy.ledger", place, is_ledger=True)


def check_folder(flag: str, place: Path) -> None:
    """A folder may be made where nothing is yet."""
    _refuse_passing(flag, place)
    refuse_inside(flag, place)
    if place.exists() or place.is_symlink():
        raise BadInput(f"{flag} = {place}: it is there already; choose another folder.")
    above = next(folder for folder in place.absolute().parents if folder.exists())
    if not above.is_dir():
        raise BadInput(f"{flag} = {place}: {above} is a file, in which there can be no folder; choose another place.")
    _check_writable(flag, place, above)


@contextmanager
def new_output(place: Path) -> Iterator[Path]:
    """Where to make the folder of --output, which appears with all that is in it, or not at all.

    One process at a time makes it, and one that is interrupted leaves nothing.
    """
    if place.absolute().parent.is_dir():
        sweep(place.absolute().parent)
    check_folder("--output", place)
    missing = [folder for folder in place.parents if not folder.exists()]
    with refusals(place):
        place.parent.mkdir(parents=True, exist_ok=True)
    try:
        busy = f"--output = {place}: another process is making it; wait until it ends."
        with whole_folder(place, busy=busy) as whole:
            yield whole
    finally:
        for folder in missing:
            with suppress(OSError):
                folder.rmdir()  # if nothing is in it


def _refuse_passing(flag: str, place: Path) -> None:
    if is_passing(place.name):
        raise BadInput(f"{flag} = {place}: what has such a name is swept away as unfinished; choose another name.")


def _refuse_kept(flag: str, place: Path, is_ledger: bool) -> None:
    """No output takes the place of a ledger or a key, of data that have a ledger, or of what lies in a run."""
    from dpnlp.data.strings import LEDGERS

    real = place.resolve()
    if place.name.endswith(LEDGERS[1:] if is_ledger else LEDGERS):
        what = "a ledger, or belongs to one"
    elif place.with_name(f"{place.name}.ledger").exists():
        what = "data with a ledger"
    elif real.is_relative_to(home_place().resolve()):
        what = "what dpnlp remembers for you"
    elif place.exists() and place.name != "report.html" and (thing := _thing_around(real)):
        what = f"a part of {thing}"
    else:
        return
    raise BadInput(f"{flag} = {place}: it is {what}, which would be lost; choose another place.")


def refuse_inside(flag: str, place: Path) -> None:
    """Nothing new is made inside of what dpnlp has made: it would seem to be a part of that."""
    if thing := _thing_around(place.resolve()):
        raise BadInput(f"{flag} = {place}: it would lie in {thing}, which is complete; choose another place.")


def _thing_around(real: Path) -> Path | None:
    """The run, model, rewriter or vocabulary that a place is in, if it is in one."""
    from dpnlp.runs.folder import PRIVACY, PROVENANCE

    above = list(real.parents)[:3]
    return next((one for one in above if any((one / name).is_file() for name in (PRIVACY, PROVENANCE))), None)


def _is_same(one: Path, other: Path) -> bool:
    return one.exists() and other.exists() and one.samefile(other)


def _check_writable(flag: str, place: Path, above: Path) -> None:
    if not os.access(above, os.W_OK | os.X_OK):
        raise BadInput(f"{flag} = {place}: nothing can be written in {above}; check its permissions.")
