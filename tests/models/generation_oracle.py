"""Micro models of transformers, the same as ours, and what transformers itself generates with them."""

import functools
import tempfile
import warnings

import pytest
import transformers

from dpnlp.models import pretrained

torch = pytest.importorskip("torch")

VOCABULARY = 60
T5 = {"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 2, "decoder_start_token_id": 0}
BART = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 2, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32}
BART |= {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "max_position_embeddings": 24}
BART |= {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 2}
BART |= {"forced_eos_token_id": None}
KINDS = {
    "t5": T5,
    "mt5": T5 | {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
    "bart": BART,
    "mbart": BART,
    "marian": BART,
    "m2m_100": BART,
}


SIZES = {"mt5": (0.3, 2.5, 2.0)}
"""How large the tables, the other weights and the row of the end are, so that texts differ and end at many lengths."""


@functools.cache
def pair(kind="mt5", seed=0):
    """A model of transformers and ours of the same weights."""
    tables, others, end = SIZES.get(kind, (0.5, 1.0, 3.0))
    torch.manual_seed(seed)
    config = transformers.AutoConfig.for_model(kind, vocab_size=VOCABULARY, **KINDS[kind])
    theirs = transformers.AutoModelForSeq2SeqLM.from_config(config).eval()
    with torch.no_grad():
        for name, value in theirs.state_dict().items():
            sinusoids = "embed_positions" in name and kind in ("marian", "m2m_100")
            if value.ndim > 1 and not sinusoids and "final_logits_bias" not in name:
                value.normal_(0, tables if value.shape[0] == VOCABULARY else others)
        theirs.lm_head.weight[config.eos_token_id] *= end
    with tempfile.TemporaryDirectory() as folder:
        theirs.save_pretrained(folder)
        ours = pretrained.load(folder, dropout=0.0)
    return theirs, ours.model


def generated(theirs, inputs, **options):
    """The tokens that transformers generates for each input, in one batch, without start, end and padding."""
    pad, start, end = (
        getattr(theirs.config, name) for name in ("pad_token_id", "decoder_start_token_id", "eos_token_id")
    )
    longest = max(map(len, inputs))
    ids = torch.tensor([[*text, *[pad] * (longest - len(text))] for text in inputs])
    mask = torch.tensor([[1] * len(text) + [0] * (longest - len(text)) for text in inputs])
    settings = {"pad_token_id": pad, "decoder_start_token_id": start, "eos_token_id": end, "num_beams": 1} | options
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        found = theirs.generate(ids, attention_mask=mask, do_sample=False, **settings).tolist()
    ends = settings["eos_token_id"]
    return [_text(row[1:], ends if isinstance(ends, list) else [ends], {pad, start}) for row in found]


def probabilities(theirs, text, *processors):
    """The distribution of the first token, after transformers' own processors of logits."""
    ids = torch.tensor([text])
    start = torch.tensor([[theirs.config.decoder_start_token_id]])
    with torch.no_grad():
        scores = theirs(ids, decoder_input_ids=start).logits[:, -1]
    for processor in processors:
        scores = processor(start, scores)
    return scores.softmax(-1)[0].double().numpy()


def _text(row, ends, marks):
    length = next((place for place, token in enumerate(row) if token in ends), None)
    return [token for token in row[:length] if token not in marks]
