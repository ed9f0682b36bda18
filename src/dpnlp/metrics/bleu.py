"""BLEU (Papineni et al. 2002) and chrF (Popović 2015) of a whole corpus, from 0 to 100, as sacreBLEU computes them.

Texts are given as they would be read, neither tokenized nor lowercased: sacreBLEU does that, and says how it did.
"""

from itertools import zip_longest

from sacrebleu.metrics.base import Metric
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from dpnlp.checks import BadInput
from dpnlp.metrics.score import References, Score, Texts, paired

TOKENIZERS = ("13a", "intl", "zh", "ja-mecab", "char", "none")
"""How sacreBLEU may cut texts into words: 13a serves languages that write spaces."""


def bleu(hypotheses: Texts, references: References, *, tokenizer: str = "13a", lowercase: bool = False) -> Score:
    """How many of the n-grams of up to four words are in a reference, with a penalty for being short.

    BLEU = 100 · min(1, exp(1 − r/c)) · (p₁ p₂ p₃ p₄)^¼ for c words against r, all counts summed over the corpus.
    """
    if tokenizer not in TOKENIZERS:
        raise BadInput(f"tokenizer = {tokenizer!r}: it must be one of {', '.join(TOKENIZERS)}.")
    try:
        metric = BLEU(tokenize=tokenizer, lowercase=lowercase)
    except RuntimeError as error:
        raise BadInput(
            f"tokenizer = {tokenizer!r}: it needs a package that is not there; install it with "
            "pip install 'sacrebleu[ja]'."
        ) from error
    return _corpus(metric, hypotheses, references)


def chrf(hypotheses: Texts, references: References, *, words: int = 0, lowercase: bool = False) -> Score:
    """F₂ of n-grams of up to six characters; with `words = 2`, of n-grams of up to two words too (chrF++)."""
    if words not in (0, 1, 2):
        raise BadInput(f"words = {words}: it must be 0 for chrF, or 1 or 2 for chrF+ and chrF++.")
    return _corpus(CHRF(word_order=words, lowercase=lowercase), hypotheses, references)


def _corpus(metric: Metric, hypotheses: Texts, references: References) -> Score:
    """The score of all lines together. sacreBLEU wants all first references, then all second ones, with gaps."""
    pairs = paired(hypotheses, references)
    streams = [list(stream) for stream in zip_longest(*(several for _, several in pairs))]
    found = metric.corpus_score([hypothesis for hypothesis, _ in pairs], streams)
    return Score(found.score, f"{found.name}|{metric.get_signature()}")
