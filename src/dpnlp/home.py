"""What dpnlp remembers for its owner over all runs: a secret key, and by it which records and weights it has seen.

The folder is readable by its owner alone. What is kept there tells nothing without the key; with it, whoever has a
guess about a record can test it.
"""

import os
from contextlib import suppress
from pathlib import Path

from dpnlp.atomic import Taken, write
from dpnlp.checks import BadInput

_BYTES = 32


def home_place() -> Path:
    """Where the folder is, or will be: DPNLP_HOME, or else ~/.local/share/dpnlp."""
    chosen = os.environ.get("DPNLP_HOME")
    return Path(chosen) if chosen else Path.home() / ".local" / "share" / "dpnlp"


def home() -> Path:
    """The folder, made on first use."""
    folder = home_place()
    try:
        return owned(folder)
    except OSError as error:
        raise BadInput(
            f"{folder}: dpnlp cannot keep its key there ({error.strerror}); set DPNLP_HOME to a folder of your own."
        ) from None


def cache() -> Path:
    """Where what can be made again is kept, private texts in another form among it: ~/.cache/dpnlp."""
    return Path.home() / ".cache" / "dpnlp"


def owned(folder: Path) -> Path:
    """The folder, which from now on nobody but its owner may look into, made where it is missing."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if folder.stat().st_mode & 0o077:
        folder.chmod(0o700)
    return folder


def owner_key() -> bytes:
    """The owner's key, by which records are recognised in whatever file they lie."""
    return secret_key(home() / "key")


def secret_key(path: Path) -> bytes:
    """The key in a file, made on first use. It gets its name only once it is whole, and only if there was none."""
    if not path.exists():
        with suppress(Taken):
            write(path, os.urandom(_BYTES), mode=0o600, fresh=True)
    key = path.read_bytes()
    if len(key) != _BYTES:
        raise BadInput(
            f"{path}: the key has {len(key)} bytes and must have {_BYTES}; restore it from a copy, or delete it, after "
            "which new fingerprints can no longer be compared with old ones."
        )
    return key
