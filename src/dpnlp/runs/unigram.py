"""The part of a report that sets a language model beside a guess without context."""

from dpnlp.runs.folder import Run
from dpnlp.runs.markup import Html, element, paragraph, section, table


def unigram(run: Run) -> Html:
    """What the guess would reach on every split, and how many words are unknown; nothing where it was not counted."""
    splits = sorted(run.details().items(), key=lambda item: not item[0].startswith("test"))
    rows = [
        [split, guess["token"], *(f"{guess[figure]:.2f}" for figure in ("accuracy", "perplexity", "unknown"))]
        for split, found in splits
        if (guess := found.get("unigram"))
    ]
    if not rows:
        return Html("")
    heads = ["split", "most frequent token", "its share in %", "perplexity", "unknown words in %"]
    note = (
        "A guess that knows how often each token is in the held-out texts, and nothing of what stands before it. No "
        "model without context can be better, and nothing of the training texts is in these figures. An unknown word "
        "is never guessed right."
    )
    return section(element("h2", "Beside a guess without context"), table(heads, rows, "scores", 2), paragraph(note))
