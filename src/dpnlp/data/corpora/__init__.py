"""Corpora by name, from the files that their authors publish: those of DP-NMT, of tasks of reading, and texts of
many authors.

A file is looked for when its split is read, so that a model can be scored on a test set without the training set.
"""

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dpnlp.checks import BadInput
from dpnlp.data.corpora.authors import AUTHORS
from dpnlp.data.corpora.reading import READING
from dpnlp.data.corpora.source import Corpus, Source, one_of
from dpnlp.data.corpora.translation import TRANSLATION

__all__ = ["CORPORA", "KINDS", "Corpus", "named"]

CORPORA: Mapping[str, Source] = {**TRANSLATION, **READING, **AUTHORS}
KINDS = {
    "translation": "texts with their translation",
    "plain": "texts with their authors",
    "labelled": "texts with a label",
    "tagged": "sentences with a tag for each word",
    "questions": "questions about texts",
}
"""The kinds of corpora, and what they hold."""


def named(
    name: str,
    folder: Path | str | None = None,
    source: str | None = None,
    target: str | None = None,
    *,
    kind: str = "translation",
    owner: str | None = None,
    test: str | None = None,
) -> Corpus[Any]:
    """The corpus of this name and kind, whose files lie in the folder; a translation from one language into another.

    The languages, the kind of owner and the test set are the first that `CORPORA` has for it, unless they are given.
    Without a folder a corpus of the hub is downloaded from there; with one that `datasets` saved it is read from it. A
    corpus of translations gives `Pairs`, one of plain or labelled texts `Texts`, of tagged sentences `Sentences`, and
    one of questions `Questions`.
    """
    one_of("kind", kind, list(KINDS))
    fitting = [other for other, known in CORPORA.items() if known.kind == kind]
    if name in CORPORA and name not in fitting:
        nearest = difflib.get_close_matches(name, fitting, n=len(fitting), cutoff=0)
        raise BadInput(
            f"corpus = {name}: it has {KINDS[CORPORA[name].kind]}, and here {KINDS[kind]} are needed; "
            f"choose one of {', '.join(nearest)}."
        )
    known = CORPORA[one_of("corpus", name, fitting)]
    kinds = list(known.owners)
    column = known.owners[one_of("owner", owner or kinds[0], kinds)] if owner is not None or kinds else None
    return known.corpus(None if folder is None else Path(folder), column, source=source, target=target, test=test)
