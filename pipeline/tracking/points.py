"""Send metrics to the tracker without waiting."""

import ray
from ray.actor import ActorHandle


class Points:
    """Send metrics to the tracker.

    `log` does not wait. `flush` waits until the tracker has received all metrics and has tried to send them to MLflow.
    """

    def __init__(self, tracker: ActorHandle) -> None:
        self.tracker = tracker
        self.under_way: list[ray.ObjectRef] = []
        """Calls of the tracker that may not have finished."""

    def log(self, step: int, metrics: dict[str, float]) -> None:
        self.under_way.append(self.tracker.log.remote(step, metrics))

    def flush(self) -> None:
        sent, self.under_way = self.under_way, []
        ray.get(sent)  # before `flush`, because the tracker may run calls in any order
        ray.get(self.tracker.flush.remote())
