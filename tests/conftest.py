"""A prepared corpus of made-up documents, a vocabulary trained on it, and the training loop over both, without Ray."""

import os
import signal
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, get_args

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from fsspec.implementations.dirfs import DirFileSystem
from fsspec.implementations.local import LocalFileSystem
from fsspec.registry import _registry
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling

from pipeline.command_line.environment import set_ray_defaults

set_ray_defaults()  # before anything imports Ray: its compiled part reads the environment once

from pipeline.config.data import Sampling  # noqa: E402
from pipeline.config.jobs import Pretrain  # noqa: E402
from pipeline.config.model import FamilyName, Model  # noqa: E402
from pipeline.config.model_parts import BucketedAttention  # noqa: E402
from pipeline.config.phases import Phase  # noqa: E402
from pipeline.config.training import AdamW, Batch, Checkpoints, Evaluation, LinearDecay, Tracking  # noqa: E402
from pipeline.corpus.order import cursor_for_phase, window_ranges  # noqa: E402
from pipeline.corpus.prepared import Corpus, Window  # noqa: E402
from pipeline.corpus.stream import StreamSettings, rows_of_range  # noqa: E402
from pipeline.errors import DataError  # noqa: E402
from pipeline.evaluation.heldout import heldout_batches  # noqa: E402
from pipeline.export.card import Lineage  # noqa: E402
from pipeline.files import storage  # noqa: E402
from pipeline.model.encoder import encoders_in  # noqa: E402
from pipeline.objectives.table import Pretraining, build_objective  # noqa: E402
from pipeline.optim.build import build_optimizer  # noqa: E402
from pipeline.presets.table import PRESETS  # noqa: E402
from pipeline.saved import checkpoints  # noqa: E402
from pipeline.saved.run import SUMMARY, record, write_run  # noqa: E402
from pipeline.text.cached_tokenizer import CachedTokenizer  # noqa: E402
from pipeline.text.schema import DOCUMENT  # noqa: E402
from pipeline.text.training import train_vocabulary  # noqa: E402
from pipeline.text.vocabulary import Vocabulary  # noqa: E402
from pipeline.tracking.runs import open_client, open_run  # noqa: E402
from pipeline.train import checkpoint  # noqa: E402
from pipeline.train.checkpoint import State  # noqa: E402
from pipeline.train.hardware import autocast_of  # noqa: E402
from pipeline.train.loop import Opened, train, train_phases  # noqa: E402
from pipeline.train.run_identity import identity, save_run_vocabulary  # noqa: E402
from pipeline.train.work import Work  # noqa: E402
from tests.data import NEEDS_DATA  # noqa: E402
from tests.ranks import Ranks  # noqa: E402

# A test does not fail because the machine is slow: no time limit for an example, nor for making it.
for profile, examples in {"few": 20, "many": 100}.items():
    settings.register_profile(
        profile, max_examples=examples, deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "few"))  # `make test-all` asks for many

RAY_TESTS = "tests/ray/"

WORDS = [a + b for a in ("ka", "lo", "mi", "ne", "su", "ta") for b in ("r", "nd", "p", "st", "l", "m")]
DOCUMENTS_PER_WINDOW = 6
ENOUGH_WINDOWS = 40  # of the tiny corpus: more rows than any run of these tests takes
CPU = torch.device("cpu")


if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell starts `make test &` so, and every process inherits it
    signal.signal(signal.SIGINT, signal.default_int_handler)

if "PYTEST_XDIST_WORKER" in os.environ:  # threads that wait for their turn cost more than they do
    torch.set_num_threads(1)


