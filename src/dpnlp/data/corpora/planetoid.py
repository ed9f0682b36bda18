"""The citation networks of Yang et al. (2016), Cora, CiteSeer and PubMed, from the files of Planetoid.

The files are pickles of Python 2, and a pickle can run whatever it names. So each name in them stands for a record that
only holds what it was given. A few names are known; a file with another one is refused, and nothing of it is run.
"""

import pickle
import re
from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from dpnlp import checks
from dpnlp.checks import BadInput
from dpnlp.data.formats import lines, readable
from dpnlp.data.graphs import UNKNOWN, Graph, GraphCorpus

PARTS = ("allx", "ally", "tx", "ty", "graph", "test.index")
"""How the names of the files end: features and labels of the first nodes and of the test nodes, the neighbours of each
node, and the numbers of the test nodes. (Those in x and y are the first of allx and ally.)"""

_NUMBERS = re.compile(r"[fiu][1248]")
"""Codes of the types of numbers that an array may hold."""


K = TypeVar("K")


class _Record:
    """What a pickle makes and then tells the state of; neither does anything."""

    given: tuple[Any, ...] = ()
    state: Any = None

    def __init__(self, *given: Any) -> None:
        self.given = given

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _Type(_Record):
    """A dtype: its code, and the order of its bytes."""

    def made(self) -> np.dtype[Any]:
        code, order = self.given[0], self.state[1]
        if not _NUMBERS.fullmatch(code) or order not in tuple("<>|="):
            raise ValueError(f"an array of {order}{code}")
        return np.dtype(f"{order}{code}")


class _Array(_Record):
    """An array: its shape, its type, whether columns come first, and its bytes."""

    def made(self) -> NDArray[Any]:
        _, shape, kind, columns_first, content = self.state
        content = content.encode("latin1") if isinstance(content, str) else content
        flat = np.frombuffer(content, kind.made())
        if flat.size != prod(shape):
            raise ValueError(f"{flat.size} numbers in an array of shape {shape}")
        return flat.reshape(shape, order="F" if columns_first else "C")


class _Rows(_Record):
    """A sparse matrix in compressed rows."""

    def made(self) -> csr_matrix:
        data, indices, indptr = (self.state[name].made() for name in ("data", "indices", "indptr"))
        found = csr_matrix((data, indices, indptr), shape=self.state["_shape"])
        found.check_format(full_check=True)
        return found


class _Neighbours(dict[int, Any]):
    """A dict; what it was to make of a missing key is forgotten."""

    def __init__(self, *_: Any) -> None:
        super().__init__()

    def __setstate__(self, state: Any) -> None:
        raise ValueError("a dict with a state")


_KNOWN: Mapping[tuple[str, str], type] = {
    ("numpy.core.multiarray", "_reconstruct"): _Array,
    ("numpy._core.multiarray", "_reconstruct"): _Array,
    ("numpy", "ndarray"): _Record,
    ("numpy", "dtype"): _Type,
    ("scipy.sparse.csr", "csr_matrix"): _Rows,
    ("scipy.sparse._csr", "csr_matrix"): _Rows,
    ("collections", "defaultdict"): _Neighbours,
    ("__builtin__", "list"): _Record,
    ("builtins", "list"): _Record,
}
"""What each name in a pickle stands for; NumPy and SciPy have moved some since."""


class _Unpickler(pickle.Unpickler):
    """Reads a pickle in which only the known names occur."""

    def find_class(self, module: str, name: str) -> type:
        if (module, name) not in _KNOWN:
            raise pickle.UnpicklingError(f"it names {module}.{name}, which could run anything")
        return _KNOWN[module, name]


