"""Vocabularies: of whole words, or of parts of words by byte-pair encoding (Sennrich et al. 2016).

What stands in a vocabulary gives the texts away that it is made of: a rare name may be a token of its own. So it is
made of public texts (law 10), or of words that many people share, chosen by `mechanisms.PartitionSelection`.
"""

import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from dpnlp import checks
from dpnlp.checks import BadInput
from dpnlp.data.plain import Text

PAD, END, UNKNOWN = "<pad>", "</s>", "<unk>"
_SPECIAL = (PAD, END, UNKNOWN)
_WORD = r"\w+(?:['’]\w+)*|[^\w\s]"
"""Letters and digits, with apostrophes inside of a word; anything else is a word by itself."""


class Words:
    """What the words of a text are: the same for whoever counts them and for the tokenizer that finds them."""

    def __init__(self, lower: bool = False) -> None:
        cases = [normalizers.Lowercase()] if lower else []
        self.normalizer = normalizers.Sequence([normalizers.NFKC(), *cases])
        self.splitter = pre_tokenizers.Split(Regex(_WORD), behavior="removed", invert=True)

    def __call__(self, text: str) -> list[str]:
        """All words in their order."""
        found = self.splitter.pre_tokenize_str(self.normalizer.normalize_str(text))
        return [sys.intern(word) for word, _ in found]

    def tokenizer(self, words: Iterable[str]) -> Any:
        """A tokenizer for these words, with the end after each text, padding as token 0, and <unk> for all others."""
        listed = [*_SPECIAL, *words]
        if twice := [word for word, count in Counter(listed).items() if count > 1]:
            raise BadInput(f"words: {twice[0]!r} is there twice, or is a token with a meaning of its own; remove it.")
        tokenizer = Tokenizer(models.WordLevel({word: number for number, word in enumerate(listed)}, UNKNOWN))
        tokenizer.normalizer, tokenizer.pre_tokenizer = self.normalizer, self.splitter
        return _with_end(tokenizer)


def frequent(texts: Iterable[str], words: Words, most: int) -> list[str]:
    """The `most` words that occur most often, of equal ones the first in the alphabet."""
    checks.count("most", most)
    return _ranked(Counter(word for text in texts for word in words(text)))[:most]


def of_each_text(texts: Iterable[Text], words: Words) -> Iterator[list[str]]:
    """The words of each text, those that occur most often in it first."""
    return (_ranked(Counter(words(text.text))) for text in texts)


def of_each_owner(texts: Iterable[Text], words: Words) -> Iterator[list[str]]:
    """The words of all texts of each owner, his most frequent first. A count for each word of each owner is held."""
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for text in texts:
        if text.owner is None:
            raise BadInput("owner: nothing says whose each text is; name the column that does.")
        counts[text.owner].update(words(text.text))
    return map(_ranked, counts.values())


def learned(texts: Iterable[str], size: int) -> Any:
    """A tokenizer of at most `size` parts of words, with the end after each text, and padding as token 0."""
    checks.count("vocabulary", size, least=300)
    tokenizer = Tokenizer(models.BPE(unk_token=UNKNOWN))
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Metaspace(), pre_tokenizers.Punctuation(), pre_tokenizers.Digits(individual_digits=True)]
    )
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.train_from_iterator(
        texts, trainers.BpeTrainer(vocab_size=size, special_tokens=list(_SPECIAL), show_progress=False)
    )
    return _with_end(tokenizer)


def _with_end(tokenizer: Tokenizer) -> Any:
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"$A {END}", special_tokens=[(END, _SPECIAL.index(END))]
    )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token=PAD, eos_token=END, unk_token=UNKNOWN)


def _ranked(counts: Counter[str]) -> list[str]:
    return sorted(counts, key=lambda word: (-counts[word], word))
