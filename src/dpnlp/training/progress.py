"""A progress bar with the ε spent so far. It keeps quiet where nobody watches, and shows nothing of the data."""

from types import TracebackType

from rich import progress
from rich.console import Console


class Progress:
    """A bar of steps with their speed, the time left and ε, on standard error, if that is a terminal."""

    def __init__(self, steps: int, done: int = 0, what: str = "training", unit: str = "steps") -> None:
        self._unit = unit
        console = Console(stderr=True)
        self._bar = progress.Progress(
            progress.TextColumn("{task.description}"),
            progress.BarColumn(),
            progress.MofNCompleteColumn(),
            progress.TextColumn("{task.fields[speed]}"),
            progress.TimeRemainingColumn(),
            progress.TextColumn("{task.fields[spent]}"),
            console=console,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task(what, total=steps, completed=done, speed="", spent="")

    @property
    def shown(self) -> bool:
        """Whether anybody sees it."""
        return not self._bar.disable

    def advance(self, epsilon: float, steps: int = 1) -> None:
        """So many more steps were made, and ε is at most this much."""
        speed = self._bar.tasks[0].speed
        shown = f"{speed:.1f} {self._unit}/s" if speed else ""
        self._bar.update(self._task, advance=steps, speed=shown, spent=f"ε ≤ {epsilon:g}")

    def __enter__(self) -> "Progress":
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()
