"""Files for tests of data."""

import gzip
import lzma
from pathlib import Path

import pytest


@pytest.fixture
def write(tmp_path):
    """Writes a file and returns its path; what ends in .gz or .xz is packed."""

    def write(name: str, content: str | bytes) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        data = content.encode() if isinstance(content, str) else content
        packs = {".gz": gzip.compress, ".xz": lzma.compress}.get(path.suffix, bytes)
        path.write_bytes(packs(data))
        return path

    return write
