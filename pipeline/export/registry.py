"""Log a model to its MLflow run as code and files (never pickled), check the logged model, and register it."""

import importlib.metadata
import os
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import url2pathname

import mlflow
import pandas as pd
import pyarrow as pa
import torch
from mlflow.models import Model, ModelSignature
from mlflow.models.model import ModelInfo
from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository
from mlflow.tracking import MlflowClient
from mlflow.types import ColSpec, DataType, ParamSchema, ParamSpec, Schema
from mlflow.types.schema import Array, Map

from pipeline.errors import CheckpointError, ConfigError
from pipeline.export.inference import embeddings, encode, fill_masks, read_tokenizer
from pipeline.export.onnx_graphs import quiet as without_warnings
from pipeline.export.probe import TOLERANCE, difference
from pipeline.export.trained import Trained
from pipeline.files import storage
from pipeline.fine_tuned.answers import answer_items, answer_schema, items_of
from pipeline.fine_tuned.model import open_tuned
from pipeline.fine_tuned.published import PUBLISHED
from pipeline.tasks.task import Task
from pipeline.text.vocabulary_loading import load_vocabulary
from pipeline.tracking.runs import has_run, is_missing, open_client, silence_mlflow

CODE, TASK_CODE = Path(__file__).with_name("served.py"), Path(__file__).with_name("served_task.py")
SIGNATURE = ModelSignature(
    inputs=Schema([ColSpec("string", "text")]),
    params=ParamSchema([ParamSpec("task", "string", "fill-mask"), ParamSpec("top", "long", 5)]),
)
REQUIRED = ("bertstream", "mlflow", "numpy", "pandas", "pyarrow", "safetensors", "tokenizers", "torch")
REQUIRED_FOR_TASKS = (*REQUIRED, "scikit-learn", "scipy")
TRACKING, REGISTRY = "MLFLOW_TRACKING_URI", "MLFLOW_REGISTRY_URI"
USE = """Where bertstream is installed:

```python
import mlflow, pandas

mlflow.set_tracking_uri("sqlite:///output/mlflow.db")  # or your server's URI
model = mlflow.pyfunc.load_model("models:/NAME/VERSION")
texts = pandas.DataFrame({"text": ["a text with a [MASK] in it"]})
model.predict(texts)  # for each text, for each of its [MASK]s: the five most likely entries
model.predict(texts, params={"task": "fill-mask", "top": 20})
model.predict(texts, params={"task": "embeddings"})  # for each text: the mean of its last hidden states
```"""


def require_run(uri: str, run_id: str) -> None:
    """Raise ConfigError if MLflow at `uri` does not work or does not have the run."""
    silence_mlflow()
    os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
    hint = "name the run's MLflow with mlflow_uri"
    if is_missing(uri):
        raise ConfigError(f"mlflow_uri ({uri}) names a file that does not exist; {hint}")
    try:
        known = has_run(open_client(uri), run_id)
    except Exception as error:  # MLflow raises SQLAlchemy's, requests' and its own errors; all concern this URI
        raise ConfigError(f"mlflow_uri ({uri}) does not work: {storage.first_line(error)}; {hint}") from error
    if not known:
        raise ConfigError(f"mlflow_uri ({uri}) does not know the run {run_id}; {hint}")


def log(published: Path, trained: Trained, uri: str, run_id: str, step: int) -> str:
    """Log a published folder's model to a run, load it back, and return its models:/ URI.

    If the loaded model's answers differ from the checkpoint's, the logged model is deleted, and CheckpointError is
    raised.
    """
    with at(uri), without_warnings():
        logged = _log_code(CODE, str(published), run_id, "model", step, SIGNATURE, REQUIRED)
        worst = largest_difference(mlflow.pyfunc.load_model(logged.model_uri), published, trained)
        if not worst <= TOLERANCE:
            MlflowClient().delete_logged_model(logged.model_id)
            raise CheckpointError(
                f"export {logged.model_uri}: answers differ from the checkpoint's by {worst:.2g} of the largest, more "
                f"than {TOLERANCE}"
            )
    return logged.model_uri


