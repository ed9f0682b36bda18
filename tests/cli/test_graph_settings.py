"""The settings of graphs: what is asked for is what the features are made of."""

import pytest

from dpnlp.checks import BadInput
from dpnlp.cli.nodes_settings import Data
from dpnlp.runs.provenance import Door


@pytest.fixture
def pokec(tmp_path):
    """Twenty users of Pokec in SNAP's form: one more word in each profile than in the one before."""
    profiles = []
    for user in range(1, 21):
        cells = ["null"] * 59
        cells[0], cells[2], cells[13] = str(user), "50", "mam psa" if user % 2 else "mam macku"
        cells[20] = " ".join(f"slovo{n}" for n in range(user))
        profiles.append("\t".join(cells))
    (tmp_path / "soc-pokec-profiles.txt").write_text("\n".join(profiles), encoding="utf-8")
    (tmp_path / "soc-pokec-relationships.txt").write_text("1\t2\n2\t3\n", encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize("words", [Data().words, 512])
def test_the_words_of_pokec_get_as_many_columns_as_are_asked_for(pokec, words):
    features = Data(corpus="pokec", folder=pokec, words=words).corpus_of_nodes(Door()).graph.features
    assert features.shape == (20, words)
    assert features.sum() > 0


@pytest.mark.parametrize("given", [{"words": 512}, {"encoder": "folder"}])
def test_what_makes_features_is_refused_for_a_graph_that_has_them_already(tmp_path, given):
    ((name, value),) = given.items()
    with pytest.raises(BadInput, match=rf"^data\.{name} = {value}: the features of cora are given; leave it out\.$"):
        Data(corpus="cora", folder=tmp_path, **given).corpus_of_nodes(Door())
