"""Pre-trained models as Hugging Face keeps them: a folder of config.json, safetensors and the files of a tokenizer.

No other part of dpnlp knows their names.
"""

from dpnlp.models.pretrained.adapters import load_adapters, save_adapters
from dpnlp.models.pretrained.families import FAMILIES
from dpnlp.models.pretrained.folders import Pretrained, load, save

__all__ = ["FAMILIES", "Pretrained", "load", "load_adapters", "save", "save_adapters"]
