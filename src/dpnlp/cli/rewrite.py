"""`dpnlp rewrite`: texts are exchanged for others that may be published, each randomized by itself."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from dpnlp.cli.config import option
from dpnlp.cli.output import figure, print_facts, print_guarantee, print_json
from dpnlp.cli.ranges import COUNT, DELTA, EPSILON, NAME, PROMISED, SEED, SIZE
from dpnlp.cli.sections import Files
from dpnlp.runs.folder import Run
from dpnlp.runs.lifecycle import Stage, attended, command_of, finish, stage_of
from dpnlp.runs.tables import label, scores

if TYPE_CHECKING:
    from dpnlp.data.corpora import Corpus


@dataclass(frozen=True, kw_only=True)
class Texts(Files):
    """Which texts, and which labels go with them."""

    train: tuple[str, ...] = option(
        (),
        help="What to rewrite: a .jsonl, .csv, .tsv or .parquet file, a file with a text a line, two aligned files of "
        "texts and labels (each may end in .gz or .xz), a folder saved by datasets, or a dataset of the hub",
    )
    validation: tuple[str, ...] = option((), help="What else to rewrite, for whoever learns from it to try settings on")
    test: tuple[str, ...] = option((), help="Original texts, on which a classifier of the rewritten ones is scored")
    corpus: str | None = option(None, help="Instead of files, a corpus by name: imdb, sst2, snli, atis or snips")
    text: str = option("text", help="The column of the text")
    label: str | None = option(
        None, help="The column of a label that is released beside the text, label for a corpus; without it texts alone"
    )
    labels: tuple[str, ...] = option(
        (), help="The labels that there can be; by default those of the corpus, or those that occur in the texts"
    )

    def _read(self, source: str | tuple[str, ...], split: str) -> Any:
        from dpnlp.data import labelled, plain

        if self.label is None and isinstance(source, str):
            return plain.plain(source, plain.Columns(self.text, self.owner), split)
        return labelled.labelled(source, labelled.Columns(self.text, self.label or "label", None, self.owner), split)

    def _named(self, name: str) -> "Corpus[Any]":
        from dpnlp.data.corpora import named

        return named(name, self.folder, owner=self.owner, kind="labelled")


@dataclass(frozen=True)
class Privacy:
    """What is promised for each text."""

    epsilon: float = option(10.0, within=EPSILON, help="ε for one text; inf rewrites without privacy")
    delta: float = option(1e-6, within=DELTA, help="δ, for methods that need one; below one in the number of texts")
    label_epsilon: float | None = option(
        None,
        within=PROMISED,
        help="ε for the label of a text, by randomized response; without it, and without joint-labels, labels are "
        "released in clear",
    )
    joint_labels: bool = option(
        False, help="Draw the label of a text together with it, so that epsilon is for both; echo alone can do so"
    )
    texts_per_person: int = option(
        1,
        within=COUNT,
        help="The most texts that one person has, as --data.owner tells; all of them are in the statement",
    )
    assumed: bool = option(
        False, help="Assume that nobody has more texts, where no column tells whose they are; the statement says so"
    )
    ledger: Path | None = option(None, help="The ledger that is charged; by default the one beside the data")
    seed: int | None = option(
        None, within=SEED, help="Makes the run repeatable, for research: whoever knows the seed can take the noise off"
    )
    diagnostics: bool = option(
        False,
        help="Compare with the original texts, by BLEU and by a classifier of them; the statement then says that this "
        "is not covered",
    )


@dataclass(frozen=True)
class Scoring:
    """What rewritten texts are good for."""

    encoder: str | None = option(
        None,
        help="A public sentence encoder, folder or id, for a classifier that learns from the rewritten texts and is "
        "scored on the test texts; without it nothing is scored",
    )
    most: int = option(100_000, within=COUNT, help="Learn from at most so many rewritten texts")
    made_of: tuple[str, ...] = option(
        (), help="The files that the rewriter was made of, to see how much of them comes out again"
    )


@dataclass(frozen=True, kw_only=True)
class Rewrite:
    """Exchange private texts for others that may be published, each by itself and without trust in anybody: the promise
    is for a whole text, whatever it says. The rewriter is made of public texts by dpnlp pretrain. What it leaves is in
    runs/NAME: the rewritten texts, the guarantee, scores and report.html."""

    VERB: ClassVar[str] = "rewrite"
    EXAMPLES: ClassVar[tuple[str, ...]] = (
        "dpnlp pretrain --method echo --output rewriters/echo --data.train public.txt --data.public "
        "--model.encoder sentence-transformers/all-MiniLM-L6-v2",
        "dpnlp rewrite --name notes --rewriter rewriters/echo --data.train notes.txt --privacy.epsilon 5",
        "dpnlp rewrite configs/rewriting/snips-echo.yaml --name snips-3 --privacy.epsilon 3",
        "dpnlp rewrite runs/notes/config.yaml --resume",
    )

    name: str = option(within=NAME, help="The name of the run", group="the run")
    runs: Path = option(Path("runs"), help="The folder that runs are in", group="the run")
    resume: bool = option(False, help="Go on with a run that was stopped, after its last text", group="the run")
    rewriter: Path = option(help="The folder of a rewriter, as dpnlp pretrain makes it", group="the run")
    tuned: bool = option(
        False,
        help="Say in the statement that this run is one of several on the same private data; dpnlp sweep sets it",
        group="the run",
    )
    batch: int = option(
        1024, within=SIZE, help="Texts that are rewritten, and written to the disk, at once", group="the run"
    )
    data: Texts = option(Texts(), help="texts")
    privacy: Privacy = option(Privacy(), help="privacy")
    scoring: Scoring = option(Scoring(), help="scoring")
    json: bool = option(False, help="Print one JSON object at the end instead of words", group="output")

    def run(self) -> None:
        """Rewrites, and says on stdout what came out."""
        run = self.made()
        if self.json:
            print_json(_entry(run))
        else:
            _print(run)

    @property
    def finished(self) -> bool:
        """Whether the run is there, all of it."""
        return stage_of(Run(self.runs / self.name)) is Stage.FINISHED

    @property
    def begun(self) -> bool:
        """Whether a run is there that can be gone on with."""
        return stage_of(Run(self.runs / self.name)) in (Stage.BEGUN, Stage.PUBLISHED)

    def made(self) -> Run:
        """Rewrites, and says nothing."""
        run = Run(self.runs / self.name)
        with attended(run, self.resume, command_of(self.VERB, run)) as stage:
            if stage is not Stage.PUBLISHED:
                from dpnlp.cli.rewriting import Rewriting

                Rewriting(self).run()
            finish(run, keep_checkpoints=False)
        return Run.open(run.path)


def _entry(run: Run) -> dict[str, Any]:
    found = {score.split: {"original": dict(score.before), "rewritten": dict(score.after)} for score in scores(run)}
    return {"run": str(run.path), "signature": run.guarantee.signature(), "scores": found}


def _print(run: Run) -> None:
    promised = run.guarantee
    facts = {"ε": f"{figure(promised.epsilon)} at δ = {promised.delta:g} for one {promised.unit}"}
    for score in scores(run):
        for name, value in score.after.items():
            was = f"{score.before[name]:.2f} → " if name in score.before else ""
            facts[f"{label(name)}, {score.split}"] = f"{was}{value:.2f}"
    places = {split: str(run.rewritten(split)) for split in run.rewritten_splits()}
    print_facts(f"Run {run.name}", {**facts, **places, "report": str(run.report)})
    print_guarantee(promised)
