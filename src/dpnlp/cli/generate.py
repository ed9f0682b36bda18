"""`dpnlp generate`: translations of what comes in, line by line."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import ClassVar, Literal, TextIO

from dpnlp.checks import BadInput
from dpnlp.cli.config import option
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
        if self.input is not None and not self.input.is_file():
            raise BadInput(f"INPUT = {self.input}: there is no such file; give one with a text on each line.")
        task, _ = opened(self.model, self.texts, self.computes)
        writing = self.writing.of(task.longest)
        typed = self.input is None and sys.stdin.isatty()
        if typed:
            print("Type a text and press Enter; Ctrl-D ends.", file=sys.stderr)
        with _texts(self.input) as texts, _written(self.output) as output:
            lines = (line.rstrip("\n") for line in texts)
            while some := list(islice(lines, 1 if typed else 64 * writing.batch)):
                real = [line for line in some if line.strip()]
                found = iter(task.translate(real, writing) if real else ())
                for line in some:  # An empty line stays one, so that both files stay aligned.
                    print(next(found) if line.strip() else "", file=output, flush=typed)


@contextmanager
def _texts(path: Path | None) -> Iterator[Iterator[str]]:
    try:
        if path is None:
            yield iter(sys.stdin)
        else:
            with path.open(encoding="utf-8") as file:
                yield file
    except UnicodeDecodeError as error:
        raise BadInput(
            f"{path or 'standard input'}: it is not valid UTF-8 ({error.reason}); convert it first."
        ) from None


@contextmanager
def _written(path: Path | None) -> Iterator[TextIO]:
    if path is None:
        yield sys.stdout
    else:
        try:
            with path.open("w", encoding="utf-8") as file:
                yield file
        except OSError as error:
            raise BadInput(
                f"--output = {path}: it cannot be written ({error.strerror}); choose another place."
            ) from None
