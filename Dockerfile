# docker build -t fastdp . && docker run --rm fastdp --help
FROM python:3.12-slim AS wheel
COPY . /source
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /dist /source

FROM python:3.12-slim
COPY --from=wheel /dist /dist
RUN pip install --no-cache-dir "$(echo /dist/*.whl)[tables]" && useradd --create-home --uid 1000 fastdp
# A number: a host that asks for a user other than root knows no names of the image.
USER 1000
WORKDIR /home/fastdp
ENV NUMBA_CACHE_DIR=/home/fastdp/.numba
RUN fastdp compile
ENTRYPOINT ["fastdp"]
