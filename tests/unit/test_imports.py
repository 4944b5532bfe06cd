"""Who may import whom, from the ground up, read from the source."""

import ast
import functools
import graphlib
import json
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
FILES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in sorted((ROOT / "pipeline").rglob("*.py"))
}
JOBS = sorted((ROOT / "jobs").glob("[!_]*.py"))

GROUND = {
    *("columns", "durations", "errors", "config", "environment", "local_files", "locations", "locks", "memory"),
    *("bigbird_presets", "longformer_presets", "modernbert_presets", "presets"),
    *("encoder_folder", "reporting", "retries", "standard_output", "stopping", "storage", "wire_format"),
}
MODEL_SIDE = GROUND | {"batch", "host_copies", "text.schema", "model"}
TRAIN_SIDE = MODEL_SIDE | {
    *("ray_private", "shared_output", "tensor_files"),
    *("text", "corpus", "tasks", "objectives", "minimal_pairs", "cluster", "train"),
}
ABOVE = TRAIN_SIDE | {"finetune", "grid", "predict", "export", "plan", "plan_here", "show"}
MAY_IMPORT = {
    "columns": set(),
    "durations": set(),
    "errors": set(),
    "environment": set(),
    "memory": set(),
    "config": {"errors", "config", "locations"},
    "presets": {"errors", "config", "bigbird_presets", "longformer_presets", "modernbert_presets"},
    "bigbird_presets": {"errors", "config"},
    "longformer_presets": {"errors", "config"},
    "modernbert_presets": {"errors", "config"},
    "ray_private": set(),
    "ray_worker": set(),
    "local_files": set(),
    "wire_format": set(),
    "locations": {"errors", "local_files"},
    "stopping": set(),
    "standard_output": {"errors"},
    "on_ray": GROUND,
    "retries": {"errors"},
    "storage": {"errors", "local_files", "locations", "retries"},
    "encoder_folder": {"errors", "storage"},
    "locks": {"errors", "local_files", "locations", "storage"},
    "cluster": GROUND | {"on_ray", "ray_private"},
    "text": GROUND - {"config", "presets"} | {"config.data", "text"},
    "corpus": GROUND - {"presets"} | {"ray_private", "shared_output", "tensor_files", "text", "corpus"},
    "tasks": GROUND | {"text", "tasks"},
    "batch": GROUND | {"text.masked_rows"},
    "host_copies": set(),
    "tensor_files": set(),
    "model": MODEL_SIDE,
    "objectives": MODEL_SIDE | {"objectives"},
    "retrieval": GROUND | {"tasks", "retrieval"},
    "minimal_pairs": MODEL_SIDE | {"text", "objectives", "minimal_pairs"},
    "train": TRAIN_SIDE,
    "export": ABOVE,
    "predict": ABOVE | {"api", "embed.recipe", "on_ray", "retrieval"},
    "grid": ABOVE | {"finetune"},
    "plan": ABOVE,
    "plan_here": ABOVE,
    "pictures": ABOVE | {"api", "pictures"},
    "show": ABOVE | {"api", "pictures"},
    "finetune": ABOVE | {"finetune"},
    "api": ABOVE | {"embed.recipe"},
    "embed": ABOVE | {"api", "embed"},
    "adapt": ABOVE | {"adapt", "api", "embed", "retrieval"},
    "command_line": {"config", "exit_codes"},
    "exit_codes": GROUND,
    "reporting": {"config", "durations"},
    "shared_output": GROUND,
    "bench": (ABOVE - {"show"}) | {"ablation", "api", "bench", "embed"},
    "ablation": ABOVE | {"ablation"},
    "serve": ABOVE | {"api", "embed.model", "serve"},
    "inputs": ABOVE | {"adapt", "embed", "grid"},
    "workflows": ABOVE | {"ablation", "adapt", "bench", "embed", "pictures", "serve", "workflows"},
}
"""Part of the package -> the parts it may import; a new part needs a place here."""

