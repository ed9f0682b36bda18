"""Requests to be rewritten, and the encoder that tells which public sentences are alike."""

import numpy as np

from dpnlp.demo import grammar, requests
from dpnlp.demo.encoder import encoder
from dpnlp.models.pretrained.encoders import save_encoder
from dpnlp.models.sentence_vectors import SentenceEncoder


def test_requests_are_the_same_each_time_and_about_everything():
    found = requests.private(300, 0)
    assert found == requests.private(300, 0) != requests.private(300, 1)
    assert {request.label for request in found} == {*requests.TOPICS}


def test_no_request_is_both_private_and_tested_on():
    assert not {*requests.private(2000, 0)} & {*requests.test(200, 0)}


def test_a_sentence_of_the_same_kind_is_nearer_than_others(tmp_path):
    public = [pair.target for pair in grammar.public(600, 0)]
    save_encoder(encoder(public), tmp_path / "encoder")
    vectors = SentenceEncoder.load(tmp_path / "encoder")(
        ["After dancing the leg often hurts.", "After sport the knee often hurts.", "Bus 7 to Folle leaves at 8:00."]
    )
    assert vectors[0] @ vectors[1] > vectors[0] @ vectors[2] + 0.3
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