def planetoid(files: Sequence[Path], classes: Sequence[str], validation: int = 0) -> GraphCorpus:
    """The network in these files, which are those of `PARTS`.

    The test nodes are the published ones. All other nodes with a label are for training, but for the last of allx that
    are kept for validation; those of the thesis (3.5.1) are 500. Nodes in the range of the test that have neither
    features nor a label, as 15 of CiteSeer, are in no split. (The thesis counts these 15 as training nodes.)
    """
    allx, ally, tx, ty, neighbours, index = files
    first, first_labels = _loaded(allx, csr_matrix), _labels(ally, len(classes))
    last, last_labels = _loaded(tx, csr_matrix), _labels(ty, len(classes))
    start, test = first.shape[0], _test_nodes(index, first.shape[0])
    for path, name, found, wanted in (
        (ally, "rows", len(first_labels), start),
        (tx, "rows", last.shape[0], len(test)),
        (ty, "rows", len(last_labels), len(test)),
        (tx, "columns", last.shape[1], first.shape[1]),
    ):
        if found != wanted:
            raise _mismatch(path, f"it has {found} {name}, and {wanted} belong to the other files")
    kept = checks.count("validation", validation, least=0)
    if kept >= start:
        raise BadInput(f"validation = {validation}: only {start} nodes are outside the test; keep fewer.")
    count = max(start, int(test.max(initial=-1)) + 1)
    features = np.zeros((count, first.shape[1]), np.float32)
    features[:start], features[test] = first.toarray(), last.toarray()
    labels = np.full(count, UNKNOWN, np.int32)
    labels[:start], labels[test] = first_labels, last_labels
    graph = Graph.of(features, _pairs(neighbours, count), labels, classes)
    known = np.flatnonzero(labels[:start] != UNKNOWN)
    train, validated = known[known < start - kept], known[known >= start - kept]
    return GraphCorpus(graph, train, validated, np.sort(test), tuple(files), public_classes=True)


def _loaded(path: Path, kind: type[K]) -> K:
    """What a pickle holds, if it is of this kind."""
    with readable(path):
        try:
            with path.open("rb") as file:
                found = _Unpickler(file, encoding="latin1").load()
        except pickle.UnpicklingError as error:
            raise _mismatch(path, str(error)) from None
        made = found.made() if isinstance(found, _Array | _Rows) else found
    if not isinstance(made, kind):
        raise _mismatch(path, "it does not hold what its name says")
    return made


def _labels(path: Path, classes: int) -> NDArray[np.int32]:
    """The class of each row, of which one column is 1; UNKNOWN where none is."""
    table = _loaded(path, np.ndarray)
    if table.ndim != 2 or table.shape[1] != classes:
        raise _mismatch(path, f"it has the shape {table.shape}, and there are {classes} classes")
    if not np.isin(table, (0, 1)).all() or (table.sum(axis=1) > 1).any():
        raise _mismatch(path, "a node has more than one class")
    return np.where(table.any(axis=1), table.argmax(axis=1), UNKNOWN).astype(np.int32)


def _test_nodes(path: Path, start: int) -> NDArray[np.int64]:
    """One node a line, all of them after those of allx."""
    found: dict[int, int] = {}
    for number, line in lines(path):
        text = line.strip()
        if not text.isdecimal() or int(text) < start or int(text) in found:
            raise BadInput(
                f"{path}, line {number} = {text!r:.40}: it must be a node of its own, numbered {start} or more; "
                "take the file as it is published."
            )
        found[int(text)] = number
    return np.array(list(found), np.int64)


def _pairs(path: Path, count: int) -> NDArray[np.int64]:
    """The pairs of neighbours, in both orders and some twice, and each node with itself, which makes no edge."""
    listed: dict[Any, Any] = _loaded(path, dict)
    with readable(path):
        pairs = [(node, other) for node, others in listed.items() for other in (node, *others)]
        found = np.array(pairs).reshape(-1, 2)
    if found.dtype.kind not in "iu" or (found.size and not 0 <= found.min() <= found.max() < count):
        raise _mismatch(path, f"it must list the neighbours of nodes from 0 to {count - 1}")
    return found.astype(np.int64)


def _mismatch(path: Path, what: str) -> BadInput:
    return BadInput(f"{path}: {what}; take the file as it is published.")
