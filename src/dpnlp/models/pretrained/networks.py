"""Networks for graphs in a folder: transformers has none, so model_type in config.json is dpnlp-gcn.

A network that reads sums over what another one says of each node has that one in its folder, as `base`.
"""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Optional

from flax import nnx

from dpnlp import checks
from dpnlp.checks import BadInput
from dpnlp.models.gcn import GCN, Config
from dpnlp.models.pretrained.own import fill_own, read_own, write_own
from dpnlp.models.pretrained.weights import new_folder, readable

KIND = "dpnlp-gcn"
"""What config.json calls `model_type`."""


@dataclass(frozen=True)
class Network:
    """A network, its classes, how many noisy sums over neighbours it reads, and what they are sums of."""

    model: GCN
    classes: tuple[str, ...]
    aggregations: int = 0
    base: Optional["Network"] = None


def save_network(network: Network, folder: str | Path) -> None:
    """Writes a folder that `load_network` reads, all of it or nothing."""
    config = {
        "model_type": KIND,
        "network": asdict(network.model.config),
        "classes": list(network.classes),
        "aggregations": network.aggregations,
    }
    with new_folder(folder) as whole:
        write_own(network.model, config, whole)
        if network.base is not None:
            save_network(network.base, whole / "base")


def load_network(folder: str | Path) -> Network:
    """The network in a folder."""
    folder = Path(folder)
    path, said = folder / "config.json", read_own(folder, KIND, "a network for graphs")
    with readable(path):
        classes = tuple(map(str, said["classes"]))
        try:
            config = Config(**said["network"])
            aggregations = checks.count("aggregations", said["aggregations"], least=0)
        except BadInput as error:
            raise BadInput(f"{path}: {error}") from error
    if len(classes) != config.classes:
        raise BadInput(
            f"{path}: it names {len(classes)} classes, and the network has {config.classes}; name each of them."
        )
    model: GCN = nnx.eval_shape(lambda: GCN(config, rngs=nnx.Rngs(0)))
    fill_own(model, folder)
    return Network(model, classes, aggregations, load_network(folder / "base") if (folder / "base").is_dir() else None)
