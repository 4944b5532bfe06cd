"""Digest of a folder that this package wrote."""

from pipeline.errors import CheckpointError
from pipeline.files import storage


def fingerprint(checkpoint: str) -> str:
    """Return a digest (16 characters) of a model's folder. Raises CheckpointError if the folder has no manifest."""
    path = storage.join(checkpoint, storage.MANIFEST)
    if not storage.exists(path):
        folders = (storage.join(checkpoint, name) for name in ("model", "export"))
        inside = next((folder for folder in folders if storage.exists(storage.join(folder, storage.MANIFEST))), None)
        wanted = (
            "give a model that fine-tuning wrote, such as output/finetune/NAME/model; a run's export; "
            "or a published model, as a folder or hf://OWNER/NAME"
        )
        instead = f"{inside} has one" if inside else wanted
        raise CheckpointError(f"checkpoint {checkpoint} has no {storage.MANIFEST}: {instead}")
    return storage.sha256(path)[:16]
