"""Hugging Face's models of the benchmarks' shapes, trained without privacy and with both of Opacus's ways of clipping.

They are built from a configuration with random weights and have the same per-example loss as ours. Opacus has no rule
for T5's norm, so that there is one here; what it cannot clip is frozen or untied, and the notes of its rows say so.
"""

import contextlib
import dataclasses
from collections.abc import Callable
from typing import Any

import torch
import transformers
from torch import nn

from benchmarks import networks
from benchmarks.networks import CLIP_NORM, Preset
from benchmarks.turns import Step, Variants

NON_PRIVATE, HOOKS, GHOST = "huggingface", "opacus-hooks", "opacus-ghost"
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@dataclasses.dataclass
class Peer:
    """A model and its batch, on the device."""

    model: nn.Module
    inputs: dict[str, Any]
    labels: torch.Tensor  # [batch, length] or [batch]
    shares: torch.Tensor | None  # of each token in its example's loss
    dtype: torch.dtype
    notes: list[str] = dataclasses.field(default_factory=list)

    def losses(self, model: nn.Module) -> torch.Tensor:
        """Cross-entropy of each example, over its own tokens where it has several."""
        with contextlib.nullcontext() if self.dtype is torch.float32 else torch.autocast(DEVICE, self.dtype):
            logits = model(**self.inputs).logits
        entropy = nn.functional.cross_entropy(logits.float().flatten(0, -2), self.labels.flatten(), reduction="none")
        return entropy if self.shares is None else (entropy.view(self.shares.shape) * self.shares).sum(1)


Way = Callable[[Peer], tuple[Callable[[], None], Callable[[], None]]]
"""A way to a gradient: the step, which leaves the gradient in the model, and what frees all that the step left."""


def steps(preset: Preset) -> Variants:
    ways = {NON_PRIVATE: _non_private, HOOKS: _hooks, GHOST: _ghost}
    return {name: lambda way=way: _step(preset, way) for name, way in ways.items()}


def release() -> None:
    """Gives the device's memory back."""
    if DEVICE == "cuda":
        torch.cuda.empty_cache()


def check(preset: Preset) -> dict[str, float]:
    """How far Opacus's sums are from a loop over the examples, relative to their norm, on what each of them trains."""
    gaps = {}
    for name, way, prepare in ((HOOKS, _hooks, _prepare), (GHOST, _ghost, _prepare_for_ghost)):
        peer, plain = build(preset), build(preset)
        way(peer)[0]()
        theirs = [p.grad if name is GHOST else p.summed_grad for p in peer.model.parameters() if p.requires_grad]
        prepare(plain)
        weights = [p for p in plain.model.parameters() if p.requires_grad]
        sums = [torch.zeros_like(p) for p in weights]
        for loss in plain.losses(plain.model):
            gradients = torch.autograd.grad(loss, weights, retain_graph=True)
            norm = torch.sqrt(sum((g**2).sum() for g in gradients))
            for total, gradient in zip(sums, gradients, strict=True):
                total += gradient * min(1.0, CLIP_NORM / norm)
        off = sum(((own - loop) ** 2).sum() for own, loop in zip(theirs, sums, strict=True))
        gaps[name] = float((off / sum((loop**2).sum() for loop in sums)) ** 0.5)
    return gaps


def build(preset: Preset) -> Peer:
    """Hugging Face's model of a preset, without dropout."""
    torch.manual_seed(0)
    batch = {name: torch.as_tensor(value, device=DEVICE) for name, value in networks.batch(preset).items()}
    ids, mask = batch["ids"].long(), batch["mask"].long()
    inputs = {"input_ids": ids, "attention_mask": mask}
    dtype = getattr(torch, preset.dtype)
    if preset.family == "bert":
        model = transformers.BertForSequenceClassification(
            transformers.BertConfig(
                vocab_size=preset.vocabulary,
                hidden_size=preset.width,
                num_hidden_layers=preset.layers,
                num_attention_heads=preset.heads,
                intermediate_size=preset.hidden,
                hidden_dropout_prob=0.0,
                attention_probs_dropout_prob=0.0,
            )
        )
        # One row of positions for each example: Opacus takes the first axis of everything for the batch.
        inputs["position_ids"] = torch.arange(preset.length, device=DEVICE).repeat(preset.batch, 1)
        return Peer(model.to(DEVICE).train(), inputs, batch["label"].long(), None, dtype)
    model = t5(preset)
    targets, target_mask = batch["targets"].long(), batch["target_mask"]
    inputs |= {"decoder_input_ids": batch["inputs"].long(), "use_cache": False}
    shares = target_mask / target_mask.sum(1, keepdim=True)
    return Peer(model.to(DEVICE).train(), inputs, targets, shares, dtype)


