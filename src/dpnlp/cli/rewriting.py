"""One run of `dpnlp rewrite`: from the ledger to the report."""

import hmac
import json
import shlex
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property, reduce
from itertools import islice
from operator import or_
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpnlp.accounting.releases import Release
from dpnlp.atomic import Growing, alone, write
from dpnlp.checks import BadInput
from dpnlp.cli.config import to_dict
from dpnlp.cli.interruption import interruptible
from dpnlp.cli.places import check_ledger
from dpnlp.cli.splits import refuse_shared
from dpnlp.data.learned import Learned
from dpnlp.data.ledgers import COINCIDENCE, NOTHING, DataSet, alike
from dpnlp.data.plain import plain
from dpnlp.events import Composed, Event, Repeated
from dpnlp.guarantee import Exposure, Guarantee, Term
from dpnlp.home import home, owned, owner_key
from dpnlp.mechanisms import RandomizedResponse
from dpnlp.mechanisms.randomness import FixedSeed, seeded
from dpnlp.rewriting import folders
from dpnlp.rewriting.base import LabelledRewriter, Rewriter
from dpnlp.runs.folder import PRIVACY, Run
from dpnlp.runs.lifecycle import begin
from dpnlp.runs.privacy import Origin, Privacy, new_id
from dpnlp.runs.provenance import PUBLIC, Door, Provenance
from dpnlp.training.progress import Progress

if TYPE_CHECKING:
    from dpnlp.cli.rewrite import Rewrite
    from dpnlp.data.records import Records
    from dpnlp.models.sentence_vectors import SentenceEncoder


