"""Ray: python examples/engines/ray_meters.py"""

import tempfile

import ray
from meters import JOB, readings, summarize

from fastdp.engines.ray import RayShards

ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
rows, published = readings(), []
with tempfile.TemporaryDirectory() as folder, RayShards(JOB, folder, 4) as shards:
    for number, begin in enumerate(range(0, len(rows), 1000), start=1):
        ids, values, times = zip(*rows[begin : begin + 1000], strict=True)
        places, out = shards.publish(number, list(ids), list(values))
        published += [(ids[k], value, times[k]) for k, value in zip(places.tolist(), out.tolist(), strict=True)]
summarize(published)
ray.shutdown()
