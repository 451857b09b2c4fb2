"""Dask, streams of a finished table: python examples/engines/dask_meters.py"""

import dask.dataframe as dd
import pandas as pd
from distributed import Client, LocalCluster
from meters import JOB, readings, summarize

from fastdp.engines import dask


def main() -> None:
    frame = dd.from_pandas(pd.DataFrame(readings(), columns=["meter", "kwh", "time"]), npartitions=4)
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster, Client(cluster):
        published = dask.release(frame, JOB, id="meter", order="time", value="kwh").compute()
    summarize(list(published[["meter", "published", "time"]].itertuples(index=False, name=None)))


if __name__ == "__main__":
    main()
