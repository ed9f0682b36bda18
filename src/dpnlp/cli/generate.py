"""`dpnlp generate`: translations of what comes in, line by line."""

import sys
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import ClassVar, Literal

from dpnlp.cli.config import option
from dpnlp.cli.streams import texts, written
from dpnlp.cli.translation import opened
from dpnlp.cli.translation_settings import Texts, Writing


@dataclass(frozen=True, kw_only=True)
class Generate:
    """Translate texts, one a line: from a file, from a pipe, or as they are typed. A run knows the prefix and the
    languages that it was trained with; for another model give them."""

    EXAMPLES: ClassVar[tuple[str, ...]] = (
        "dpnlp generate runs/first letters.de --output letters.en",
        "echo 'Guten Morgen!' | dpnlp generate runs/first",
    )

    model: str = option(help="A run, or a folder or id of Hugging Face", positional=True)
    input: Path | None = option(None, help="A file of texts, one a line; without it standard input", positional=True)
    output: Path | None = option(None, help="Where to write the translations; without it standard output")
    texts: Texts = option(Texts(), help="how texts are put to it")
    writing: Writing = option(Writing(), help="how translations are written")
    computes: Literal["float32", "bfloat16"] = option("float32", help="The type that it computes in; bfloat16 on a GPU")

    def run(self) -> None:
        """Translations, one a line, in the order of the texts."""
        task, _ = opened(self.model, self.texts, self.computes)
        writing = self.writing.of(task.longest)
        typed = self.input is None and sys.stdin.isatty()
        if typed:
            print("Type a text and press Enter; Ctrl-D ends.", file=sys.stderr)
        with texts(self.input) as given, written(self.output) as output:
            lines = (line.rstrip("\n") for line in given)
            while some := list(islice(lines, 1 if typed else 64 * writing.batch)):
                real = [line for line in some if line.strip()]
                found = iter(task.translate(real, writing) if real else ())
                for line in some:  # An empty line stays one, so that both files stay aligned.
                    print(next(found) if line.strip() else "", file=output, flush=typed)
