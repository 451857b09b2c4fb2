# docker build -t fastdp . && docker run --rm fastdp --help
FROM python:3.12-slim AS wheel
COPY . /source
# With kernels for this processor's level and those above it; FASTDP_LEVELS=x86-64-v3 for all since 2013.
ARG FASTDP_LEVELS
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /dist /source

FROM python:3.12-slim
COPY --from=wheel /dist /dist
RUN pip install --no-cache-dir "$(echo /dist/*.whl)[tables]" && useradd --create-home --uid 1000 fastdp
ENV NUMBA_CACHE_DIR=/opt/fastdp
# Where there are no levels: kernels of root's, which are used whatever user runs the image.
RUN fastdp compile
# A number: a host that asks for a user other than root knows no names of the image.
USER 1000
WORKDIR /home/fastdp
ENTRYPOINT ["fastdp"]