MAY_RAY = (
    *(
        "corpus",
        "cluster",
        "ray_private",
        "grid",
        "predict.distributed",
        "embed.distributed",
        "serve.application",
        "serve.deployments",
        "bench",
        "workflows.pretrain",
        "workflows.serve",
    ),
    *(
        "train.worker",
        "train.probe",
        "train.dealing",
        "train.launch",
        "train.process_group",
        "train.run_tracking",
        "train.job",
        "train.points",
        "ablation.trainings",
    ),
)
MAY_MLFLOW = (
    "train.tracking",
    "train.tracker",
    "grid",
    "ablation.runs",
    "export.registry",
    "export.served",
    "export.served_task",
)
TORCH_FREE = (*GROUND, "text", "corpus", "tasks", "retrieval", "cluster", "inputs")


def imports(tree: ast.AST) -> Iterator[str]:
    """Absolute names of all that is imported anywhere in it; a module of ours is named in full."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                is_module = full in FILES or f"{full}.__init__" in FILES
                yield full if is_module else str(node.module)


@functools.cache
def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def within(name: str, parts: tuple[str, ...] | set[str]) -> bool:
    """Whether a module, named without `pipeline.`, is one of these or lies below one of them."""
    return any(name == part or name.startswith(f"{part}.") for part in parts)


def short(module: str) -> str:
    return module.removeprefix("pipeline.")


def importers(package: str) -> list[str]:
    """Our modules that import a package anywhere."""
    return [
        short(module) for module, path in FILES.items() if any(within(name, {package}) for name in imports(parse(path)))
    ]


def test_imports_are_found_in_every_form() -> None:
    source = (
        "import a.b, c as d\nfrom pipeline import storage\nfrom pipeline.errors import DataError\ndef f():\n    from "
        "ray.data import x, y\n"
    )
    assert list(imports(ast.parse(source))) == [
        "a.b",
        "c",
        "pipeline.files.storage",
        "pipeline.errors",
        "ray.data",
        "ray.data",
    ]


def test_every_part_has_its_place() -> None:
    parts = {short(module).split(".")[0] for module in FILES} - {"__init__"}
    assert parts <= set(MAY_IMPORT), "a new part of the package: say here whom it may import"


def test_a_module_imports_only_what_lies_below_it() -> None:
    wrong = [
        f"{short(module)} imports {short(name)}"
        for module, path in FILES.items()
        if not module.endswith("__init__")
        for name in imports(parse(path))
        if within(name, {"pipeline"}) and not within(short(name), MAY_IMPORT[short(module).split(".")[0]])
    ]
    assert wrong == []


def test_no_module_imports_itself_in_a_circle() -> None:
    graph = {module: [name for name in imports(parse(path)) if name in FILES] for module, path in FILES.items()}
    assert len(list(graphlib.TopologicalSorter(graph).static_order())) >= len(FILES)


def test_corpus_and_model_do_not_know_each_other() -> None:
    for module, path in FILES.items():
        names = [short(name) for name in imports(parse(path))]
        if within(short(module), {"corpus"}):
            assert not [name for name in names if within(name, {"model", "objectives", "batch"})], module
        if within(short(module), {"model", "objectives"}):
            assert not [name for name in names if within(name, {"corpus"})], module


def test_readers_of_a_corpus_do_not_import_what_prepares_one() -> None:
    assert importers("pipeline.corpus.prepare") == ["bench.benches", "train.run_data", "workflows.prepare"]


def test_torch_appears_first_in_batch() -> None:
    users = importers("torch")
    assert [name for name in users if within(name, TORCH_FREE)] == []
    assert "batch" in users


def test_ray_appears_only_where_clusters_are_used() -> None:
    users = importers("ray")
    assert [name for name in users if not within(name, MAY_RAY)] == []
    assert "corpus.order" not in users and "corpus.stream" in users


PRIVATE_TO_RAY = re.compile(
    r"\bray(\.\w+)*\.(_\w+|v2)\b|_global_node|_logical_plan|_topology|_internal\b|class_cache|_Torch"
)


def test_private_names_of_ray_appear_only_in_their_module() -> None:
    sources = FILES | {f"jobs.{path.stem}": path for path in JOBS}
    users = [short(module) for module, path in sources.items() if PRIVATE_TO_RAY.search(path.read_text())]
    assert users == ["ray_private"]


def test_mlflow_appears_only_in_tracking() -> None:
    users = importers("mlflow")
    assert [name for name in users if not within(name, MAY_MLFLOW)] == []
    assert "train.tracking" in users


def test_the_time_of_day_is_read_for_points_and_benchmarks_alone() -> None:
    """A clock that is set anew must change no decision: all else counts steps or asks the monotonic clock."""
    readers = [
        short(module)
        for module, path in FILES.items()
        if any(
            words in path.read_text()
            for words in ("time.time(", "time.time_ns(", "datetime.now", "datetime.today", "utcnow")
        )
    ]
    assert sorted(name for name in readers if not within(name, {"bench"})) == ["grid.runs", "train.tracker"]


NAMED_BY_TABLES = {
    "tasks.metrics": {"micro_f1", "subset_accuracy", "mean_absolute_error", "auc", "average_precision"},
}
"""Functions that no other module names, but a table of their own module offers by their names."""


def test_functions_without_an_underscore_are_used_by_other_modules() -> None:
    """A module's interface is what others use; all else in it begins with an underscore."""
    sources = [path for folder in ("pipeline", "jobs", "tests", "cluster") for path in (ROOT / folder).rglob("*.py")]
    words = Counter(word for path in sources for word in set(re.findall(r"\w+", path.read_text())))
    unused = {}
    for module, path in FILES.items():
        public = {node.name for node in parse(path).body if isinstance(node, ast.FunctionDef) and node.name[0] != "_"}
        unused[short(module)] = {name for name in public if words[name] == 1} - NAMED_BY_TABLES.get(
            short(module), set()
        )
    assert {module: names for module, names in unused.items() if names} == {}


