"""What a publisher of a stream is and where it stands: nothing here changes it."""

from __future__ import annotations

from fastdp.guarantee import Guarantee
from fastdp.perturbers import HierarchyShape
from fastdp.randomness.key import Key
from fastdp.state.planned import Planned
from fastdp.systems.stream.adaptive_blocks import AdaptiveBlocks
from fastdp.systems.stream.fixed_blocks import Progress
from fastdp.systems.stream.parameters import StreamParameters
from fastdp.systems.stream.stages import Schedule, StreamState


class StreamView(Planned):
    """The properties of a :class:`~fastdp.StreamPublisher`."""

    _composition: StreamParameters
    _key: Key
    _course: Schedule
    _standing: StreamState

    @property
    def _progress(self) -> Progress:
        return self._standing.progress

    @property
    def composition(self) -> StreamParameters:
        """Parts and parameters."""
        return self._composition

    @property
    def epsilon(self) -> float:
        """The privacy budget."""
        return self._composition.epsilon

    @property
    def bound(self) -> float:
        """Public upper bound of a value."""
        return self._composition.bound

    @property
    def holdout(self) -> int:
        """Length of the hold-out."""
        return self._composition.task.holdout + self._composition.warm_up

    @property
    def max_range(self) -> int:
        """Longest query."""
        return self._composition.max_range

    @property
    def resolution(self) -> float:
        """Grid step, in units of the input."""
        return self._composition.grid.resolution

    @property
    def plan(self) -> HierarchyShape:
        """Public shape of the hierarchy: levels, block length, leaves."""
        return self._composition.plan

    @property
    def block(self) -> int:
        """g: values under the noisy sum that closes next."""
        pipeline = self._course.pipeline
        return pipeline.block(self._progress) if isinstance(pipeline, AdaptiveBlocks) else self.plan.block

    @property
    def threshold(self) -> float | None:
        """The present theta in units of the input; None until the hold-out is complete."""
        steps = self._progress.theta_steps
        return steps * self.resolution if steps else None

    @property
    def n_seen(self) -> int:
        """Values consumed, the hold-out included."""
        return self._progress.n_seen

    @property
    def n_published(self) -> int:
        """Values published."""
        return max(0, self._progress.n_seen - self.holdout)

    @property
    def guarantee(self) -> Guarantee:
        """What the whole endless stream promises, derived from the parts."""
        return self._composition.guarantee(simulated=self._key.simulated)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(epsilon={self.epsilon:g}, bound={self.bound:g}, holdout={self.holdout}, "
            f"max_range={self.max_range}, n_seen={self.n_seen}, threshold={self.threshold})"
        )
