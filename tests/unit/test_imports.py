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

ORDER = (
    *("errors", "reporting", "files", "command_line", "config", "presets", "on_ray", "text", "wikipedia", "tables"),
    *("corpus", "tasks", "batch", "model", "saved", "objectives", "fine_tuned", "optim"),
    *("evaluation.retrieval", "evaluation.minimal_pairs", "evaluation", "tracking", "train", "export", "predict"),
    *("finetune", "grid", "embed", "serve", "api", "adapt", "ablation", "show", "audit", "bench", "workflows"),
)
"""Rooms of the package, from the ground up: a room may import the rooms before it, and no other."""
NOT_IN = {
    "model": {"corpus", "tasks", "on_ray", "wikipedia", "tables"},
    "saved": {"on_ray", "wikipedia", "tables"},
    "objectives": {"corpus", "on_ray", "wikipedia", "tables"},
    "wikipedia": {"on_ray", "presets", "command_line"},
    "text": {"on_ray", "presets", "command_line"},
}
"""Room -> rooms before it that it does not need either."""
CARRIES = {
    "workflows.pretrain": ({"tasks", "finetune", "predict", "embed", "serve", "grid", "api", "fine_tuned"}, 37_900),
    "workflows.search": (
        {
            *("serve", "grid", "api", "adapt", "ablation", "bench", "fine_tuned", "finetune"),
            *("tasks", "wikipedia", "objectives", "optim"),
        },
        16_800,
    ),
    "workflows.finetune": ({"wikipedia", "serve", "api", "adapt", "ablation", "bench"}, 48_100),
    "workflows.serve": ({"wikipedia", "finetune", "grid", "adapt", "ablation", "bench"}, 32_800),
    "workflows.prepare": ({"tasks", "model", "objectives", "train", "export"}, 11_300),
}
"""Job -> rooms that importing it may not load, and the most lines of ours that it may load.

Work that needs more raises the number here and says why in its commit.
"""
LATE = {
    "matplotlib is loaded only when something is drawn": (
        *("ablation.publishing -> tracking.curves", "grid.runs -> grid.picture", "tracking.tracker -> tracking.curves"),
        *("workflows.ablate -> ablation.picture", "workflows.pretrain -> show.run_end"),
    ),
    "fine-tuning and tasks are loaded only by models that fine-tune or predict": (
        *("api -> finetune.lists", "api -> predict.rows", "workflows.search -> embed.rerank"),
        *("embed.loaded -> fine_tuned.model", "embed.loaded -> fine_tuned.tuned"),
    ),
    "objectives are loaded only by models with a generator": ("embed.loaded -> export.trained",),
    "models and teachers are loaded only by runs that have one": (
        *("bench.train -> train.teacher", "workflows.pretrain -> embed.teacher"),
        "saved.model -> saved.recipe",
    ),
    "scipy is loaded only for word embeddings from counts": (
        *("corpus.embeddings -> text.cooccurrence", "corpus.token_file_saving -> text.cooccurrence"),
        *("corpus.token_file_saving -> corpus.embeddings", "corpus.token_file_saving -> corpus.vocabulary"),
    ),
    "texts are looked for only in a corpus that excludes some": (
        *("corpus.prepare -> corpus.excluded", "corpus.shards -> corpus.excluded"),
    ),
    "MLflow and its server's modules are loaded only where a run or a model is in MLflow": (
        *("train.launch -> tracking.tracker", "workflows.serve -> export.registry", "workflows.serve -> tracking.runs"),
        *("tracking.trainer -> tracking.runs", "tracking.trainer -> tracking.tracker"),
    ),
    "Ray is loaded only by work that runs on it": ("predict.running -> predict.distributed",),
    "Ray Serve is loaded only by servers with several replicas or on a cluster": (
        "workflows.serve -> serve.ray_serve",
    ),
    "Triton is there only on GPUs": ("model.vocabulary_loss -> model.vocabulary_kernel",),
    "workers of a trial are started only by trials with several": ("grid.tune -> grid.team",),
    "a lease is held only by runs in an object store": ("workflows.pretrain -> tracking.attempt",),
    "rows for other trainers are loaded only by these": (
        "corpus.stream -> corpus.token_trainer",
        "corpus.stream -> corpus.given_pairs",
    ),
    "a machine that trains on a file of tokens may lack sentencex": ("train.run_identity -> text.sentences",),
}
"""Reason -> imports inside functions of modules of ours."""

MAY_RAY = (
    *("corpus", "on_ray", "grid", "predict.distributed", "bench"),
    *("serve.application", "serve.deployments", "serve.ray_serve", "workflows.pretrain", "ablation.trainings"),
    *("train.worker", "train.probe", "train.launch", "train.process_group", "train.run_tracking"),
    *("train.job", "tracking.attempt", "tracking.points", "tracking.trainer"),
)
MAY_MLFLOW = (
    *("tracking.runs", "tracking.tracker", "grid", "ablation.runs"),
    *("export.registry", "export.served", "export.served_task"),
)
TORCH_FREE = (
    *("errors", "reporting", "files", "command_line", "config", "presets", "on_ray", "text", "wikipedia", "tables"),
    *("corpus", "tasks", "evaluation.retrieval", "evaluation.minimal_pairs.paradigms", "workflows.inputs"),
)
GROUND = ("errors", "reporting", "files", "command_line", "config", "presets", "text", "wikipedia")
MOST_FILES = 45
"""Most files of a folder, with its __init__.py."""


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
        "import a.b, c as d\nfrom pipeline.files import storage\nfrom pipeline.errors import DataError\ndef f():\n"
        "    from ray.data import x, y\n"
    )
    assert list(imports(ast.parse(source))) == [
        "a.b",
        "c",
        "pipeline.files.storage",
        "pipeline.errors",
        "ray.data",
        "ray.data",
    ]