class OneProcessForRay(LoadScopeScheduling):
    """With several processes of tests (pytest --numprocesses), one of them runs all tests that start or share a Ray."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.split("::")[0]
        return RAY_TESTS if file.startswith(RAY_TESTS) else file


def shares_ray(test: pytest.Item) -> bool:
    """Whether a test runs in the Ray that many tests share."""
    return "local_ray" in getattr(test, "fixturenames", ())


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    return OneProcessForRay(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the slowest tests first: those that share a Ray, those that start their own, all others; CUDA's last, because
    these take twice as long beside a Ray.
    """

    def turn(test: pytest.Item) -> tuple[bool, bool, bool]:
        return not test.nodeid.startswith(RAY_TESTS), not shares_ray(test), test.nodeid.startswith("tests/cuda/")

    items.sort(key=turn)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print how many tests were skipped for want of data, which is not part of the project."""
    skipped = [report for report in terminalreporter.stats.get("skipped", []) if NEEDS_DATA in str(report.longrepr)]
    if skipped:
        terminalreporter.write_line(f"{len(skipped)} of the skipped tests need data, as the reasons above say")


def text_of(number: int) -> str:
    """Nine sentences in which each word follows from the one before, by arithmetic alone: the same text for ever."""
    sentences = []
    for place in range(9):
        length, stride = 4 + (3 * number + 5 * place) % 7, 1 + (number + place) % 3
        words = [WORDS[(7 * number + 11 * place + stride * index) % len(WORDS)] for index in range(length)]
        sentences.append(" ".join(words).capitalize() + ".")
    return " ".join(sentences)


def write_split(folder: Path, split: str, numbers: range) -> tuple[Window, ...]:
    """One Parquet shard of documents, a row group a window."""
    rows = [
        {
            "id": f"{n}#0",
            "parent": f"{n}",
            "title": "",
            "text": text_of(n),
            "source": "made up",
            "lines_are_sentences": False,
            "language": "en",
        }
        for n in numbers
    ]
    (folder / split).mkdir()
    shard, windows = f"{split}/00000.parquet", []
    with pq.ParquetWriter(folder / shard, DOCUMENT) as writer:
        for start in range(0, len(rows), DOCUMENTS_PER_WINDOW):
            group = rows[start : start + DOCUMENTS_PER_WINDOW]
            writer.write_table(pa.Table.from_pylist(group, schema=DOCUMENT))
            characters = sum(len(row["text"]) for row in group)
            windows.append(Window(shard=shard, row_group=len(windows), documents=len(group), characters=characters))
    return tuple(windows)


def made_up_corpus(folder: Path) -> Corpus:
    """Five training windows and two held-out ones, in a folder."""
    return Corpus(
        folder=str(folder),
        fingerprint="0123456789abcdef",
        train=write_split(folder, "train", range(30)),
        heldout=write_split(folder, "heldout", range(30, 42)),
        counts={},
        dropped={},
        sources={},
    )


@pytest.fixture(scope="session")
def tiny_corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return made_up_corpus(tmp_path_factory.mktemp("tiny-corpus"))


@pytest.fixture(scope="session")
def tiny_vocabulary() -> Vocabulary:
    return train_vocabulary(map(text_of, range(30)), size=120, lowercase=True)


TINY = Pretrain(
    name="tiny",
    steps=12,
    sampling=Sampling(maximum_length=32),
    model=Model(layers=2, width=32, heads=2, feed_forward=64, maximum_positions=32),
    batch=Batch(rows_per_step=16, rows_per_slot=4),
    optimizer=AdamW(learning_rate=2e-3),
    schedule=LinearDecay(warmup_share=0.2),
    evaluation=Evaluation(every=1_000, rows=40),
    checkpoint=Checkpoints(every=1_000, keep=3),
    tracking=Tracking(every=1),
)
"""A training of seconds on the tiny corpus, with dropout."""


@pytest.fixture(scope="session")
def tiny_config() -> Pretrain:
    return TINY


def tiny_preset(family: str) -> Pretrain:
    """The smallest preset of a family; version 2 of DeBERTa has presets of version 3."""
    return PRESETS[f"{'deberta-v3' if family == 'deberta-v2' else family}-tiny"]


def parts_of_preset(preset: Pretrain) -> dict[str, Any]:
    """The settings of a preset's model that belong to its family, for models of few positions."""
    names = ("family", "activation", "segments", "positions", "attention", "inner", "block", "bias")
    parts = {name: getattr(preset.model, name) for name in names}
    return parts | ({"attention": BucketedAttention(buckets=16)} if preset.model.family == "deberta-v2" else {})


