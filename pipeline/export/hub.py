"""Upload an export to the Hugging Face hub, all files in one commit."""

import importlib.util
import json
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.errors import CheckpointError, ConfigError
from pipeline.export.markdown import public_location
from pipeline.files import storage
from pipeline.files.local_files import scratch_folder

if TYPE_CHECKING:
    from huggingface_hub import HfApi

LOGIN = "set HF_TOKEN to a token with write access (huggingface.co/settings/tokens), or run: hf auth login"
REFUSALS = {
    401: f"the hub does not know the token: {LOGIN}",
    403: f"the token has no write access to this repository: use another token, or a repository of your own; {LOGIN}",
}
"""HTTP status -> message."""


def require_hub(repository: str) -> None:
    """Raise ConfigError if huggingface_hub is not installed or finds no token."""
    if importlib.util.find_spec("huggingface_hub") is None:
        raise ConfigError(f"push_to_hub ({repository}) needs huggingface_hub: pip install 'bertstream[hub]'")
    from huggingface_hub import get_token

    if get_token() is None:
        raise ConfigError(f"push_to_hub ({repository}) needs a token: {LOGIN}")


def push(target: str, repository: str, private: bool) -> str:
    """Upload a published folder to the repository OWNER/NAME and return the repository's URL.

    A missing repository is created; `private` applies only to a new repository. Raises CheckpointError if the hub
    refuses the upload or cannot be reached. The message never contains the token.
    """
    from huggingface_hub import CommitOperationAdd, HfApi
    from huggingface_hub.utils import disable_progress_bars

    disable_progress_bars()
    api = HfApi()
    with scratch_folder("push") as folder:
        files = fetch(target, folder)
        try:
            url = api.create_repo(repository, private=private or None, exist_ok=True)
            operations = [CommitOperationAdd(path_in_repo=name, path_or_fileobj=folder / name) for name in files]
            api.create_commit(repository, operations, commit_message="Upload a model exported by bertstream")
        except Exception as error:  # the library raises its own errors, its web client's errors, and ValueError
            raise CheckpointError(
                f"push_to_hub ({repository}): {reason(error, api)}; the export is in {target}"
            ) from error
    return str(url)


def fetch(target: str, folder: Path) -> list[str]:
    """Copy a published folder to a local folder and return the names of the files.

    The copied manifest.json names the checkpoint without its parent folders.
    """
    manifest = storage.read_json(storage.join(target, storage.MANIFEST))
    for name in manifest["files"]:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        storage.copy_file(storage.join(target, name), f"{folder}/{name}")
    public = {key: public_location(value) if key == "checkpoint" else value for key, value in manifest.items()}
    (folder / storage.MANIFEST).write_text(
        json.dumps(public, indent=1, ensure_ascii=False, sort_keys=True) + "\n", "utf-8"
    )
    return [*manifest["files"], storage.MANIFEST]


def reason(error: Exception, api: "HfApi") -> str:
    """Return the reason why an upload failed, in one line without the token."""
    from huggingface_hub import get_token

    status = getattr(getattr(error, "response", None), "status_code", None)
    if status in REFUSALS:
        return REFUSALS[status]
    text = storage.first_line(error) if status else f"{api.endpoint} cannot be reached ({storage.first_line(error)})"
    token = get_token()
    return text.replace(token, "***") if token else text
