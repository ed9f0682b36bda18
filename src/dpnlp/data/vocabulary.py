"""A vocabulary made of texts: byte-pair encoding (Sennrich et al. 2016), for a model that starts from nothing.

What stands in it gives the texts away: a rare name may be a token of its own. It is for public texts (law 10).
"""

from collections.abc import Iterable
from typing import Any

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from dpnlp import checks

PAD, END, UNKNOWN = "<pad>", "</s>", "<unk>"


def learned(texts: Iterable[str], size: int) -> Any:
    """A tokenizer of at most `size` tokens, with the end after each text, and padding as token 0."""
    checks.count("vocabulary", size, least=300)
    tokenizer = Tokenizer(models.BPE(unk_token=UNKNOWN))
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Metaspace(), pre_tokenizers.Punctuation(), pre_tokenizers.Digits(individual_digits=True)]
    )
    tokenizer.decoder = decoders.Metaspace()
    special = [PAD, END, UNKNOWN]
    tokenizer.train_from_iterator(
        texts, trainers.BpeTrainer(vocab_size=size, special_tokens=special, show_progress=False)
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"$A {END}", special_tokens=[(END, special.index(END))]
    )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token=PAD, eos_token=END, unk_token=UNKNOWN)