def of_family(family: str, config: Pretrain, vocabulary: Vocabulary) -> Pretrain:
    """The same training of another family's model, with the rows and the objective of its presets."""
    preset = tiny_preset(family)
    model = replace(config.model, **parts_of_preset(preset)).for_padding(vocabulary.pad_id)
    sampling = replace(config.sampling, pairs=preset.sampling.pairs, masking=preset.sampling.masking)
    return replace(config, model=model, sampling=sampling, objective=preset.objective)


@pytest.fixture(params=get_args(FamilyName))
def family_config(request: pytest.FixtureRequest, tiny_config: Pretrain, tiny_vocabulary: Vocabulary) -> Pretrain:
    """The tiny training of each family."""
    return of_family(request.param, tiny_config, tiny_vocabulary)


FAMILIES = get_args(FamilyName)


def tiers(name: str, *, first: Collection[Any], second: Collection[Any]) -> pytest.MarkDecorator:
    """Give a test a parameter, or `family_config`: some values in the first tier, and the others in the second."""
    others = [value if isinstance(value, tuple) else (value,) for value in second if value not in first]
    later = [pytest.param(*value, marks=pytest.mark.second) for value in others]
    return pytest.mark.parametrize(name, [*first, *later], indirect=name == "family_config")


@dataclass(frozen=True, kw_only=True)
class Training:
    """The loop as one worker runs it, on blocks that are cut here instead of by Ray Data."""

    corpus: Corpus
    vocabulary: Vocabulary

    def module(self, config: Pretrain) -> Pretraining:
        generator = torch.Generator().manual_seed(config.seed)
        module = build_objective(config.objective, config.sampling, config.model, self.vocabulary.size, generator)
        for encoder in encoders_in(module):
            encoder.narrow_residual = config.placement.residual == "bfloat16"
        return module

    def blocks(self, config: Pretrain, state: State = State()) -> list[pa.Table]:  # noqa: B008 (it is frozen)
        """All slots of the first windows after the cursor, in the global order of the phase of the state."""
        phase = config.phase_at(state.step)
        stream = StreamSettings(
            corpus=self.corpus, vocabulary=self.vocabulary, sampling=phase.sampling, batch=phase.batch, seed=config.seed
        )
        wordpiece = CachedTokenizer(self.vocabulary)
        ranges = window_ranges(
            cursor_for_phase(state.cursor, phase, state.step), len(self.corpus.train), ENOUGH_WINDOWS, 7
        )
        rows = pa.concat_tables([table for windows in ranges for table in rows_of_range(stream, wordpiece, windows)])
        size = phase.batch.rows_per_slot
        return [rows.slice(start, size) for start in range(0, rows.num_rows - size + 1, size)]

    def work(
        self,
        config: Pretrain,
        folder: Path,
        logged: dict[int, dict[str, float]],
        stop_at: int | None = None,
        step: int = 0,
    ) -> Work:
        """Work of a single rank from a step on that logs into a dict, and raises KeyboardInterrupt when the step
        `stop_at` is logged.
        """

        sampling = config.phase_at(step).sampling

        def log(step: int, metrics: dict[str, float]) -> None:
            if step == stop_at:
                raise KeyboardInterrupt
            logged.setdefault(step, {}).update(metrics)

        return Work(
            config=config,
            folder=str(folder),
            vocabulary=self.vocabulary,
            rank=0,
            world=1,
            device=CPU,
            autocast=autocast_of(
                "float32" if config.placement.precision == "auto" else config.placement.precision, CPU
            ),
            heldout=heldout_batches(
                self.corpus,
                CachedTokenizer(self.vocabulary),
                sampling,
                rows=config.evaluation.rows,
                rows_per_batch=4,
                rank=0,
                world=1,
            ),
            log=log,
            flush=lambda: None,
        )

    def run(
        self,
        config: Pretrain,
        folder: Path,
        logged: dict[int, dict[str, float]],
        blocks: Iterator[pa.Table] | None = None,
        stop_at: int | None = None,
    ) -> tuple[State, Pretraining]:
        """Train from the folder's newest checkpoint, or from the start, to the end of the phase and give the last
        state and the module.
        """
        module, optimizer, state = self.start(config, folder)
        stream = iter(self.blocks(config, state)) if blocks is None else blocks
        return train(self.work(config, folder, logged, stop_at, state.step), stream, module, optimizer, state), module

    def start(self, config: Pretrain, folder: Path) -> tuple[Pretraining, torch.optim.Optimizer, State]:
        """Make the module and the optimiser, and load the folder's newest checkpoint, if there is one."""
        module = self.module(config)
        optimizer = build_optimizer(config.optimizer, module)
        found = checkpoints.newest_sound(str(folder), lambda line: None)
        state = checkpoint.load(found, module, optimizer) if found else State()
        if found:  # what is not loaded must come from somewhere else than the seed
            torch.manual_seed(99)
        return module, optimizer, state

    def opener(
        self, folder: Path, logged: dict[int, dict[str, float]], stop_at: int | None = None
    ) -> Callable[[Pretrain, Phase, State], Opened]:
        """Return the function that opens phases for `train_phases`."""

        @contextmanager
        def opened(config: Pretrain, phase: Phase, state: State) -> Iterator[tuple[Work, Iterator[pa.Table]]]:
            yield self.work(config, folder, logged, stop_at, state.step), iter(self.blocks(config, state))

        return opened

    def run_phases(
        self, config: Pretrain, folder: Path, logged: dict[int, dict[str, float]], stop_at: int | None = None
    ) -> tuple[State, Pretraining]:
        """As `run`, to the end of the last phase, in one process."""
        module, optimizer, state = self.start(config, folder)
        return train_phases(config, self.opener(folder, logged, stop_at), module, optimizer, state), module


