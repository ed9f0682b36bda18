"""One private gradient: dpnlp's book-keeping, vmap, jax-privacy, and Opacus on Hugging Face's models, on one shape.

python -m benchmarks.clipping --preset tiny [--batch B] [--length T] [--dtype float32] [--strategy tr-last2]
    [--repeats n] [--only book-keeping,vmap] [--no-peers] [--check] [--json]

A step is forward, backward, clipping and the sum; no noise and no optimizer. Ratios are to the non-private step of the
same kind. The PyTorch variants run first and give the device back. Memory is what XLA says that a compiled step needs,
and what PyTorch says that it had allocated (on a GPU only).
"""

import argparse
import contextlib
import dataclasses
import time
import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import networks
from benchmarks.networks import CLIP_NORM, Preset
from benchmarks.turns import Row, Step, Variants, measure, show
from dpnlp.training import clipping
from dpnlp.training.parameters import Parameters, apart

NON_PRIVATE = "non-private"


def jax_variants(preset: Preset) -> tuple[dict[str, Callable[..., Parameters]], Any]:
    """Each way to a gradient as a function of (weights, batch), and its arguments."""
    model = networks.build(preset)
    parts = apart(model, networks.trains(preset, model))
    batch = jax.tree.map(jnp.asarray, networks.batch(preset))

    def loss(weights: Parameters, batch: Any) -> jax.Array:
        return jnp.sum(networks.losses(parts.model(weights), batch))

    def book_keeping(weights: Parameters, batch: Any) -> Parameters:
        given, ones = parts._replace(parameters=weights), jnp.ones(preset.batch)
        return clipping.clipped_sum(networks.losses, given, batch, ones, clipping.Clipping(CLIP_NORM)).gradients

    def vmap(weights: Parameters, batch: Any) -> Parameters:
        singles = jax.tree.map(lambda a: a[:, None], batch)
        each = jax.vmap(jax.grad(loss), in_axes=(None, 0))(weights, singles)
        squared = sum(jnp.sum(g.reshape(preset.batch, -1) ** 2, axis=1) for g in jax.tree.leaves(each))
        factors = jnp.minimum(1.0, CLIP_NORM / jnp.sqrt(squared))
        return jax.tree.map(lambda g: jnp.tensordot(factors, g, axes=1), each)

    def jax_privacy(weights: Parameters, batch: Any) -> Parameters:
        import jax_privacy

        return jax_privacy.clipped_grad(loss, l2_clip_norm=CLIP_NORM, batch_argnums=1)(weights, batch)

    functions = {NON_PRIVATE: jax.grad(loss), "book-keeping": book_keeping, "vmap": vmap, "jax-privacy": jax_privacy}
    return functions, (parts.parameters, batch)


def jax_steps(preset: Preset) -> Variants:
    functions, arguments = jax_variants(preset)

    def step(function: Callable[..., Any]) -> Step:
        start = time.perf_counter()
        compiled = jax.jit(function).lower(*arguments).compile()
        seconds = time.perf_counter() - start
        needs = compiled.memory_analysis()
        peak = needs.temp_size_in_bytes + needs.argument_size_in_bytes + needs.output_size_in_bytes
        return Step(lambda: jax.block_until_ready(compiled(*arguments)), seconds, lambda: peak)

    return {name: lambda function=function: step(function) for name, function in functions.items()}


def check(preset: Preset) -> dict[str, float]:
    """How far book-keeping's sum is from the others', relative to its norm."""
    functions, arguments = jax_variants(preset)

    def flat(function: Callable[..., Parameters]) -> np.ndarray:
        gradients = jax.jit(function)(*arguments)
        return np.concatenate([np.asarray(gradients[name], np.float64).ravel() for name in sorted(gradients)])

    own = flat(functions["book-keeping"])
    others = {name: flat(functions[name]) for name in ("vmap", "jax-privacy")}
    return {name: float(np.linalg.norm(own - other) / np.linalg.norm(other)) for name, other in others.items()}


def _peers() -> tuple[Any, str]:
    """The module of the PyTorch variants, or what is missing for it."""
    try:
        from benchmarks import peers
    except ModuleNotFoundError as error:
        return None, f"{error.name} is not installed"
    return peers, ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", choices=networks.PRESETS, default="tiny")
    parser.add_argument("--batch", type=int)
    parser.add_argument("--length", type=int)
    parser.add_argument("--strategy", choices=("tr-all", "tr-last2", "tr-no"), help="which part of a BERT is trained")
    parser.add_argument("--dtype", choices=["float32", "bfloat16"])
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--only", type=lambda text: text.split(","), help="variants, by name, with commas between them")
    parser.add_argument("--peers", action=argparse.BooleanOptionalAction, default=True, help="the PyTorch variants")
    parser.add_argument("--check", action="store_true", help="compare the sums instead of the times")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    fields = ("batch", "length", "dtype", "strategy")
    changed = {name: getattr(arguments, name) for name in fields if getattr(arguments, name)}
    preset = dataclasses.replace(networks.PRESETS[arguments.preset], **changed)
    warnings.simplefilter("ignore")  # the peers'
    peers, missing = _peers() if arguments.peers else (None, "")
    if arguments.check:
        gaps = {f"book-keeping and {name}": gap for name, gap in check(preset).items()}
        with contextlib.suppress(ModuleNotFoundError):
            found = peers.check(preset) if peers else {}
            gaps |= {f"{name} and a loop over the examples": gap for name, gap in found.items()}
        for pair, gap in gaps.items():
            print(f"{pair}: relative difference {gap:.1e}")
        raise SystemExit("They differ." if max(gaps.values()) > 1e-5 else 0)

    def wanted(variants: Variants) -> Variants:
        return {name: make for name, make in variants.items() if not arguments.only or name in arguments.only}

    rows = [Row("huggingface", trouble=missing)] if missing else []
    if peers:
        rows = measure(wanted(peers.steps(preset)), peers.NON_PRIVATE, arguments.repeats)
        peers.release()
    rows = measure(wanted(jax_steps(preset)), NON_PRIVATE, arguments.repeats) + rows
    asked = {"preset": arguments.preset, "shape": dataclasses.asdict(preset), "repeats": arguments.repeats}
    show(f"{arguments.preset}, {preset.batch} × {preset.length}", asked, preset.dtype, rows, arguments.json)


if __name__ == "__main__":
    main()
