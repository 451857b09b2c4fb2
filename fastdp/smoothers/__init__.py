"""Where predictions are made: smoothers work on released block totals only (post-processing)."""

from fastdp.smoothers.recent import Recent, Smoother

__all__ = ["Recent", "Smoother"]