def _log_code(
    code: Path, folder: str, run_id: str, name: str, step: int, signature: ModelSignature, required: Sequence[str]
) -> ModelInfo:
    """Log a model to a run of the current MLflow: a code file, and the folder that this code loads as "model"."""
    client = MlflowClient()
    # Model.log alone would create the model in the default experiment, and the model's files in the current folder.
    made = client.create_logged_model(client.get_run(run_id).info.experiment_id, name=name, source_run_id=run_id)
    return Model.log(
        artifact_path=None,
        model_id=made.model_id,
        flavor=mlflow.pyfunc,
        run_id=run_id,
        step=step,
        python_model=str(code),
        artifacts={"model": folder},
        signature=signature,
        pip_requirements=_requirements(required),
    )


def log_tuned(folder: str, asked: Mapping[str, Sequence[str | None]], uri: str, run_id: str, name: str) -> str:
    """Log a fine-tuned model's folder to a run, load it back, and return its models:/ URI.

    `asked` has test inputs by column. If the loaded model's answers to these inputs differ from the answers of the
    model in `folder`, the logged model is deleted, and CheckpointError is raised.
    """
    os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
    tuned = open_tuned(folder)
    ours = answer_items(
        tuned, items_of(tuned, asked), torch.device("cpu"), torch.autocast("cpu", enabled=False)
    ).to_pylist()
    with at(uri), without_warnings():
        logged = _log_code(TASK_CODE, folder, run_id, name, 0, _task_signature(tuned.about.task), REQUIRED_FOR_TASKS)
        theirs = mlflow.pyfunc.load_model(logged.model_uri).predict(pd.DataFrame(dict(asked), dtype=object))
        if not alike(ours, theirs):
            MlflowClient().delete_logged_model(logged.model_id)
            raise CheckpointError(f"model {logged.model_uri}: its answers differ from those of {folder}")
    return logged.model_uri


def _task_signature(task: Task) -> ModelSignature:
    """Return a task's input and output columns for MLflow; the column `second` of text pairs is optional."""
    form = PUBLISHED[task.kind].answers
    required = [ColSpec("string", name) for name in form.columns]
    return ModelSignature(
        inputs=Schema([*required, *(ColSpec("string", name, required=False) for name in form.optional)]),
        outputs=Schema(
            [ColSpec(_mlflow_type(field.type), field.name, required=False) for field in answer_schema(task)]
        ),
    )


def _mlflow_type(kind: pa.DataType) -> str | Array | Map:
    """Return MLflow's type for a column of answers."""
    if pa.types.is_struct(kind):
        return Map(DataType.double)
    return (
        Array(DataType.string)
        if pa.types.is_list(kind)
        else {pa.string(): "string", pa.float64(): "double", pa.int64(): "long"}[kind]
    )


def alike(ours: Any, theirs: Any) -> bool:
    """Return whether answers are equal; floating-point numbers may differ by TOLERANCE."""
    if isinstance(ours, dict):
        return (
            isinstance(theirs, dict)
            and ours.keys() == theirs.keys()
            and all(alike(ours[key], theirs[key]) for key in ours)
        )
    if isinstance(ours, list):
        return isinstance(theirs, list) and len(ours) == len(theirs) and all(map(alike, ours, theirs))
    return (
        abs(ours - theirs) <= TOLERANCE * max(1.0, abs(ours))
        if isinstance(ours, float) and isinstance(theirs, float)
        else ours == theirs
    )


def register(model_uri: str, name: str, uri: str, tags: dict[str, str] | None = None) -> str:
    """Register a logged model as the newest version of `name`, and return the version's models:/ URI.

    Raises ConfigError if MLflow refuses the name.
    """
    with at(uri), without_warnings():
        try:
            version = mlflow.register_model(model_uri, name, tags=tags)
        except mlflow.MlflowException as error:
            raise ConfigError(f"register ({name}): {storage.first_line(error)}") from error
    return f"models:/{name}/{version.version}"


