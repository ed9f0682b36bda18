"""Bringing to the disk what must survive a crash."""

import os
import secrets
from pathlib import Path


def fsync_path(path: Path) -> None:
    """Waits until a file or a directory is on the disk. A new file survives a power failure only with its directory."""
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def replace_file(path: Path, content: bytes) -> None:
    """Puts a file that its owner alone may read in its place, all of it or nothing, on the disk when this returns."""
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        beside.touch(mode=0o600, exist_ok=False)
        with beside.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
        fsync_path(path.parent)
    finally:
        beside.unlink(missing_ok=True)
