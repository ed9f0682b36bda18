"""A first look at dpnlp in a minute: plan a private run, randomize an answer, spend a budget until it is refused.

Every step is a command line that works the same when typed.
"""

import shlex
import subprocess
import sys
import tempfile
from pathlib import Path


def show(title: str, *commands: str, where: Path) -> None:
    """Prints each command as one would type it, and runs it."""
    print(f"\n\033[1m{title}\033[0m" if sys.stdout.isatty() else f"\n{title}")
    for command in commands:
        print(f"\n$ {command}", flush=True)
        subprocess.run([sys.executable, "-m", "dpnlp", *shlex.split(command)[1:]], cwd=where, check=False)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        (here / "corpus.jsonl").write_text('{"en": "The patient recovered.", "es": "El paciente se recuperó."}\n')
        show(
            "1. How much noise does ε = 5 need, to fine-tune a translation model on 22,051 sentence pairs?",
            "dpnlp account --examples 22051 --lot-size 2048 --epochs 25 --delta 1e-8 --epsilon 5",
            where=here,
        )
        show(
            "2. The oldest mechanism: a yes-or-no answer under two coin tosses, and what 1,000 of them tell.",
            "dpnlp account mechanism randomized-response --theta 0.75 --people 1000 --hits 420",
            where=here,
        )
        show(
            "3. A budget that cannot be overspent: the second release is refused.",
            "dpnlp ledger budget corpus.jsonl --epsilon 2 --delta 1e-6",
            "dpnlp ledger add corpus.jsonl --what 'word counts' --epsilon 0.5",
            "dpnlp ledger add corpus.jsonl --what 'a second model' --epsilon 1.9",
            where=here,
        )


if __name__ == "__main__":
    main()