class Rewriting:
    """One call of the verb."""

    def __init__(self, asked: "Rewrite") -> None:
        check_ledger(asked.privacy.ledger)
        self.asked, self.path = asked, asked.runs / asked.name
        corpus = asked.data.splits()
        if corpus.train is None:
            raise BadInput("data.train is not given: name the file to rewrite, or a corpus.")
        self.texts: dict[str, Records[Any]] = {"train": corpus.train}
        learned = Learned.of(corpus.train)
        self.known = {"train": learned.seen.texts}
        if corpus.validation:  # Each time that a text is rewritten would cost ε.
            self.texts["validation"] = _apart("data.validation", corpus.validation, learned)
            more = Learned.of(self.texts["validation"])
            self.known["validation"] = more.seen.texts
            learned |= more
        self.test = corpus.test and _apart("data.test", corpus.test, learned)
        self.classes = asked.data.labels or corpus.labels
        self.source = seeded(asked.privacy.seed)
        made = folders.load(asked.rewriter, asked.privacy.epsilon, asked.privacy.delta, self.source)
        self.made_of, made = made.provenance, made.made_of(PUBLIC)
        self.together = self._with_labels(made) if asked.privacy.joint_labels else None
        self.rewriter = self.together or made
        self._refuse_private_made_of()
        self._refuse_texts_behind_the_rewriter()
        self._refuse_uncounted()
        self.texts_of: Counter[str] = Counter()
        self.many = {split: self._counted(records) for split, records in self.texts.items()}
        self._refuse_delta()
        self.encoder = self._scoring_encoder()

    def run(self) -> None:
        """From the ledger to the report."""
        from dpnlp.runs.page import page_of_run

        if self.asked.resume:
            self.folder = Run.open(self.path)
        else:
            self._promised(new_id())  # What cannot be promised is refused before anything is written.
            command = shlex.join(["dpnlp", *sys.argv[1:]])
            self.folder = Run.create(self.path, {**to_dict(self.asked), "resume": False}, command)
            begin(self.folder)
        if (self.path / PRIVACY).exists():
            self.privacy = self._refuse_another_promise()
        else:  # Nothing was charged under another id.
            self.privacy = self._promised(new_id())
            for log in self._logs.values():
                write(log, "0\n", mode=0o600)
            self.folder.write_privacy(self.privacy)
        self._refuse_other_texts()
        try:
            self._charge()
        except BadInput:
            if not self.asked.resume:
                for log in self._logs.values():
                    log.unlink()
            raise
        for place, (split, records) in enumerate(self.texts.items()):
            self._rewrite(place, split, records)
        Door().keep(self.folder.rewritten("train").parent, Provenance.of(self.privacy))
        self._score()
        self._leaks()
        self.folder.write_report(page_of_run(self.folder))

    def _refuse_private_made_of(self) -> None:
        """The texts that are nearest to what comes out are shown beside it, so that they must not be private ones."""
        for file in self.asked.scoring.made_of:
            behind = DataSet.read(plain(file))
            rewritten = any(alike(its, behind.texts) for its in self.known.values())
            ledgers = (f"{one.path} is a ledger of them" for one in behind.ledgers() if one.read().is_private)
            if why := "some of them are rewritten here" if rewritten else next(ledgers, ""):
                raise BadInput(
                    f"scoring.made_of = {file}: its texts are private, for {why}, and they would be written out in "
                    "clear; give the public texts that the rewriter was made of."
                )

    def _refuse_texts_behind_the_rewriter(self) -> None:
        """What a rewriter was made of can come out of it, so that it hides none of it. A few texts are anybody's."""
        private = self.rewriter.mechanism is not None
        for made in self.made_of.learned_from if private else ():
            behind = Learned.recall(made)
            for split, its in self.known.items() if behind else ():
                if behind and len(its.common(behind.seen.texts)) >= COINCIDENCE * len(its):
                    raise BadInput(
                        f"data.{split}: its texts are among those that the rewriter was made of, which were said to be "
                        "public; take a rewriter that was made of others."
                    )

    def _with_labels(self, made: Rewriter) -> LabelledRewriter:
        """What draws labels together with their texts."""
        if self.asked.data.label is None:
            raise BadInput("privacy.joint_labels: the texts have no labels; name their column by data.label.")
        if self.asked.privacy.label_epsilon is not None:
            raise BadInput(
                "privacy.joint_labels: privacy.label_epsilon is for labels that are drawn apart; leave it out."
            )
        if not isinstance(made, LabelledRewriter):
            raise BadInput(
                "privacy.joint_labels: this method rewrites texts alone; let labels go through randomized response by "
                "privacy.label_epsilon."
            )
        return made.with_labels(len(self.names))

    # What is promised

    @cached_property
    def labels(self) -> RandomizedResponse | None:
        """What labels go through, or None where they are in clear or there are none."""
        epsilon = self.asked.privacy.label_epsilon
        if epsilon is None:
            return None
        if self.asked.data.label is None:
            raise BadInput(f"privacy.label_epsilon = {epsilon:g}: the texts have no labels; leave it out.")
        return RandomizedResponse(epsilon, len(self.names), self.source)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The labels that there can be."""
        from dpnlp.data.records import labels_of

        return self.classes or labels_of(record for records in self.texts.values() for record in records)

    @cached_property
    def own(self) -> Guarantee:
        """Of the rewriting: for one person, or for one text where a person has no more, with its label."""
        privacy = self.asked.privacy
        many = privacy.texts_per_person
        one = (
            self.rewriter.guarantee() if many == 1 else self.rewriter.guarantee_for_person(many, privacy.delta or None)
        )
        if self.labels:
            both = Term.of("composed", texts=one.mechanism.name, labels=self.labels.term.name)
            spent = one.epsilon + many * self.labels.epsilon
            one = replace(one, epsilon=spent, mechanism=both, accountant=Term("basic-composition"))
        elif self.together and one.is_private:
            both = Term(one.mechanism.name, (*one.mechanism.parameters, ("labels", self.together.labels)))
            one = replace(one, mechanism=both)
        one = replace(one, owner=self.asked.data.owner or "" if one.unit.is_counted_by_owner else "")
        exposures = [Exposure.MORE_TEXTS] if privacy.assumed else []
        if self.asked.data.label is not None:
            exposures += [] if self.labels or (self.together and one.is_private) else [Exposure.LABELS]
            exposures += [] if self.classes else [Exposure.CLASSES]
        exposures += [Exposure.COMPARISON] if privacy.diagnostics else []
        exposures += [Exposure.MADE_OF] if self.asked.scoring.made_of else []
        if one.is_private:
            exposures += [Exposure.HELD_OUT] if "validation" in self.texts or self._scored_on else []
            exposures += [Exposure.TUNING] if self.asked.tuned else []
        return one.with_exposures(*exposures)

    @property
    def event(self) -> Event:
        """What happens to a person's texts with their labels, or to one text with its label."""
        text, many = self.rewriter.event, self.asked.privacy.texts_per_person
        one = Composed((text, self.labels.event())) if self.labels else text
        return one if many == 1 else Repeated(one, many)

    def _refuse_uncounted(self) -> None:
        """Of a person who has several texts something can be promised only where they are counted, or assumed."""
        privacy, counted = self.asked.privacy, self.asked.data.owner is not None
        if privacy.texts_per_person > 1 and not counted and not privacy.assumed:
            raise BadInput(
                f"privacy.texts_per_person = {privacy.texts_per_person}: nothing says whose each text is; name the "
                "column by --data.owner, or say by --privacy.assumed that nobody has more, which the statement names."
            )
        if privacy.assumed and (counted or privacy.texts_per_person == 1):
            raise BadInput(
                "privacy.assumed = true: it is for --privacy.texts-per-person without --data.owner; leave it out."
            )

    def _counted(self, records: "Iterable[Any]") -> int:
        """How many there are, all of which can be read, so that nothing is begun that cannot be finished."""
        many, most = 0, self.asked.privacy.texts_per_person
        for record in records:
            many += 1
            if most > 1 and record.owner is not None:
                self.texts_of[record.owner] += 1
                if self.texts_of[record.owner] > most:
                    raise BadInput(
                        f"privacy.texts_per_person = {most}: somebody has more texts, by the column "
                        f"{self.asked.data.owner}; leave some out, or take a larger number."
                    )
            if self.asked.data.label is not None and self.classes and record.label not in self.classes:
                known = ", ".join(self.classes)
                raise BadInput(f"data.labels: there is a text with another label than {known}; add it to them.")
        return many

    def _refuse_delta(self) -> None:
        delta = self.rewriter.guarantee().delta
        if delta and delta >= 1 / (texts := sum(self.many.values())):
            raise BadInput(
                f"privacy.delta = {delta:g}: it must be below one in the number of texts, 1/{texts}, else one of them "
                f"could be published in clear; take at most {0.1 / texts:.0e}."
            )

    @property
    def guarantee(self) -> Guarantee:
        """All that is promised, with what the rewriter was made of."""
        return self.privacy.guarantee

    def _promised(self, run: str) -> Privacy:
        """The promise of the run of this id."""
        plan = {"method": folders.method_of(self.asked.rewriter)}
        return self.made_of.promising(Origin(run, f"dpnlp rewrite {self.asked.name}", self.event, self.own), plan)

    def _refuse_another_promise(self) -> Privacy:
        """A run goes on as it began: what is promised of its first texts has to hold for the last ones."""
        began = self.folder.privacy
        if began != self._promised(began.run):
            raise BadInput(
                f"resume: the run in {self.path} promises {began.guarantee.signature()}, and these settings make a "
                "different promise; go on with those that it began with, or begin another run."
            )
        return began

    @cached_property
    def _logs(self) -> dict[str, Path]:
        """Where this machine keeps what was drawn last for each split, by the run's id and the very texts in order."""
        folder = owned(home() / "drawn")
        return {split: folder / _named(f"{self.privacy.run} {split}", records) for split, records in self.texts.items()}

    def _refuse_other_texts(self) -> None:
        """A run goes on with the texts that it began with, each in its place: so none is ever drawn twice."""
        if not all(log.exists() for log in self._logs.values()):
            raise BadInput(
                f"resume: the run in {self.path} did not begin on this machine with these texts in this order; put "
                "back its data and settings, or begin another run."
            )

    def _charge(self) -> None:
        """All ledgers are charged before the first text is rewritten, and once, however often the run is resumed."""
        what, promised, chosen = f"dpnlp rewrite {self.asked.name}", self.own, self.asked.privacy.ledger
        data = reduce(or_, (DataSet.of(self.texts[split], its, chosen) for split, its in self.known.items()))
        release = Release.now(self.privacy.run, what, self.event, promised.unit, promised.adjacency, promised.owner)
        data.check(release)
        self._enter_shown(data)
        data.charge(release)

    def _enter_shown(self, data: DataSet) -> None:
        """What is scored on, or compared with what comes out, is written out as it is.

        So is a label in clear. That is no part of a text, but of all that a person is promised.
        """
        if Exposure.LABELS in self.own.not_covered and self.own.unit.is_counted_by_owner:
            data.check_written_out(f"dpnlp rewrite {self.asked.name}: labels in clear")
        if self.asked.privacy.diagnostics:
            data.write_out(f"dpnlp rewrite {self.asked.name}: how alike its texts are")
        scored = self.asked.scoring.encoder is not None and self.asked.data.label is not None
        if self.test is not None and scored:
            same = any({*self.test.files} & {*records.files} for records in self.texts.values())
            test = DataSet.read(self.test, data.chosen if same else None)
            test.write_out(f"dpnlp rewrite {self.asked.name}: what it is scored on", data.texts if same else NOTHING)
        for file in self.asked.scoring.made_of:
            DataSet.read(plain(file)).write_out(f"dpnlp rewrite {self.asked.name}: what the rewriter was made of")

    # Rewriting

    def _rewrite(self, place: int, split: str, records: "Iterable[Any]") -> None:
        """Goes on after the last text that is written. What was drawn for a text and not written was never released."""
        log = self._logs[split]
        with alone(log, f"resume: another process goes on with a copy of {self.path}; wait until it ends."):
            self._grow(place, Growing(self.folder.rewritten(split), log), split, records)

    def _grow(self, place: int, file: Growing, split: str, records: "Iterable[Any]") -> None:
        waiting = islice(records, file.lines, None)
        with interruptible() as interrupted, Progress(self.many[split], file.lines, "rewriting", "texts") as bar:
            while some := list(islice(waiting, self.asked.batch)):
                if isinstance(self.source, FixedSeed):
                    self.source.restart(place, file.lines)
                file.append([json.dumps(line, ensure_ascii=False) for line in self._rewritten(some)])
                bar.advance(self.guarantee.epsilon, len(some))
                if interrupted():
                    raise KeyboardInterrupt
        file.append([])  # The log keeps no text of what is done.

    def _rewritten(self, records: Sequence[Any]) -> Iterator[dict[str, str]]:
        texts = [record.text for record in records]
        if self.asked.data.label is None:
            yield from ({"text": text} for text in self.rewriter.rewrite(texts))
            return
        labels = [record.label for record in records]
        if self.together:
            texts, told = self.together.rewrite_labelled(texts, [self.names.index(label) for label in labels])
            labels = [self.names[one] for one in told]
        else:
            texts = self.rewriter.rewrite(texts)
        if self.labels:
            labels = [self.names[one] for one in self.labels.release([self.names.index(label) for label in labels])]
        yield from ({"text": text, "label": label} for text, label in zip(texts, labels, strict=True))

    # Scores

    @property
    def _scored_on(self) -> "Records[Any] | None":
        """The test texts, where anything is scored."""
        return None if self.asked.scoring.encoder is None or self.asked.data.label is None else self.test

    def _scoring_encoder(self) -> "SentenceEncoder | None":
        """What reads texts for the score: opened before anything is paid for, for what cannot be opened is refused."""
        name = self.asked.scoring.encoder
        if self._scored_on is None or name is None:
            return None
        from dpnlp.models.sentence_vectors import SentenceEncoder

        door = Door()
        encoder = door.open(SentenceEncoder.load, name)
        door.refuse_costs("scoring.encoder", name)
        return encoder

    def _score(self) -> None:
        """A classifier learns from the rewritten texts; those of the test are as they were."""
        asked, test, encoder, most = self.asked, self._scored_on, self.encoder, self.asked.scoring.most
        if test is None or encoder is None:
            return
        from dpnlp.rewriting.downstream import Randomized

        spent = self.guarantee.epsilon if self.guarantee.is_private else "inf"
        rows = []
        if asked.privacy.diagnostics:
            originals = {split: [one._asdict() for one in islice(its, most)] for split, its in self.texts.items()}
            row, _ = _learned(encoder, originals, list(test), Randomized())
            rows.append({"step": 0, "epsilon": 0.0, "split": "test", **row})
        released = {split: self.folder.rewritten_texts(split, most) for split in self.texts}
        told = Randomized(self.rewriter.carried, self.labels, together=self.together is not None)
        row, details = _learned(encoder, released, list(test), told)
        rows.append({"step": 1, "epsilon": spent, "split": "test", **row})
        if asked.privacy.diagnostics:
            from dpnlp.metrics.bleu import bleu

            score = bleu([line["text"] for line in released["train"]], [line["text"] for line in originals["train"]])
            signature = {"bleu_signature": score.signature}
            rows.append({"step": 1, "epsilon": spent, "split": "to the originals", "bleu": score.value, **signature})
        self.folder.write_metrics(rows)
        self.folder.write_details({"test": details})

    def _leaks(self) -> None:
        """What of the texts behind the rewriter is in those that are released; the originals play no part in it."""
        files, most = self.asked.scoring.made_of, self.asked.scoring.most
        if not files:
            return
        from dpnlp.rewriting.leakage import leakage

        released = [line["text"] for line in self.folder.rewritten_texts("train", most)]
        found = leakage(released, [record.text for file in files for record in plain(file)])
        self.folder.write_leakage(found.to_json())


