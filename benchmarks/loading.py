"""How long a model takes to load from its folder, and how much memory that needs.

python -m benchmarks.loading --preset mt5-small [--dtype float32] [--repeats n] [--json]

The folder has random weights in float32 and is written first. Each time a new process loads all of it. What it needs at
most, beyond what Python and JAX take, is compared with the size of the weights as they are loaded (Linux only).
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from transformers import GenerationConfig

from benchmarks import networks
from dpnlp.models import pretrained

LOAD = """
import json, pathlib, re, sys, time
import jax
from flax import nnx
from dpnlp.models import pretrained
peak = lambda: 1024 * int(re.search(r"VmHWM:\\s+(\\d+)", pathlib.Path("/proc/self/status").read_text())[1])
before, start = peak(), time.perf_counter()
weights = jax.block_until_ready(nnx.state(pretrained.load(sys.argv[1], dtype=sys.argv[2]).model))
size = sum(leaf.nbytes for leaf in jax.tree.leaves(weights))
print(json.dumps({"seconds": time.perf_counter() - start, "bytes": size, "peak": peak() - before}))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [name for name, preset in networks.PRESETS.items() if preset.family == "t5"]
    parser.add_argument("--preset", choices=names, default="mt5-small")
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    preset = networks.PRESETS[given.preset]
    config = networks.their_config(preset)
    whole = pretrained.Pretrained(networks.build(preset), config, GenerationConfig.from_model_config(config))
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "model"
        pretrained.save(whole, folder)
        runs = [
            json.loads(subprocess.check_output([sys.executable, "-c", LOAD, str(folder), given.dtype]))
            for _ in range(given.repeats)
        ]
    found = {"seconds": statistics.median(run["seconds"] for run in runs)}
    found |= {name: max(run[name] for run in runs) for name in ("bytes", "peak")}
    if given.json:
        print(json.dumps({"preset": given.preset, "dtype": given.dtype, **found, "runs": runs}, indent=2))
        return
    print(f"{given.preset}, {found['bytes'] / 1e9:.2f} GB in {given.dtype}: {found['seconds']:.1f} s, median of these:")
    print(", ".join(f"{run['seconds']:.1f}" for run in runs))
    print(f"peak memory {found['peak'] / 1e9:.2f} GB, {found['peak'] / found['bytes']:.2f} times the weights")


if __name__ == "__main__":
    main()
