"""The EM of the local model by its bins."""

from __future__ import annotations

from benchmarks.speed.local import plain_steps


class PlainEM:
    """200 plain steps: linear in the bins."""

    params = ((256, 1024, 4096, 16_384),)
    param_names = ("bins",)
    timeout = 120

    def setup(self, bins: int) -> None:
        (self.task,) = plain_steps([bins]).tasks.values()
        self.task()

    def time_em(self, bins: int) -> None:
        self.task()
