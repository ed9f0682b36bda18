"""Files for tests of data."""

import gzip
from pathlib import Path

import pytest


@pytest.fixture
def write(tmp_path):
    """Writes a file and returns its path; what ends in .gz is packed."""

    def write(name: str, content: str | bytes) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        data = content.encode() if isinstance(content, str) else content
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        return path

    return write