def room_of(module: str) -> str:
    """The room of a module, which is named without `pipeline.`: the longest beginning that is in ORDER."""
    parts = module.split(".")
    return next(room for end in (2, 1) if (room := ".".join(parts[:end])) in ORDER)


def our_imports(module: str) -> set[str]:
    """Our modules that a module imports anywhere, named without `pipeline.`."""
    return {short(name) for name in imports(parse(FILES[module])) if name in FILES}


def test_every_module_has_a_room_and_no_other_file_lies_loose() -> None:
    loose = {short(module) for module in FILES if module.count(".") == 1} - {"__init__"}
    assert loose == {"api", "batch", "errors", "reporting"}
    modules = [short(module) for module in FILES if not module.endswith("__init__")]
    assert {room_of(module) for module in modules} == set(ORDER)


def test_a_room_imports_only_rooms_below_it() -> None:
    rooms = {short(module): room_of(short(module)) for module in FILES if not module.endswith("__init__")}
    wrong = [
        f"{module} imports {name}"
        for module, room in rooms.items()
        for name in our_imports(f"pipeline.{module}")
        if name in rooms and rooms[name] != room
        if ORDER.index(rooms[name]) > ORDER.index(room) or rooms[name] in NOT_IN.get(room, ())
    ]
    assert wrong == []


def test_no_folder_is_crowded() -> None:
    files = Counter(path.parent.relative_to(ROOT).as_posix() for path in FILES.values())
    assert {folder: count for folder, count in files.items() if count > MOST_FILES} == {}


def loaded_with(module: str) -> set[str]:
    """Our modules that importing a module loads, it included, named without `pipeline.`."""
    found, coming = set[str](), [f"pipeline.{module}"]
    while coming:
        name = coming.pop()
        if name in FILES and name not in found:
            found.add(name)
            coming += top_imports(name)
    return {short(name) for name in found}


def test_imports_inside_functions_have_a_reason() -> None:
    late = {
        f"{short(module)} -> {short(name)}"
        for module, path in FILES.items()
        for function in ast.walk(parse(path))
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for name in imports(function)
        if name in FILES
    }
    listed = [one for ones in LATE.values() for one in ones]
    assert sorted(listed) == sorted(late)


def test_a_job_carries_only_itself() -> None:
    for job, (others, most) in CARRIES.items():
        loaded = loaded_with(job)
        assert [name for name in sorted(loaded) if name.split(".")[0] in others] == [], job
        lines = sum(len(FILES[f"pipeline.{name}"].read_text().splitlines()) for name in loaded)
        assert lines <= most, f"{job} loads {lines:,} lines in {len(loaded)} files, but may load {most:,}"


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
    assert users == ["on_ray.ray_private"]


def test_mlflow_appears_only_in_tracking() -> None:
    users = importers("mlflow")
    assert [name for name in users if not within(name, MAY_MLFLOW)] == []
    assert "tracking.runs" in users


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
    assert sorted(name for name in readers if not within(name, {"bench"})) == ["grid.runs", "tracking.tracker"]


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


TRITON = "pipeline.model.vocabulary_kernel"
"""Imports Triton, which is there only on GPUs."""
HEAVY = ["ray", "mlflow", "transformers"]
STEPS: list[tuple[list[str], list[str]]] = [
    # Python's door, and what vectors do not need
    (["pipeline.api"], [*HEAVY, "torch._dynamo", "sklearn", "scipy", "matplotlib"]),
    # a server in one process, which should be ready in seconds
    (["pipeline.workflows.serve"], [*HEAVY, "torch._dynamo", "sklearn", "scipy", "pandas", "matplotlib"]),
    # small commands are done before Ray would have started
    (
        [f"pipeline.workflows.{name}" for name in ("inputs", "predict", "embed", "score", "search", "mine")],
        [*HEAVY, "torch._dynamo", "sklearn", "scipy.stats", "matplotlib"],
    ),
    # the model and its objectives; fine-tuning and answering on one device
    (
        [module for module in modules_of("batch", "model", "objectives") if module != TRITON]
        + ["pipeline.train.step", "pipeline.optim.build"],
        HEAVY,
    ),
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
    assert {"ray"} == packages_after("pipeline.train.later_stream") & {"mlflow", "torch", "ray", "matplotlib"}


def test_files_load_little_more_than_the_standard_library() -> None:
    ground = ("errors", "reporting", "command_line.stopping", "command_line.columns", "embed.memory")
    for module in (*(f"files.{name}" for name in ("retries", "local_files", "locations")), *ground):
        assert packages_after(f"pipeline.{module}") <= set(sys.stdlib_module_names), module
    assert packages_after("pipeline.files.storage") - set(sys.stdlib_module_names) == {"pyarrow"}
    assert packages_after("pipeline.model.host_copies") - set(sys.stdlib_module_names) == {"torch"}


def test_benches_of_gpus_need_no_ray_and_no_mlflow() -> None:
    modules = ["pipeline.bench.step", "pipeline.bench.train", "pipeline.bench.gpu"]
    heavy = ["ray", "sentencex", "mlflow", "rich", "transformers", "pandas"]
    assert loaded_after([(modules, [*heavy, "pyarrow", "torch"])]) == [["pyarrow", "torch"]]


def test_a_job_imports_heavy_modules_inside_functions_only() -> None:
    light = set(sys.stdlib_module_names) | {"pipeline.config", "pipeline.errors", "pipeline.command_line"}
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