def top_imports(module: str) -> list[str]:
    """Names that one of our modules imports when it is imported itself."""
    body = parse(FILES[module]).body
    return [name for node in body if isinstance(node, ast.Import | ast.ImportFrom) for name in imports(node)]


def packages_after(module: str) -> set[str]:
    """Other people's packages that one of our modules imports when it is imported, by itself and by ours."""
    found, coming = set(), [module]
    while coming:
        name = coming.pop()
        if name not in found:
            found.add(name)
            coming += top_imports(name) if name in FILES else []
    return {name.split(".")[0] for name in found} - {"pipeline"}


def test_nothing_needs_transformers_to_be_imported() -> None:
    heavy = {"transformers", "onnx", "onnxscript", "onnxruntime"}
    assert [module for module in FILES if any(within(name, heavy) for name in top_imports(module))] == []


def test_every_package_is_installed() -> None:
    named = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    folders = {module.removesuffix(".__init__") for module in FILES if module.endswith("__init__")}
    assert sorted(named) == sorted(folders | {"pipeline.jobs"})


def test_every_init_is_empty() -> None:
    inits = [path for module, path in FILES.items() if module.endswith("__init__")]
    assert inits and [path for path in inits if path.read_text() != ""] == []
    assert {path.parent for path in FILES.values()} == {path.parent for path in inits}


def modules_of(*parts: str) -> list[str]:
    """Our modules in these parts of the package."""
    found = [module for module in FILES if within(short(module), set(parts))]
    assert len(found) >= len(parts)
    return found


HEAVY = ["ray", "mlflow", "transformers"]
STEPS: list[tuple[list[str], list[str]]] = [
    # Python's door, and what vectors do not need
    (["pipeline.api"], [*HEAVY, "torch._dynamo", "sklearn", "scipy", "matplotlib"]),
    # the model and its objectives; fine-tuning and answering on one device
    ([*modules_of("batch", "model", "objectives"), "pipeline.train.step", "pipeline.optim.build"], HEAVY),
    (modules_of("finetune", "predict.model", "export.inference"), HEAVY),
    # a run starts without what most runs do not use: torch's compiler and the clouds' libraries take seconds
    (
        ["pipeline.train.worker", "pipeline.workflows.pretrain"],
        ["torch._dynamo", "smart_open", "boto3", "transformers", "matplotlib"],
    ),
    # fine-tuning and ablations draw only at their end
    (["pipeline.grid.tune", "pipeline.workflows.finetune", "pipeline.workflows.ablate"], ["matplotlib"]),
]
"""Modules, imported one step after the other, and packages that are not loaded after the step."""


