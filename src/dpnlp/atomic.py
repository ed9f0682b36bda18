"""Bringing to the disk what must survive a crash."""

import os
from pathlib import Path


def fsync_path(path: Path) -> None:
    """Waits until a file or a directory is on the disk. A new file survives a power failure only with its directory."""
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
