"""Dask: python examples/engines/dask_meters.py"""

import tempfile

from distributed import Client, LocalCluster
from meters import JOB, readings, summarize

from fastdp.engines.dask import DaskShards


def main() -> None:
    rows, published = readings(), []
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
        DaskShards(JOB, folder, 4, client=client) as shards,
    ):
        for number, begin in enumerate(range(0, len(rows), 1000), start=1):
            ids, values, times = zip(*rows[begin : begin + 1000], strict=True)
            places, out = shards.publish(number, list(ids), list(values))
            published += [(ids[k], value, times[k]) for k, value in zip(places.tolist(), out.tolist(), strict=True)]
    summarize(published)


if __name__ == "__main__":
    main()
