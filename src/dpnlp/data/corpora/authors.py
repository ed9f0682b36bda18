"""Corpora of texts whose authors are known: chats, and plays, whose speakers take the part of users.

None has a published split; a share of the authors is held out by a checksum of their name (`records.divided`).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from dpnlp.checks import BadInput
from dpnlp.data.corpora.reading import Form, Reading
from dpnlp.data.formats import Json, Row, Table, lines
from dpnlp.data.plain import Columns, Texts

_ALL = {"train": "train"}


@dataclass(frozen=True)
class Conversations(Json):
    """Conversations by id, whose turns are lists of messages: each message is a row; a blank one is none."""

    def rows(self) -> Iterator[Row]:
        for number, (name, conversation) in self.elements("{}"):
            for message in self._messages(number, conversation):
                text = message.get("text")
                if not isinstance(text, str) or text.strip():
                    yield number, {**message, "conversation": name}

    def _messages(self, number: int, conversation: Any) -> Iterator[Mapping[str, Any]]:
        turns = conversation.get("messages") if isinstance(conversation, Mapping) else None
        for turn in turns if isinstance(turns, list) else [None]:
            if not isinstance(turn, list) or not all(isinstance(message, Mapping) for message in turn):
                raise BadInput(
                    f"{self.where(number)}: it is no conversation of ChitChat; take the file as it is published."
                )
            yield from turn


@dataclass(frozen=True)
class Speeches(Table):
    """A play: a line with a name and a colon, the lines that are spoken, and a blank line. Each speech is a row.

    A name without lines is no speech.
    """

    def rows(self) -> Iterator[Row]:
        speaker, start, spoken = "", 0, list[str]()
        for number, line in chain(lines(self.files[0]), [(0, "")]):
            if text := line.strip():
                if not speaker:
                    speaker, start = self._heading(number, text), number
                else:
                    spoken.append(text)
                continue
            if spoken:
                yield start, {"text": "\n".join(spoken), "speaker": speaker}
            speaker, spoken = "", []

    def _heading(self, number: int, line: str) -> str:
        name = line.removesuffix(":").strip()
        if not line.endswith(":") or not name:
            raise BadInput(
                f"{self.where(number)}: nothing says who speaks; put a line with a name and a colon before it."
            )
        return name


@dataclass(frozen=True)
class Plays(Reading):
    """Plays in a folder as they are published, or any file in that form, given in place of the folder."""

    def within(self, folder: Path | None) -> Path:
        return folder if folder is not None and folder.is_file() else super().within(folder)

    def _opened(self, folder: Path, split: str, owner: str | None) -> Any:
        if not folder.is_file():
            return super()._opened(folder, split, owner)
        return Texts(Speeches((folder,)), Columns(owner=owner))


AUTHORS: Mapping[str, Reading] = {
    "chitchat": Reading(
        "ChitChat",
        owners={"sender": "sender", "conversation": "conversation"},
        kind="plain",
        forms=(Form(("dataset.json",), _ALL, Conversations, Columns()),),
    ),
    "plays": Plays(
        "the plays",
        owners={"speaker": "speaker"},
        kind="plain",
        forms=tuple(
            Form((file,), _ALL, Speeches, Columns()) for file in ("input.txt", "data/tinyshakespeare/input.txt")
        ),
    ),
}
