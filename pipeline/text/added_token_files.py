"""Read the added tokens of folders without tokenizer.json, which older versions of transformers wrote."""

from typing import Any

from pipeline.errors import DataError, shown
from pipeline.files import storage
from pipeline.text.added_tokens import AddedToken

ADDED, CONFIG, SPECIAL = "added_tokens.json", "tokenizer_config.json", "special_tokens_map.json"
MOST_BYTES = 1 << 24
REMEDY = 'write a tokenizer.json with AutoTokenizer.from_pretrained("FOLDER").save_pretrained("FOLDER") of transformers'


def added_tokens_beside(file: str, entries: tuple[str, ...]) -> tuple[AddedToken, ...]:
    """Return the added tokens in the order of their ids, from the files next to a vocabulary file with these entries.

    The files are tokenizer_config.json, which has all settings of each token, or added_tokens.json. Raises DataError if
    a file cannot be read, and if an id is not that of the entry or does not follow the entries without a gap.
    """
    folder = file.rpartition("/")[0]
    described = _object(folder, CONFIG).get("added_tokens_decoder") or {}
    ids = _object(folder, ADDED)
    try:
        tokens = {int(id): _described(token) for id, token in described.items()}
        special = set(_special_contents(_object(folder, SPECIAL)))
        for content, id in ids.items():
            marked = content in special
            tokens.setdefault(int(id), AddedToken(content=content, normalized=not marked, special=marked))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"{folder}: {ADDED} or {CONFIG} does not list added tokens with their ids "
            f"({storage.first_line(error)}): {REMEDY}"
        ) from error
    size = len(entries)
    for id, token in sorted(tokens.items()):
        if id < len(entries) and entries[id] == token.content:
            continue
        if id != size or token.content in entries:
            raise DataError(
                f"{folder}: added token {shown(token.content)} has id {id}, but {size} is the next id after the "
                f"entries of {file} and the added tokens before it: {REMEDY}"
            )
        size += 1
    return tuple(tokens[id] for id in sorted(tokens))


def _object(folder: str, name: str) -> dict[str, Any]:
    """Return the object of a JSON file; empty if there is no such file."""
    path = storage.join(folder, name)
    try:
        content = storage.parse_json(storage.read_at_most(path, MOST_BYTES))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read ({storage.first_line(error)}): {REMEDY}") from error
    if not isinstance(content, dict):
        raise DataError(f"{path} is a {type(content).__name__} where a JSON object is needed: {REMEDY}")
    return content


def _described(token: dict[str, Any]) -> AddedToken:
    """Return a token of added_tokens_decoder."""
    names = ("single_word", "lstrip", "rstrip", "normalized", "special")
    return AddedToken(content=str(token["content"]), **{name: bool(token.get(name, False)) for name in names})


def _special_contents(names: dict[str, Any]) -> list[str]:
    """Return the special tokens of a special_tokens_map.json."""
    values = [value for found in names.values() for value in (found if isinstance(found, list) else [found])]
    return [value["content"] if isinstance(value, dict) else str(value) for value in values]