def t5(preset: Preset) -> nn.Module:
    """Hugging Face's T5 of a preset, or its mT5 where the output layer is one of its own."""
    config = networks.their_config(preset)
    if preset.tied:
        return transformers.T5ForConditionalGeneration(config)
    model = transformers.MT5ForConditionalGeneration(config)
    # Some releases of transformers tie it whatever the configuration says; and it starts where ours does.
    model.lm_head.weight = nn.Parameter(torch.randn_like(model.lm_head.weight) * preset.width**-0.5)
    return model


def _non_private(peer: Peer) -> tuple[Callable[[], None], Callable[[], None]]:
    return lambda: peer.losses(peer.model).sum().backward(), peer.model.zero_grad


def _hooks(peer: Peer) -> tuple[Callable[[], None], Callable[[], None]]:
    """Opacus's first way: a gradient for each example and weight, from hooks in the backward pass."""
    from opacus import GradSampleModule
    from opacus.optimizers import DPOptimizer

    _prepare(peer)
    model = GradSampleModule(peer.model, loss_reduction="sum", strict=False)
    optimizer = DPOptimizer(_sgd(model), **_privacy(peer))

    def run() -> None:
        peer.losses(model).sum().backward()
        optimizer.clip_and_accumulate()

    return run, lambda: optimizer.zero_grad(set_to_none=True)


def _ghost(peer: Peer) -> tuple[Callable[[], None], Callable[[], None]]:
    """Opacus's second way: norms from a first backward pass, the clipped sum from a second one."""
    from opacus import GradSampleModuleFastGradientClipping
    from opacus.optimizers import DPOptimizerFastGradientClipping
    from opacus.utils.fast_gradient_clipping_utils import DPTensorFastGradientClipping

    _prepare_for_ghost(peer)
    settings: dict[str, Any] = {"max_grad_norm": CLIP_NORM, "loss_reduction": "sum", "strict": False}
    model = GradSampleModuleFastGradientClipping(peer.model, **settings)
    optimizer = DPOptimizerFastGradientClipping(_sgd(model), **_privacy(peer))

    def run() -> None:
        DPTensorFastGradientClipping(model, optimizer, peer.losses(model), "sum").backward()

    return run, lambda: optimizer.zero_grad(set_to_none=True)


def _prepare(peer: Peer) -> None:
    """Gives Opacus a rule for T5's norm, and freezes the relative positions: their lookup has no batch axis."""
    from opacus.grad_sample import register_grad_sampler, register_norm_sampler

    frozen = [p for name, p in peer.model.named_parameters() if "relative_attention_bias" in name]
    for parameter in frozen:
        parameter.requires_grad_(False)
    if frozen:
        peer.notes.append("relative positions frozen")
    if isinstance(peer.model, transformers.BertForSequenceClassification):
        return
    norm = type(peer.model.encoder.final_layer_norm)

    def gradients(
        layer: nn.Module, activations: list[torch.Tensor], backprops: torch.Tensor
    ) -> dict[Any, torch.Tensor]:
        x = activations[0].float()
        normed = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + layer.variance_epsilon)
        return {layer.weight: (normed * backprops).flatten(1, -2).sum(1)}

    def norms(layer: nn.Module, activations: list[torch.Tensor], backprops: torch.Tensor) -> dict[Any, torch.Tensor]:
        return {weight: g.norm(dim=1) for weight, g in gradients(layer, activations, backprops).items()}

    register_grad_sampler(norm)(gradients)
    register_norm_sampler(norm)(norms)


def _prepare_for_ghost(peer: Peer) -> None:
    """Unties what is used more than once, too: ghost clipping refuses it, because it knows no cross terms."""
    _prepare(peer)
    if isinstance(peer.model, transformers.BertForSequenceClassification):
        return
    encoder, decoder, head = peer.model.encoder.embed_tokens, peer.model.decoder.embed_tokens, peer.model.lm_head
    tied = head.weight is encoder.weight
    for layer in (encoder, decoder, head) if tied else (encoder, decoder):
        layer.weight = nn.Parameter(layer.weight.detach().clone())
    peer.model.shared = nn.Identity()  # not called
    peer.notes.append(f"embeddings of encoder and decoder{' and the output layer' if tied else ''} untied")


def _step(preset: Preset, way: Way) -> Step:
    peer = build(preset)
    run, clean = way(peer)
    note = "; ".join(peer.notes)
    if DEVICE == "cpu":
        return Step(run, clean=clean, note=note)
    own = sum(p.numel() * p.element_size() for p in peer.model.parameters())
    peak = 0

    def watched() -> None:
        nonlocal peak
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        run()
        torch.cuda.synchronize()
        peak = torch.cuda.max_memory_allocated() - before + own

    return Step(watched, peak_bytes=lambda: peak, clean=clean, note=note)


def _sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.0)


def _privacy(peer: Peer) -> dict[str, Any]:
    size = len(peer.labels)
    return {"noise_multiplier": 0.0, "max_grad_norm": CLIP_NORM, "expected_batch_size": size, "loss_reduction": "sum"}
