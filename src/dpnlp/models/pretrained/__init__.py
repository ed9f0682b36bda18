"""Pre-trained models as Hugging Face keeps them: a folder of config.json, safetensors and the files of a tokenizer.

No other part of dpnlp knows their names.
"""

from dpnlp.models.pretrained.adapters import load_adapters, save_adapters
from dpnlp.models.pretrained.autoencoders import (
    PretrainedAutoencoder,
    fresh_autoencoder,
    load_autoencoder,
    save_autoencoder,
)
from dpnlp.models.pretrained.encoder_families import ENCODERS
from dpnlp.models.pretrained.encoders import Encoder, load_encoder, save_encoder
from dpnlp.models.pretrained.families import FAMILIES
from dpnlp.models.pretrained.folders import Pretrained, load, save
from dpnlp.models.pretrained.language_models import (
    LANGUAGE_MODELS,
    PretrainedLanguageModel,
    fresh_decoder,
    fresh_lstm,
    load_language_model,
    save_language_model,
)
from dpnlp.models.pretrained.networks import Network, load_network, save_network
from dpnlp.models.pretrained.opening import load_tokenizer
from dpnlp.models.pretrained.readers import PretrainedReader, load_reader, save_reader, word_reader
from dpnlp.models.pretrained.scratch import from_scratch

__all__ = [
    "ENCODERS",
    "FAMILIES",
    "LANGUAGE_MODELS",
    "Encoder",
    "Network",
    "Pretrained",
    "PretrainedAutoencoder",
    "PretrainedLanguageModel",
    "PretrainedReader",
    "fresh_autoencoder",
    "fresh_decoder",
    "fresh_lstm",
    "from_scratch",
    "load",
    "load_adapters",
    "load_autoencoder",
    "load_encoder",
    "load_language_model",
    "load_network",
    "load_reader",
    "load_tokenizer",
    "save",
    "save_adapters",
    "save_autoencoder",
    "save_encoder",
    "save_language_model",
    "save_network",
    "save_reader",
    "word_reader",
]
