"""The fingerprint of a data set: which state of it a release saw, told without giving anything of it away."""

import hashlib
import os
from pathlib import Path

from dpnlp.accounting.ledger import Ledger
from dpnlp.atomic import is_passing
from dpnlp.home import secret_key

_LEFT_OUT = (".ledger", ".ledger.key", ".ledger.head")
"""How the files end that a ledger brings with it."""


def key_path(ledger: Ledger) -> Path:
    """Where the key for the data of a ledger is: beside it."""
    return ledger.path.with_name(f"{ledger.path.name}.key")


def fingerprint(dataset: Path | str, *others: Path | str, ledger: Ledger | None = None) -> str:
    """Tells states of a data set apart without saying anything about its content: a BLAKE2b hash under a secret key.

    Without the key nobody can test a guess about the data, so it is not in the ledger but in a file of its own. The
    hash is over each file's name within the data set and its content; ledgers, their anchors and keys are left out.
    A data set may be several files, and its ledger may lie elsewhere than beside the first of them.
    """
    key = secret_key(key_path(ledger or Ledger.beside(dataset)))
    total = hashlib.blake2b(key=key, digest_size=32)
    for root in (Path(one).resolve() for one in (dataset, *others)):
        files = (path for path in (root, *root.rglob("*")) if path.is_file())
        named = {os.fsencode(path.relative_to(root)): path for path in files}
        for name, path in sorted(named.items()):
            if path == root or not (path.name.endswith(_LEFT_OUT) or is_passing(path.name)):
                with path.open("rb") as file:
                    content = hashlib.file_digest(file, lambda: hashlib.blake2b(key=key, digest_size=32))
                total.update(len(name).to_bytes(8) + name + content.digest())
    return total.hexdigest()