@pytest.fixture(autouse=True)
def threads_as_before() -> Iterator[None]:
    """A job that a test runs in this process sets PyTorch's threads; the next test has those from before."""
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """One thread for PyTorch: small models spend their time waiting for a second one."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[int], Ranks]]:
    """Return the ranks of a group of this many processes, which all tests share."""
    groups: dict[int, Ranks] = {}

    def of_world(world: int) -> Ranks:
        if world not in groups:
            groups[world] = Ranks(tmp_path_factory.mktemp(f"ranks-{world}"), world)
        return groups[world]

    yield of_world
    for group in groups.values():
        group.stop()


@pytest.fixture(scope="module")
def training(tiny_corpus: Corpus, tiny_vocabulary: Vocabulary, one_thread: None) -> Training:
    """The loop on one thread, since golden losses should not depend on their number."""
    return Training(corpus=tiny_corpus, vocabulary=tiny_vocabulary)


@pytest.fixture
def without_dropout(tiny_config: Pretrain) -> Pretrain:
    return replace(tiny_config, model=replace(tiny_config.model, hidden_dropout=0.0, attention_dropout=0.0))


@pytest.fixture(scope="session")
def tiny_run(
    tiny_corpus: Corpus, tiny_vocabulary: Vocabulary, tiny_config: Pretrain, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The folder of a finished run of three steps, with a checkpoint after each, its corpus, its summary and its
    MLflow run.
    """
    return finished_run(tmp_path_factory.mktemp("tiny-run"), tiny_config, tiny_corpus, tiny_vocabulary)


@cache
def empty_store() -> bytes:
    """The SQLite file of an MLflow store without runs, whose tables take MLflow seconds to make."""
    with TemporaryDirectory() as folder:
        open_client(f"sqlite:///{folder}/mlflow.db")
        return Path(folder, "mlflow.db").read_bytes()


