"""Where a stream is published: the systems, whose public names are those of :mod:`fastdp`."""
