"""Settings of sentence-transformers' modules that change vectors and are not supported: each is refused in one line."""

from collections.abc import Mapping
from typing import Any

from pipeline.errors import CheckpointError, shown

TRANSFORMER: dict[str, tuple[Any, ...]] = {
    "transformer_task": ("feature-extraction",),
    "module_output_name": ("token_embeddings",),
    "modality_config": ({"text": {"method": "forward", "method_output_name": "last_hidden_state"}},),
    "processing_kwargs": (),
    "query_expansion": (),
    "query_length": (),
    "document_length": (),
}
"""Setting of a Transformer -> supported values; one that is missing, null or empty is supported, too."""
VECTOR: dict[str, tuple[Any, ...]] = dict.fromkeys(("module_input_name", "module_output_name"), ("sentence_embedding",))
"""Settings of Dense and Normalize."""
MODEL: dict[str, tuple[Any, ...]] = {"model_type": ("SentenceTransformer",)}
"""Settings of a whole folder."""
ARGUMENTS = (
    "model_args", "model_kwargs", "tokenizer_args", "processor_kwargs", "config_args", "config_kwargs",
)  # fmt: skip
"""Settings of a Transformer that hold arguments for loading it."""
HARMLESS = frozenset(
    ("attn_implementation", "device_map", "dtype", "low_cpu_mem_usage", "torch_dtype", "trust_remote_code", "use_fast")
)
"""Arguments that do not change vectors except for rounding."""
PACKAGES = ("sentence_transformers.", "bertstream.")


def require_supported(file: str, found: Mapping[str, Any], supported: Mapping[str, tuple[Any, ...]]) -> None:
    """Raise CheckpointError if a setting in `file` has a value that is not supported."""
    for name, values in supported.items():
        value = found.get(name)
        if value not in (None, "", [], {}, *values):
            others = f" ({', '.join(map(shown, values))})" if values else ""
            raise CheckpointError(
                f"{file} has {name} {shown(value)}, which is not supported: choose a model without it{others}"
            )


def require_supported_arguments(file: str, found: Mapping[str, Any]) -> None:
    """Raise CheckpointError for an argument for loading the encoder that would change vectors."""
    for name in ARGUMENTS:
        require_supported(
            f"{file}: {name}", found.get(name) or {}, dict.fromkeys(set(found.get(name) or {}) - HARMLESS, ())
        )


def require_known_package(file: str, kind: str) -> None:
    """Raise CheckpointError for a step with a class of another package, which may do anything."""
    if not kind.startswith(PACKAGES):
        raise CheckpointError(
            f"{file} has a step of the class {shown(kind)}, which is not one of sentence-transformers: choose a model "
            "without code of its own"
        )
