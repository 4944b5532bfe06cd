"""Send metrics to the tracker without waiting."""

import ray
from ray.actor import ActorHandle


class Points:
    """Metrics on their way to the tracker; `flush` waits for all."""

    def __init__(self, tracker: ActorHandle) -> None:
        self.tracker = tracker
        self.under_way: list[ray.ObjectRef] = []

    def log(self, step: int, metrics: dict[str, float]) -> None:
        self.under_way.append(self.tracker.log.remote(step, metrics))

    def flush(self) -> None:
        sent, self.under_way = self.under_way, []
        ray.get(sent)  # the tracker takes calls in any order
        ray.get(self.tracker.flush.remote())