def _apart(what: str, records: "Records[Any]", learned: Learned) -> "Records[Any]":
    """The records without those that are rewritten already, read anew each time."""
    rewritten = [learned.has(record) for record in records]
    refuse_shared(what, not all(rewritten), any(rewritten), "rewritten already")
    return replace(records, bounds=(*records.bounds, learned.others))


def _named(purpose: str, records: "Iterable[Any]") -> str:
    """A name that these records alone have, in this order, under the owner's key."""
    hashed = hmac.new(owner_key(), f"{purpose}\n".encode(), "sha256")
    for record in records:
        hashed.update(f"{record!r}\n".encode())
    return hashed.hexdigest()


def _learned(
    encoder: "SentenceEncoder", texts: dict[str, list[Any]], test: Sequence[Any], told: Any
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The scores of a classifier of these texts on the test, and what is behind them."""
    from dpnlp.metrics.f1 import confusion
    from dpnlp.rewriting.downstream import learn

    sides = {
        split: (encoder([line["text"] for line in lines]), [line["label"] for line in lines])
        for split, lines in texts.items()
    }
    classifier = learn(*sides["train"], sides.get("validation"), told)
    predicted = classifier(encoder([record.text for record in test]))
    found = confusion(references=[record.label for record in test], predictions=predicted)
    row: dict[str, Any] = {}
    for name, score in {"macro_f1": found.macro_f1(), "accuracy": found.accuracy()}.items():
        row |= {name: score.value, f"{name}_signature": score.signature}
    return row, found.to_json()
