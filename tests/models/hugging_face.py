"""Micro models and tokenizers of transformers, as folders that look like those of the hub."""

import json

import pytest
from safetensors.numpy import load_file, save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing
from transformers import AutoConfig, AutoModelForSeq2SeqLM, PreTrainedTokenizerFast

torch = pytest.importorskip("torch")

T5 = {
    "vocab_size": 40,
    "d_model": 24,
    "d_kv": 8,
    "d_ff": 20,
    "num_layers": 2,
    "num_heads": 3,
    "relative_attention_num_buckets": 8,
    "relative_attention_max_distance": 10,
    "decoder_start_token_id": 0,
}
"""The shape of a micro T5, in which texts of a few tokens reach every bucket."""

T5_VARIANTS = {
    "T5 1.0": {},
    "T5 1.1 and Flan": {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
    "mT5": {"model_type": "mt5", "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
    "ByT5": {"vocab_size": 64, "feed_forward_proj": "gated-gelu", "num_layers": 3, "num_decoder_layers": 1}
    | {"tie_word_embeddings": False},
    "UL2": {"feed_forward_proj": "gated-silu", "tie_word_embeddings": False},
    "heads wider than the states": {"d_kv": 16, "num_heads": 2, "num_decoder_layers": 3},
    "activation gelu": {"feed_forward_proj": "gelu", "layer_norm_epsilon": 0.1},
}
"""What config.json of each says besides."""


def random_model(config):
    """A model of a config with random values everywhere, so that nothing is hidden by being 0 or 1 at first."""
    torch.manual_seed(0)
    model = AutoModelForSeq2SeqLM.from_config(AutoConfig.for_model(**config))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(0.2 * torch.randn_like(parameter) + (parameter.ndim == 1))
    return model


def t5_folder(folder, *, tied=None, dtype="float32", shards="1GB", **options):
    """A micro T5 in a folder whose config.json is as short as those of the hub. Later ones have a head of their own."""
    config = {"model_type": "t5", **T5, **options}
    tied = config.get("tie_word_embeddings", True) if tied is None else tied
    model = random_model(config)
    if not tied:
        model.lm_head.weight = torch.nn.Parameter(0.2 * torch.randn_like(model.lm_head.weight))
    model.to(getattr(torch, dtype)).save_pretrained(folder, max_shard_size=shards)
    write_config(folder, config)
    return folder


def write_config(folder, config):
    (folder / "config.json").write_text(json.dumps(config))


def change_config(folder, **changes):
    write_config(folder, json.loads((folder / "config.json").read_text()) | changes)


def change_tensors(folder, change):
    """Applies `change` to the dict of a folder's tensors."""
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def tokenizer(words=30, pad="<pad>", eos="</s>"):
    """One that knows the words w3, w4, … and puts the end at the end."""
    vocabulary = {"<pad>": 0, "</s>": 1, "<unk>": 2} | {f"w{number}": number for number in range(3, words)}
    made = Tokenizer(WordLevel(vocabulary, unk_token="<unk>"))
    made.pre_tokenizer = Whitespace()
    made.post_processor = TemplateProcessing(single=f"$A {eos}", special_tokens=[(eos, vocabulary[eos])])
    return PreTrainedTokenizerFast(tokenizer_object=made, pad_token=pad, eos_token=eos, unk_token="<unk>")
