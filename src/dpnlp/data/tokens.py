"""Texts as tokens, by the tokenizer of a model."""

import json
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from dpnlp import checks
from dpnlp.checks import BadInput
from dpnlp.data.cache import Column, Examples, Numbers, kept, sha256
from dpnlp.data.pairs import Pair, Pairs
from dpnlp.foreign import bytes_in

_LAST_USE = {"is_local", "local_files_only", "max_length", "stride", "truncation_strategy", "truncation_side"} | {
    "pad_to_multiple_of",
    "pad_token_type_id",
    "padding_side",
}
"""What a tokenizer saves about how it was loaded and last called, which does not matter here."""


def encoded(
    texts: Sequence[str],
    tokenizer: Any,
    *,
    longest: int,
    languages: tuple[str, str] | None = None,
    target: bool = False,
) -> list[list[int]]:
    """The tokens of each text, cut to `longest` so that the end token stays last.

    A tokenizer that knows languages is set to these, of source and target; to another they mean nothing.
    """
    added = tokenizer.num_special_tokens_to_add()
    checks.count("longest", longest, added + 1, f"the tokenizer adds {added} to each text")
    _speak(tokenizer, languages)
    if not texts:
        return []
    given = {"text_target" if target else "text": list(texts)}
    options = {"return_attention_mask": False, "return_token_type_ids": False}
    found: list[list[int]] = tokenizer(**given, truncation=True, max_length=longest, **options)["input_ids"]
    return found


def tokenized(
    pairs: Pairs,
    tokenizer: Any,
    *,
    longest: int,
    prefix: str = "",
    cache: Path,
    languages: tuple[str, str] | None = None,
) -> Examples:
    """The pairs as tokens, "ids" of the sources and "targets", kept in the cache.

    `prefix` goes before each source; for the rest see `encoded`.
    """
    sides = partial(_sides, tokenizer, longest, prefix, languages)
    refuse_endless(tokenizer, sides([Pair("", "", None)])["targets"][0])
    made_by = state(tokenizer), prefix, languages, longest
    largest = max(tokenizer.get_vocab().values())
    return kept(pairs, _columns(tokenizer), sides, made_by, cache=cache, largest=largest)


def in_memory(
    pairs: Sequence[Pair],
    tokenizer: Any,
    *,
    longest: int,
    prefix: str = "",
    languages: tuple[str, str] | None = None,
) -> Examples:
    """The same of a few pairs, kept nowhere."""
    return Examples.of(_columns(tokenizer), _sides(tokenizer, longest, prefix, languages, pairs))


def _columns(tokenizer: Any) -> tuple[Column, ...]:
    pad = tokenizer.pad_token_id or 0
    return Column("ids", pad, "mask"), Column("targets", pad, "target_mask")


def _sides(
    tokenizer: Any, longest: int, prefix: str, languages: tuple[str, str] | None, pairs: Sequence[Pair]
) -> Numbers:
    settings: dict[str, Any] = {"longest": longest, "languages": languages}
    return {
        "ids": encoded([prefix + pair.source for pair in pairs], tokenizer, **settings),
        "targets": encoded([pair.target for pair in pairs], tokenizer, **settings, target=True),
    }


def refuse_endless(tokenizer: Any, blank: Sequence[int]) -> None:
    """Refuses a tokenizer that puts no end after a text, by the tokens of a blank one."""
    if tokenizer.eos_token_id not in blank:
        raise BadInput(
            "tokenizer: it puts no end token after a text, and a model would not learn where to stop; "
            "take one with an eos_token and a template that adds it."
        )


def state(tokenizer: Any) -> str:
    """A name for all that the tokenizer saves and that decides about tokens."""
    if tokenizer.is_fast:
        tokenizer.backend_tokenizer.no_truncation()
        tokenizer.backend_tokenizer.no_padding()
    total = [("truncation_side", tokenizer.truncation_side)]
    with tempfile.TemporaryDirectory() as folder:
        tokenizer.save_pretrained(folder)
        for path in sorted(Path(folder).iterdir()):
            content = bytes_in(path)
            if path.name == "tokenizer_config.json":
                config = json.loads(content)
                content = repr([(name, config[name]) for name in sorted(config) if name not in _LAST_USE]).encode()
            total.append((path.name, sha256(content)))
    return sha256(repr(total).encode())


def _speak(tokenizer: Any, languages: tuple[str, str] | None) -> None:
    if languages is not None and hasattr(tokenizer, "src_lang"):
        tokenizer.src_lang, tokenizer.tgt_lang = languages
