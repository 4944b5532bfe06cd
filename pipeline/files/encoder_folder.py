"""Find the encoder in a folder of sentence-transformers, which may be a subfolder such as 0_Transformer"""

from pipeline.files import storage

MODULES = "modules.json"
MOST_BYTES = 1 << 24


def encoder_folder(location: str) -> str:
    """Return the subfolder that modules.json names for the encoder; `location` if there is no such file or subfolder.

    A file that cannot be read is left to those who read all of its steps.
    """
    if MODULES not in storage.children(location):
        return location
    try:
        first = storage.parse_json(storage.read_at_most(storage.join(location, MODULES), MOST_BYTES))[0]
        kind, path = str(first["type"]), str(first["path"])
    except (OSError, ValueError, KeyError, IndexError, TypeError):
        return location
    inside = kind.endswith(".Transformer") and path not in ("", ".") and not storage.escapes_folder(path)
    return storage.join(location, path) if inside else location


def lowercases_first(location: str) -> bool:
    """Return whether a folder of sentence-transformers lower-cases texts before they reach the tokenizer."""
    if MODULES not in storage.children(location):
        return False
    settings = storage.read_object(storage.join(encoder_folder(location), "sentence_bert_config.json"))
    return settings is not None and settings.get("do_lower_case") is True
