"""Streams to try fastdp on."""

from fastdp.datasets.generated import dns_like_day

__all__ = ["dns_like_day"]
