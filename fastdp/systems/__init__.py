"""Where a stream is published: publishers composed of a threshold, a perturber and a smoother."""

from fastdp.systems.base import Base
from fastdp.systems.one_call import release
from fastdp.systems.pak import PAK
from fastdp.systems.stream_publisher import StreamPublisher
from fastdp.systems.tops import ToPS

__all__ = ["PAK", "Base", "StreamPublisher", "ToPS", "release"]
