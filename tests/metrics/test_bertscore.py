"""BERTScore against the package bert-score, on the same folder, and against its definition."""

from pathlib import Path

import numpy as np
import pytest
import transformers

from dpnlp.checks import BadInput
from dpnlp.metrics import bertscore as module
from dpnlp.metrics.bertscore import bertscore, similarities
from dpnlp.models import pretrained

from ..models.agreement import moved
from ..models.real_weights import minilm

package = pytest.importorskip("bert_score")

HYPOTHESES = [
    "the cat sat on a mat",
    "rain",
    "",
    "a dog ran",
    "the cat sat on a mat",
    "unheard of",
    "in the park a dog",
]
REFERENCES = ["a cat sat on the mat", "it was raining all day", "the dog", "a dog ran", "the dog", "mat", ""]
OTHERS = ["the mat", "rain all day in the park", "a cat", "the cat ran", "the cat sat on a mat", "rain", "a dog"]
SEVERAL = [[first, second] for first, second in zip(REFERENCES, OTHERS, strict=True)]
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "sat", "on", "a", "mat", "rain", "it", "was"]
WORDS += ["##ing", "all", "day", "dog", "ran", "in", "park"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A micro BERT with random weights and a vocabulary of a few words."""
    folder = tmp_path_factory.mktemp("bert")
    shape = {"hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 20}
    config = transformers.BertConfig(vocab_size=len(WORDS), max_position_embeddings=20, **shape)
    moved(transformers.BertModel(config)).save_pretrained(folder)
    vocabulary = {word: place for place, word in enumerate(WORDS)}
    transformers.BertTokenizer(vocab=vocabulary, model_max_length=20).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def encoder(folder):
    return pretrained.load_encoder(folder)


def theirs(folder, hypotheses, references, layer, monkeypatch, **options):
    """P, R and F of the package. Its way to encode an empty text is gone from transformers."""
    encode = package.utils.sent_encode

    def sent_encode(tokenizer, text):
        empty = [tokenizer.cls_token_id, tokenizer.sep_token_id]
        return encode(tokenizer, text) if text.strip() else empty

    monkeypatch.setattr(package.utils, "sent_encode", sent_encode)
    idf = options.pop("idf", False)
    if idf:  # Its own count starts processes.
        texts = [one for several in references for one in ([several] if isinstance(several, str) else several)]
        tokenizer = package.utils.get_tokenizer(str(folder))
        idf = package.utils.get_idf_dict(texts, tokenizer, nthreads=0)
    found = package.score(
        hypotheses, references, model_type=str(folder), num_layers=layer, idf=idf, device="cpu", **options
    )
    return [side.numpy() for side in found]


def assert_same(found, expected):
    for ours, side in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, side, atol=1e-4)


@pytest.mark.parametrize("references", [REFERENCES, SEVERAL], ids=["one reference", "several"])
@pytest.mark.parametrize(("layer", "idf"), [(0, False), (2, False), (3, True)])
def test_each_text_scores_as_in_the_package(folder, encoder, monkeypatch, references, layer, idf):
    expected = theirs(folder, HYPOTHESES, references, layer, monkeypatch, idf=idf)
    assert_same(similarities(HYPOTHESES, references, encoder, layer=layer, idf=idf), expected)
    score = bertscore(HYPOTHESES, references, encoder, layer=layer, idf=idf)
    assert score.value == pytest.approx(100 * expected[2].mean(), abs=1e-2)
    assert score.signature.startswith(f"BERTScore|{folder.name}_L{layer}_{'idf' if idf else 'no-idf'}_version=dpnlp-")


def test_a_real_minilm_scores_as_in_the_package(monkeypatch):
    hypotheses = ["The cat sat on a mat.", "", "It rained all day long, and we stayed in."]
    references = [["A cat was sitting on the mat.", "Cats!"], ["Nothing was said."], ["Because of the rain we stayed."]]
    expected = theirs(minilm(), hypotheses, references, 5, monkeypatch)
    assert_same(similarities(hypotheses, references, pretrained.load_encoder(minilm()), layer=5, batch=2), expected)


@pytest.mark.filterwarnings("ignore:The given NumPy array is not writable:UserWarning")  # the package's
def test_a_baseline_is_subtracted_as_in_the_package(folder, encoder, monkeypatch, tmp_path):
    baseline = tmp_path / "baseline.tsv"
    baseline.write_text("LAYER,P,R,F\n0,0.1,0.2,0.3\n1,0.2,0.3,0.4\n2,0.31,0.42,0.53\n")
    options = {"rescale_with_baseline": True, "lang": "en", "baseline_path": str(baseline)}
    expected = theirs(folder, HYPOTHESES, REFERENCES, 2, monkeypatch, **options)
    assert_same(similarities(HYPOTHESES, REFERENCES, encoder, layer=2, baseline=baseline), expected)
    rescaled = bertscore(HYPOTHESES, REFERENCES, encoder, layer=2, baseline=baseline)
    assert rescaled.signature.endswith("-custom-rescaled")


def test_the_definition_one_pair_at_a_time(encoder):
    """The best cosine for each token but the first and the last, from the states of the pair alone."""
    hypothesis, reference = "a dog ran in the park", "the dog was in a park all day"

    def states(text):
        ids = np.array([encoder.tokenizer(text)["input_ids"]])
        x = np.asarray(encoder.model.hidden(ids, np.ones_like(ids))[2][0])
        return x / np.linalg.norm(x, axis=1, keepdims=True)

    alike = states(hypothesis) @ states(reference).T
    P, R = alike.max(axis=1)[1:-1].mean(), alike.max(axis=0)[1:-1].mean()
    found = similarities([hypothesis], [reference], encoder, layer=2)
    np.testing.assert_allclose(np.ravel(found), [P, R, 2 * P * R / (P + R)], atol=1e-5)


def test_neither_order_nor_batches_matter(encoder):
    together = similarities(HYPOTHESES, REFERENCES, encoder, layer=2)
    assert_same(similarities(HYPOTHESES, REFERENCES, encoder, layer=2, batch=3), together)
    turned = similarities(HYPOTHESES[::-1], REFERENCES[::-1], encoder, layer=2, batch=3)
    assert_same([side[::-1] for side in turned], together)
    alone = [
        similarities([h], [r], encoder, layer=2, batch=1).f1[0] for h, r in zip(HYPOTHESES, REFERENCES, strict=True)
    ]
    np.testing.assert_allclose(alone, together.f1, atol=1e-5)


def test_every_hypothesis_counts_and_the_same_text_scores_100(encoder):
    same = bertscore(HYPOTHESES[:2], HYPOTHESES[:2], encoder, layer=2).value
    assert same == pytest.approx(100, abs=1e-3)
    for line in range(2):
        worse = [text if place != line else "in" for place, text in enumerate(HYPOTHESES[:2])]
        assert bertscore(worse, HYPOTHESES[:2], encoder, layer=2).value < same - 0.1


def test_a_shape_is_compiled_once(encoder):
    before = module._similarity._cache_size()
    texts = [" ".join(["cat"] * count) for count in (1, 3, 5, 7, 9, 11)]
    for _ in range(2):
        similarities(texts, texts, encoder, layer=1, batch=5)
    assert module._similarity._cache_size() == before + 1


def test_a_long_text_is_cut_to_what_the_encoder_reads(folder, encoder, monkeypatch):
    long = ["the cat sat on a mat in the park all day " * 4]
    expected = theirs(folder, long, ["the dog"], 2, monkeypatch)
    assert_same(similarities(long, ["the dog"], encoder, layer=2), expected)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"layer": 4}, r"layer = 4: the encoder has 3 layers; choose one of 0 to 3"),
        ({"layer": -1}, r"layer = -1: it must be a whole number of at least 0"),
        ({"layer": 1, "batch": 0}, r"batch = 0: it must be a whole number of at least 1"),
        ({"layer": 1, "baseline": "nowhere"}, r"baseline = nowhere: it cannot be read as lines of LAYER,P,R,F; [^.]*"),
    ],
)
def test_an_option_that_does_not_fit_is_refused_in_one_sentence(encoder, options, sentence):
    with pytest.raises(BadInput, match=rf"^{sentence}\.$"):
        bertscore(["a"], ["a"], encoder, **options)


def test_what_cannot_be_scored_is_refused_in_one_sentence(encoder, tmp_path):
    with pytest.raises(BadInput, match=r"^hypotheses = 2 lines and references = 1 lines: "):
        bertscore(["a", "b"], ["a"], encoder, layer=1)
    short = Path(tmp_path / "short.tsv")
    short.write_text("LAYER,P,R,F\n0,0.1,0.2,0.3\n")
    with pytest.raises(BadInput, match=r"^baseline = \S*: it has no line for layer 1; [^.]*\.$"):
        bertscore(["a"], ["a"], encoder, layer=1, baseline=short)
    bare = pretrained.Encoder(encoder.model, encoder.config, None, "bare")
    with pytest.raises(BadInput, match=r"^encoder = bare: its folder has no tokenizer; [^.]*\.$"):
        bertscore(["a"], ["a"], bare, layer=1)