def loaded_after(steps: list[tuple[list[str], list[str]]]) -> list[list[str]]:
    """Which packages of each step a fresh interpreter has loaded after importing the step's modules."""
    code = (
        f"import importlib, json, sys\nfor modules, asked in {steps!r}:\n"
        "    for module in modules:\n        importlib.import_module(module)\n"
        "    print(json.dumps([name for name in asked if name in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_modules_load_no_package_that_they_do_not_need() -> None:
    asked = [*STEPS, ([], ["pyarrow", "torch", "ray"])]  # seen when they are there
    assert loaded_after(asked) == [*([] for _ in STEPS), ["pyarrow", "torch", "ray"]]


def test_functions_of_text_and_of_preparing_a_corpus_load_neither_ray_nor_torch() -> None:
    modules = [*modules_of(*GROUND, "text"), "pipeline.corpus.order"]
    preparing = [f"pipeline.corpus.{name}" for name in ("prepare", "vocabulary", "embeddings")]
    heavy = [*HEAVY, "torch"]
    assert loaded_after([(modules, [*heavy, "pyarrow"]), (preparing, heavy)]) == [["pyarrow"], []]


def test_ray_s_processes_of_a_run_load_torch_or_mlflow_only_where_they_use_it() -> None:
    """Each takes more than a second to import: the tracker needs no torch, Ray Train's controller no MLflow."""
    assert {"mlflow"} == packages_after("pipeline.tracking.tracker") & {"mlflow", "torch", "ray", "matplotlib"}
    assert {"torch", "ray"} == packages_after("pipeline.train.launch") & {"mlflow", "torch", "ray", "matplotlib"}
    assert {"ray"} == packages_after("pipeline.train.dealing") & {"mlflow", "torch", "ray", "matplotlib"}


def test_local_files_tables_and_minimal_pairs_load_only_the_standard_library() -> None:
    ground = ("retries", "local_files", "locations", "errors", "reporting", "stopping", "memory", "storage", "columns")
    for module in (*ground, "minimal_pairs.paradigms", "corpus.web"):
        assert packages_after(f"pipeline.{module}") <= set(sys.stdlib_module_names), module
    assert packages_after("pipeline.model.host_copies") - set(sys.stdlib_module_names) == {"torch"}


def test_benches_of_gpus_need_torch_and_numpy_alone() -> None:
    modules = ["pipeline.bench.step", "pipeline.bench.train", "pipeline.bench.gpu"]
    heavy = ["pyarrow", "ray", "tokenizers", "safetensors", "sentencex", "mlflow", "rich", "requests", "transformers"]
    assert loaded_after([(modules, [*heavy, "torch"])]) == [["torch"]]


def test_a_job_imports_heavy_modules_inside_functions_only() -> None:
    light = set(sys.stdlib_module_names) | {"pipeline.config", "pipeline.errors", "pipeline.command_line.exit_codes"}
    wrong = [
        f"{path.name} imports {name}"
        for path in JOBS
        for node in parse(path).body
        if not isinstance(node, ast.FunctionDef | ast.ClassDef)
        for name in imports(node)
        if not within(name, light)
    ]
    assert wrong == []


def test_no_job_bears_the_name_of_a_module() -> None:
    # Run from jobs/, its folder comes first on sys.path: a file inspect.py there would be everybody's inspect.
    names = [path.stem for path in JOBS]
    code = f"import importlib.util as u, json\nprint(json.dumps([n for n in {['json', *names]!r} if u.find_spec(n)]))"
    found = subprocess.run(
        [sys.executable, "-I", "-c", code], cwd="/", capture_output=True, text=True, check=True
    ).stdout
    assert names and json.loads(found) == ["json"]
