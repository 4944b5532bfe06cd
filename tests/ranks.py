"""Test processes that are the ranks of process groups."""

import multiprocessing
import os
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist


class Ranks:
    """The ranks of a gloo group, in processes of one thread that serve many calls: starting one takes seconds."""

    def __init__(self, folder: Path, world: int) -> None:
        self.folder, self.world = folder, world
        self.processes: list[BaseProcess] = []
        self.pipes: list[Connection] = []

    def run(self, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        """Call `function(rank, *arguments)` in each process and return the results by rank.

        After an error all processes are stopped, because the other ranks may wait for the one that failed.
        """
        results: dict[Connection, Any] = {}
        try:
            if not self.processes:
                self._start()
            for pipe in self.pipes:
                pipe.send((function, arguments))
            while len(results) < self.world:
                for pipe in wait([pipe for pipe in self.pipes if pipe not in results]):
                    results[pipe], error = pipe.recv()
                    assert not error, error
        except BaseException:
            self.stop()
            raise
        return [results[pipe] for pipe in self.pipes]

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        (self.folder / "store").unlink(missing_ok=True)
        for rank in range(self.world):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(rank, self.world, str(self.folder), theirs), daemon=True)
            process.start()
            theirs.close()  # so that the end of the process ends the pipe
            self.processes.append(process)
            self.pipes.append(ours)

    def stop(self) -> None:
        """End the processes; the next call starts others."""
        for process in self.processes:
            process.kill()
            process.join()
        self.processes, self.pipes = [], []


def _serve(rank: int, world: int, folder: str, pipe: Connection) -> None:
    """Answer calls with a result and no error, or with the text of an error, until the pipe ends.

    The process ends without Python's cleanup: gloo's threads live as long as it, and a thread that frees a tensor
    during the cleanup aborts the process.
    """
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world)
    try:
        while True:
            function, arguments = pipe.recv()
            try:
                pipe.send((function(rank, *arguments), None))
            except Exception:
                pipe.send((None, f"rank {rank}: {traceback.format_exc()}"))
    except EOFError:
        os._exit(0)
