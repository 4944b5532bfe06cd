"""Prompts of a model on disk, which are put before its queries and documents."""

from collections.abc import Mapping

from pipeline.errors import CheckpointError, PipelineError
from pipeline.files import storage
from pipeline.files.encoder_folder import MODULES
from pipeline.saved.files import json_fields
from pipeline.saved.pooling import PROMPTS, prompts_of
from pipeline.saved.run import run_of_checkpoint

OF_QUERIES, OF_DOCUMENTS = ("query",), ("document", "passage", "corpus")
"""Names of prompts for queries and for documents, as in sentence-transformers. The first name that exists is used."""


def prompts_in(location: str) -> tuple[str | None, str | None]:
    """Return a model's prompts for queries and for documents; None for a prompt that it does not have.

    The prompts of a run's checkpoint are those of the run. Raises CheckpointError if the file with the prompts, or the
    run's settings, cannot be read.
    """
    try:
        written = storage.exists(storage.join(location, PROMPTS)) or storage.exists(storage.join(location, MODULES))
        if written:
            found = json_fields(location, PROMPTS).get("prompts")
        else:
            origin = run_of_checkpoint(location)
            found = prompts_of(origin.settings) if origin else {}
    except PipelineError:
        raise
    except Exception as error:  # file systems and web clients raise their own exception types
        raise CheckpointError(f"{location} cannot be read: {storage.first_line(error)}") from error
    return usual_prompts(found if isinstance(found, Mapping) else {})


def usual_prompts(prompts: Mapping[str, str]) -> tuple[str | None, str | None]:
    """Return the prompts for queries and for documents among prompts by name; None for a prompt that is missing."""
    query, document = (
        next((str(prompts[name]) for name in names if prompts.get(name)), None) for names in (OF_QUERIES, OF_DOCUMENTS)
    )
    return query, document
