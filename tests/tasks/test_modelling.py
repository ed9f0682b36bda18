"""Language modelling against loops over texts and tokens: losses, scores, rows and what is written."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from dpnlp.checks import BadInput
from dpnlp.data.plain import Columns, Text, plain
from dpnlp.models.generation import Generation, generate
from dpnlp.models.pretrained import PretrainedLanguageModel
from dpnlp.tasks.modelling import Continuing, Modelling

from ..training.test_clipping import assert_equal, clipped_sum, reference
from .modellers import END, UNKNOWN, WORDS, decoder, lstm, sentences, tokenizer, write_texts

MODELS = {"lstm": lstm, "decoder": decoder}


@pytest.fixture(scope="module", params=MODELS)
def task(request):
    return Modelling(MODELS[request.param](), longest=5, tokens_per_owner=12)


def ids_of(text):
    """The tokens of a text and its end."""
    return [3 + WORDS.index(word) if word in WORDS else UNKNOWN for word in text.split()] + [END]


@nnx.jit
def logits_of(model, ids):
    return model(ids, jnp.ones_like(ids))


def log_p(task, row):
    """log p of each token after the first of one row, which is alone in its batch and not padded: [tokens, words]."""
    logits = np.asarray(logits_of(task.pretrained.model, jnp.array([row])), np.float64)[0]
    logits -= logits.max(axis=-1, keepdims=True)
    return (logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True)))[:-1]


def rows_of_text(text, longest):
    """A text read by itself: each row goes on from the last token of the one before."""
    stream = [END, *ids_of(text)]
    return [stream[at : at + longest] for at in range(0, len(stream) - 1, longest - 1)]


@pytest.fixture(scope="module")
def opened(tmp_path_factory):
    """Texts in a file, as the task reads them."""
    folder = tmp_path_factory.mktemp("texts")
    return plain(write_texts(folder / "texts.jsonl", sentences(23)), Columns(owner="who")), folder / "cache"


def test_a_text_that_is_a_record_is_one_row_without_what_is_too_long(task, opened):
    rows = task.rows(task.tokenized(*opened), None)
    assert len(rows) == 23
    assert rows.owners is None
    expected = [[END, *ids_of(text.text)][:5] for text in sentences(23)]
    assert rows.ragged["ids"].lists(range(23)) == expected


def test_the_texts_of_an_owner_follow_one_another_up_to_the_cap_and_never_those_of_two(task, opened):
    texts = task.tokenized(*opened)
    rows = task.rows(texts, texts.owners)
    found = {}
    for owner, row in zip(rows.owners.tolist(), rows.ragged["ids"].lists(range(len(rows))), strict=True):
        found.setdefault(owner, [END]).extend(row[1:])
    streams = {}
    for number, text in enumerate(sentences(23)):
        streams.setdefault(number % 5, [END]).extend(ids_of(text.text))
    assert found == {owner: stream[:13] for owner, stream in streams.items()}
    assert min(map(len, streams.values())) > 13


def batch_of(task, opened, length=7):
    rows = task.rows(task.tokenized(*opened), None)
    return jax.tree.map(jnp.asarray, rows.batch(np.arange(4), length))


def test_law_4_the_loss_of_a_row_is_the_mean_over_its_own_tokens(task, opened):
    batch = batch_of(task, opened)
    found = jax.jit(lambda batch: task.loss(task.pretrained.model, batch))(batch)
    expected = []
    for text in sentences(4):
        row = [END, *ids_of(text.text)][:5]
        expected.append(-np.mean([p[token] for p, token in zip(log_p(task, row), row[1:], strict=True)]))
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    assert len({len(text.text.split()) for text in sentences(4)}) > 2


def test_law_4_no_batchmate_and_no_padding_changes_the_loss(task, opened):
    computed = jax.jit(lambda batch: task.loss(task.pretrained.model, batch))
    together = computed(batch_of(task, opened))
    np.testing.assert_allclose(computed(batch_of(task, opened, 12)), together, rtol=1e-5)
    for row in range(4):
        alone = computed(jax.tree.map(lambda leaf, row=row: leaf[row : row + 1], batch_of(task, opened)))
        np.testing.assert_allclose(alone[0], together[row], rtol=1e-5)


def test_book_keeping_clips_the_loss_exactly(task, opened):
    model, batch = task.pretrained.model, batch_of(task, opened)
    found = clipped_sum(task.loss, model, batch, jnp.ones(4), 0.1)
    assert_equal(found, *reference(task.loss, model, batch, jnp.ones(4), 0.1))
    assert min(found.norms) > 0.1


@pytest.mark.parametrize("size", [2, 64])
def test_the_scores_are_those_of_all_tokens_of_each_text_by_itself(task, size):
    texts = [*sentences(7, seed=1), Text("", None), Text(" ".join(WORDS[:10] * 3), None)]
    scored = task.score(texts, size)
    total = tokens = right = 0
    for text in texts:
        for row in rows_of_text(text.text, 5):
            for p, token in zip(log_p(task, row), row[1:], strict=True):
                total, tokens = total - p[token], tokens + 1
                best = max((number for number in range(len(p)) if number != UNKNOWN), key=p.__getitem__)
                right += best == token
    accuracy, perplexity = scored.scores().values()
    assert tokens == sum(len(ids_of(text.text)) for text in texts)
    assert perplexity.value == pytest.approx(np.exp(total / tokens), rel=1e-4)
    assert accuracy.value == pytest.approx(100 * right / tokens)
    assert accuracy.signature.startswith(
        f"accuracy_top1|unknown:wrong|guesses:known|ends:counted|vocabulary:14|n:{tokens}|"
    )
    assert perplexity.signature.startswith(f"perplexity|per:token|ends:counted|vocabulary:14|n:{tokens}|")


def test_an_unknown_word_is_no_guess_just_as_it_is_none_without_context():
    task = Modelling(lstm(), longest=5)
    model, texts = task.pretrained.model, sentences(3)
    towards = jnp.zeros(model.config.width).at[0].set(50.0)  # Whatever was read, an unknown word is expected.
    model.projection.bias.value[...] = towards
    model.tokens.table[...] = model.tokens.table[...].at[UNKNOWN].set(towards)
    scored = task.score(texts)
    assert ((scored.losses > 100) == (scored.tokens.numbers != UNKNOWN)).all()
    assert UNKNOWN not in scored.guesses


def test_what_is_behind_the_scores_is_counted_on_the_same_texts(task):
    texts = [Text("ba ba what", None), Text("ba", None)]
    found = task.score(texts).details()["unigram"]
    assert (found["token"], found["accuracy"], found["unknown"]) == ("ba", 50.0, pytest.approx(100 / 6))
    shares = np.array([3, 2, 1]) / 6
    assert found["perplexity"] == pytest.approx(np.exp(-(shares * np.log(shares)).sum()))


def test_a_line_has_a_guess_for_each_token(task):
    lines = list(task.score([Text("ba what", None), Text("du", None)]).lines())
    assert [line["reference"] for line in lines] == ["ba <unk> </s>", "du </s>"]
    assert [line["source"] for line in lines] == ["ba what", "du"]
    assert [len(line["hypothesis"].split()) for line in lines] == [3, 2]


def test_a_prompt_goes_on_with_what_the_model_finds_most_probable(task):
    prompts = ["ba be", "du", "bi bo bu"]
    options = Generation(6, start=END, end=END, pad=END, suppressed=(UNKNOWN,))
    ids = [[END, *ids_of(prompt)[:-1]] for prompt in prompts]
    expected = generate(task.pretrained.model, ids, options, lengths=(8,))
    words = ["<pad>", "</s>", "<unk>", *WORDS]
    found = task.proceed(prompts, Continuing(6))
    assert [added.split() for added in found] == [
        [words[token] for token in text if token > UNKNOWN] for text in expected
    ]
    assert all(added.startswith(" ") for added in found if added)


def test_the_last_tokens_of_a_prompt_are_read_where_there_is_no_room_for_all():
    task = Modelling(decoder(positions=8), longest=5)
    long = " ".join(WORDS[:9])
    ids = ids_of(long)[:-1][-4:]
    options = Generation(4, start=END, end=END, pad=END, suppressed=(UNKNOWN,))
    expected = generate(task.pretrained.model, [ids], options)[0]
    words = ["<pad>", "</s>", "<unk>", *WORDS]
    assert task.proceed([long], Continuing(4))[0].split() == [words[token] for token in expected if token > UNKNOWN]


def test_what_is_drawn_is_drawn_again_with_the_same_seed(task):
    drawn = [task.proceed(["ba", "be"], Continuing(8, sample=True, seed=seed)) for seed in (0, 0, 1)]
    assert drawn[0] == drawn[1] != drawn[2]


def test_a_tokenizer_of_bytes_knows_every_word():
    its = tokenizer(unk_token="</s>")
    assert Modelling(PretrainedLanguageModel(lstm().model, its)).unknown is None
    assert Modelling(lstm()).unknown == UNKNOWN


@pytest.mark.parametrize(
    ("made", "sentence"),
    [
        (
            lambda: Modelling(PretrainedLanguageModel(lstm().model, None)),
            "model: its folder has no tokenizer, without which no text can be read; add its files.",
        ),
        (
            lambda: Modelling(PretrainedLanguageModel(lstm().model, tokenizer(eos_token=None))),
            "tokenizer: it has no end token (eos_token), and a model would not learn where a text stops; take one that "
            "has.",
        ),
        (
            lambda: Modelling(decoder(positions=8), longest=9),
            "longest = 9: the model has positions for at most 8; lower it.",
        ),
        (lambda: Modelling(lstm(), longest=1), "longest = 1: it must be a whole number of at least 2."),
        (
            lambda: Modelling(lstm(), tokens_per_owner=0),
            "tokens_per_owner = 0: it must be a whole number of at least 1.",
        ),
    ],
)
def test_what_cannot_be_is_refused(made, sentence):
    with pytest.raises(BadInput) as refusal:
        made()
    assert str(refusal.value) == sentence


def test_the_surprise_of_a_text_is_that_of_all_its_tokens_and_its_end():
    task, texts = Modelling(lstm(), longest=5), sentences(9, seed=4)
    expected = [task.score([text]).losses.sum() for text in texts]
    np.testing.assert_allclose(task.surprise(texts, batch=4), expected, rtol=1e-5)
    assert len(set(np.round(expected, 3))) > 5