def folder_of(model_uri: str, uri: str) -> str:
    """Return the location of the files of a model that this project logged to MLflow.

    `model_uri` is models:/NAME/VERSION or models:/NAME@ALIAS, and `uri` is the MLflow that has it. Raises ConfigError
    if MLflow does not have the model, if the model has no such files, or if only MLflow's server can read them.
    """
    if is_missing(uri):
        raise ConfigError(f"mlflow_uri ({uri}) names a file that does not exist; name the model's MLflow with it")
    try:
        open_client(uri)  # finds the artifacts of a moved store
        with at(uri), without_warnings():
            info = mlflow.models.get_model_info(model_uri)
            repository = get_artifact_repository(model_uri)
    except Exception as error:  # MLflow raises SQLAlchemy's, requests' and its own errors; all concern this model
        raise ConfigError(f"checkpoint ({model_uri}) is not in {uri}: {storage.first_line(error)}") from error
    inside = info.flavors.get("python_function", {}).get("artifacts", {}).get("model", {}).get("path")
    kept = getattr(repository, "repo", repository).artifact_uri
    if inside is None:
        raise ConfigError(f"checkpoint ({model_uri}) has no files of bertstream: give a model that it registered")
    if kept.startswith("mlflow-artifacts:"):
        raise ConfigError(
            f"checkpoint ({model_uri}) is readable through MLflow's server alone: download it (mlflow artifacts "
            f"download --artifact-uri {model_uri}), and give the folder {inside} of it"
        )
    return storage.join(url2pathname(kept.removeprefix("file://")) if kept.startswith("file://") else kept, inside)


def largest_difference(served: mlflow.pyfunc.PyFuncModel, published: Path, trained: Trained) -> float:
    """Return the largest difference between a served model's answers and the checkpoint's.

    The difference is relative to the largest number in the answers, or to 1 if that number is below 1.
    """
    vocabulary = load_vocabulary(str(published), None)
    words = [vocabulary.tokens[i] for i in vocabulary.ordinary_ids[:: max(1, len(vocabulary.ordinary_ids) // 8)]]
    mask = vocabulary.tokens[vocabulary.mask_id]
    texts = [f"{words[0]} {mask} {words[1]} {mask}", mask, " ".join([*words, mask])]
    batch = encode(texts, read_tokenizer(str(published), trained.model.maximum_positions), vocabulary.mask_id)
    inputs = pd.DataFrame({"text": texts})
    vectors = torch.tensor(served.predict(inputs, params={"task": "embeddings"}))
    theirs = torch.tensor(_shares(served.predict(inputs, params={"task": "fill-mask", "top": 3})))
    ours = torch.tensor(_shares(fill_masks(trained, batch, vocabulary, 3)))
    return torch.tensor([difference(vectors, embeddings(trained, batch)), difference(theirs, ours)]).max().item()


def _shares(guesses: list[list[list[dict[str, Any]]]]) -> list[float]:
    """Return the probabilities of all guesses, in order."""
    return [guess["probability"] for text in guesses for blank in text for guess in blank]


def _requirements(required: Sequence[str]) -> list[str]:
    """Return pip requirements with the installed versions, without local labels such as +cpu.

    Packages that are not installed are left out.
    """
    versions = {name: importlib.metadata.version(name).split("+")[0] for name in required if _has_distribution(name)}
    return [f"{name}=={version}" for name, version in versions.items()]


def _has_distribution(name: str) -> bool:
    """Return whether a package is installed. bertstream may be missing, because it also runs from its source tree."""
    try:
        importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


@contextmanager
def at(uri: str) -> Generator[None]:
    """Set MLflow's global tracking and registry URIs while the context is open. Model.log uses only the global URIs."""
    # MLflow also writes both URIs into environment variables, for child processes. At the end, the URIs and these
    # variables are restored.
    before = os.environ.get(TRACKING), os.environ.get(REGISTRY)
    mlflow.set_tracking_uri(uri)
    mlflow.set_registry_uri(uri)
    try:
        yield
    finally:
        mlflow.set_tracking_uri(before[0])
        mlflow.set_registry_uri(before[1])
        if before[1] is None:
            os.environ.pop(REGISTRY, None)
