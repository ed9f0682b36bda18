"""Reading a settings file, which is YAML."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dpnlp.checks import BadInput
from dpnlp.foreign import parse_yaml, text_in


def read_settings(file: str) -> Mapping[Any, Any]:
    """The settings in a YAML file, nested as they stand there."""
    if Path(file).suffix.lower() not in (".yaml", ".yml"):
        raise BadInput(f"{file}: unexpected argument; a settings file ends in .yaml or .yml, a flag begins with --.")
    try:
        text = text_in(file)
    except OSError as error:
        raise BadInput(f"{file}: it cannot be read ({error.strerror}); give the path of a YAML file.") from None
    except UnicodeDecodeError:
        raise BadInput(f"{file}: it is not valid YAML; correct it.") from None
    return parse_yaml(text, file)
