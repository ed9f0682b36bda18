"""Reading a settings file: YAML, as one would expect it, but a key that stands twice is an error and not a choice."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from dpnlp.checks import BadInput


def read_settings(file: str) -> Mapping[Any, Any]:
    """The settings in a YAML file, nested as they stand there."""
    if Path(file).suffix.lower() not in (".yaml", ".yml"):
        raise BadInput(f"{file}: unexpected argument; a settings file ends in .yaml or .yml, a flag begins with --.")
    try:
        root = yaml.compose(Path(file).read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
    except OSError as error:
        raise BadInput(f"{file}: it cannot be read ({error.strerror}); give the path of a YAML file.") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        mark = getattr(error, "problem_mark", None)
        place = f" near line {mark.line + 1}" if mark else ""
        raise BadInput(f"{file}: it is not valid YAML; correct it{place}.") from None
    for key in _repeated_keys(root):
        raise BadInput(f"{file}: {key.value} stands there again in line {key.start_mark.line + 1}; keep one of them.")
    entries = yaml.SafeLoader("").construct_document(root) if root else {}
    if not isinstance(entries, Mapping):
        raise BadInput(f"{file}: it must hold settings as key: value, one to a line.")
    return entries


def _repeated_keys(node: Any) -> Iterator[Any]:
    """The keys that stand a second time in one mapping, anywhere below the node."""
    if isinstance(node, yaml.MappingNode):
        seen = set()
        for key, value in node.value:
            if key.value in seen:
                yield key
            seen.add(key.value)
            yield from _repeated_keys(value)
    elif isinstance(node, yaml.SequenceNode):
        for entry in node.value:
            yield from _repeated_keys(entry)