def new_store(folder: Path) -> str:
    """Make an MLflow store in a folder and return its URI."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "mlflow.db").write_bytes(empty_store())
    return f"sqlite:///{folder}/mlflow.db"


def finished_run(output: Path, config: Pretrain, tiny_corpus: Corpus, tiny_vocabulary: Vocabulary) -> Path:
    """The folder of such a run in an output folder."""
    folder, database = output / "runs" / "tiny", new_store(output)
    config = replace(config, steps=3, checkpoint=Checkpoints(every=1, keep=3))
    training = Training(corpus=tiny_corpus, vocabulary=tiny_vocabulary)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    state, _ = training.run(config, folder, {})
    torch.set_num_threads(threads)
    windows = {
        split: [[w.shard, w.row_group, w.documents, w.characters] for w in there]
        for split, there in (("train", tiny_corpus.train), ("heldout", tiny_corpus.heldout))
    }
    sources = {
        "made up": {
            "weight": 1.0,
            "documents": 30,
            "pieces": 31,
            "characters": 12_345,
            "dropped": {"too-short": 2, "duplicate": 4},
        }
    }
    about = {
        "fingerprint": tiny_corpus.fingerprint,
        "counts": {"documents": 30},
        "dropped": {"too-short": 2, "duplicate": 4},
        "sources": sources,
    }
    storage.write_json(f"{tiny_corpus.folder}/{storage.MANIFEST}", about | windows)
    mlflow = open_run(database, "pretrain", "tiny", None, {}, {})
    save_run_vocabulary(str(folder), tiny_vocabulary, config.model.maximum_positions)
    write_run(
        str(folder), identity(config, tiny_corpus, tiny_vocabulary), config.steps, mlflow.run_id, tiny_corpus.folder
    )
    figures = {
        "heldout_before": {},
        "heldout_after": {},
        "baselines": {},
        "epochs": 1,
        "training_seconds": 2.0,
        "tokens_per_second": 450.0,
    }
    speed = {
        "workers": 1,
        "device": "cpu",
        "precision": "float32",
        "data_wait_percent": 0.0,
        "mlflow_uri": database,
        "mlflow_run_id": mlflow.run_id,
    }
    step = {
        "maximum_length": 32,
        "step_milliseconds_95th": 12.0,
        "peak_memory_gigabytes": 0.5,
        "model_flops_utilisation_percent": None,
    }
    storage.write_json(str(folder / SUMMARY), figures | speed | step | {"steps": 3, "tokens": state.tokens})
    return folder


@pytest.fixture(scope="session")
def tiny_lineage(tiny_corpus: Corpus, tiny_vocabulary: Vocabulary, tiny_config: Pretrain) -> Lineage:
    """Lineage of an unfinished run whose corpus is gone."""
    recorded = record(identity(tiny_config, tiny_corpus, tiny_vocabulary), tiny_config.steps, "0" * 32, "/gone/corpus")
    return Lineage(
        name="tiny", recorded=recorded, summary=None, corpus=DataError("/gone/corpus does not hold a prepared corpus")
    )


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Path]:
    """A folder that hf:// leads to."""

    class Hub(DirFileSystem):
        protocol = "hf"
        cachable = False

        def __init__(self) -> None:
            super().__init__(path=str(tmp_path), fs=LocalFileSystem())

    fsspec.register_implementation("hf", Hub, clobber=True)
    yield tmp_path
    _registry.pop("hf")


@pytest.fixture
def glue(tmp_path: Path, tiny_vocabulary: Vocabulary) -> Path:
    """CoLA and STS-B of made-up sentences; a sentence is acceptable where its first word is one of half of the words,
    and a pair is as like as it has words in common.
    """
    words = sorted(word for word in tiny_vocabulary.tokens if word.isalpha() and len(word) > 2)
    random = np.random.default_rng(0)
    for folder in ("CoLA", "STS-B"):
        (tmp_path / folder).mkdir()
    for split, rows in (("train", 60), ("dev", 20)):
        sentences = [list(random.choice(words, random.integers(3, 9))) for _ in range(rows)]
        cola = [
            f"x\t{int(words.index(sentence[0]) < len(words) // 2)}\t\t{' '.join(sentence)}" for sentence in sentences
        ]
        (tmp_path / "CoLA" / f"{split}.tsv").write_text("\n".join(cola) + "\n")
        head = "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore"
        pairs = [
            (sentence, sentence[:kept] + list(random.choice(words, 3)))
            for sentence in sentences
            for kept in [random.integers(0, len(sentence))]
        ]
        stsb = [
            f"{i}\tg\tf\ty\to\ts\ts\t{' '.join(a)}\t{' '.join(b)}\t{5 * len(set(a) & set(b)) / len(set(a)):.2f}"
            for i, (a, b) in enumerate(pairs)
        ]
        (tmp_path / "STS-B" / f"{split}.tsv").write_text("\n".join([head, *stsb]) + "\n")
    return tmp_path
