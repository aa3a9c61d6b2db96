# One image holds every service; the first argument says which one runs:
#
#     docker build -t kourou .                          # target runtime: no Java in it
#     docker build --target spark -t kourou-spark .     # with Java and Spark
#     docker run kourou broker --help
#
# A release gives the base by digest: --build-arg PYTHON_IMAGE=python@sha256:…
# Python is always called by name and never by path, since bases keep it in different places.
ARG PYTHON_IMAGE=python:3.11.13-slim-bookworm

# -- the tools that make wheels -------------------------------------------------------------------
FROM ${PYTHON_IMAGE} AS builder
ENV PIP_CACHE_DIR=/var/cache/pip
WORKDIR /build
COPY deploy/requirements/build.txt requirements/build.txt
RUN --mount=type=cache,target=/var/cache/pip \
    python3 -m venv /opt/builder \
    && /opt/builder/bin/python -m pip install --require-hashes -r requirements/build.txt

# -- our own wheel; it changes with every line of source, so nothing slow comes after it ----------
FROM builder AS wheel
# A compiler for the record kernel. KOUROU_KERNEL=compiled makes the build fail without the kernel.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends gcc=4:* libc6-dev=2.* libpython3-dev=3.* \
    && rm -rf /var/lib/apt/lists/*
COPY pyproject.toml hatch_build.py README.md LICENSE ./
COPY libs libs
COPY services services
COPY conf conf
RUN KOUROU_KERNEL=compiled \
    /opt/builder/bin/python -m pip wheel --no-deps --no-build-isolation --wheel-dir /wheels .

# -- what others wrote, with the versions and hashes of the lock ----------------------------------
FROM builder AS dependencies
COPY deploy/requirements/runtime.txt requirements/runtime.txt
RUN --mount=type=cache,target=/var/cache/pip \
    python3 -m venv /opt/kourou \
    && /opt/kourou/bin/python -m pip install --require-hashes --only-binary :all: \
        -r requirements/runtime.txt

FROM dependencies AS build
COPY --from=wheel /wheels /wheels
RUN /opt/kourou/bin/python -m pip install --no-deps --no-index /wheels/*.whl \
    && /opt/kourou/bin/python -m pip uninstall --yes pip setuptools

FROM dependencies AS spark-build
COPY deploy/requirements/spark.txt requirements/spark.txt
RUN --mount=type=cache,target=/var/cache/pip \
    /opt/builder/bin/python -m pip wheel --require-hashes --no-deps --no-build-isolation \
        --wheel-dir /spark-wheels -r requirements/spark.txt \
    && /opt/kourou/bin/python -m pip install --no-deps --no-index /spark-wheels/*.whl \
    && rm -r /spark-wheels \
    # Spark's Python processes look there first and would compile all that they import, every time;
    # without these archives they take the installed package, which is compiled.
    && find /opt/kourou -path '*/pyspark/python/lib/*.zip' -delete
COPY --from=wheel /wheels /wheels
RUN /opt/kourou/bin/python -m pip install --no-deps --no-index /wheels/*.whl \
    && /opt/kourou/bin/python -m pip uninstall --yes pip setuptools

# -- what all services need to run ----------------------------------------------------------------
FROM ${PYTHON_IMAGE} AS service
LABEL org.opencontainers.image.title="Kourou" \
      org.opencontainers.image.description="Message broker suite compatible with Apache RocketMQ" \
      org.opencontainers.image.licenses="Apache-2.0"
# The home is where everything is stored by default, so a named volume there belongs to this user.
# Filter servers run as the other one, which owns nothing.
RUN groupadd --gid 10001 kourou \
    && useradd --uid 10001 --gid 10001 --home-dir /var/lib/kourou --no-create-home \
        --shell /usr/sbin/nologin kourou \
    && groupadd --gid 10002 kourou-filter \
    && useradd --uid 10002 --gid 10002 --home-dir /nonexistent --no-create-home \
        --shell /usr/sbin/nologin kourou-filter \
    && install --directory --owner=10001 --group=10001 --mode=0750 /var/lib/kourou \
    # Volumes of keys belong to this user where they are made (`kourou keys make`, docker-compose.yml).
    && for name in public members access host namesrv console pipeline \
        broker ha-replica broker-b ha-replica-b raft-n0 raft-n1 raft-n2 \
        filter-server filter-server-2 filter-server-b grafana database workers; do \
        install --directory --owner=10001 --group=10001 "/keys/${name}"; \
    done
ENV PATH="/opt/kourou/bin:${PATH}" \
    HOME=/var/lib/kourou \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
WORKDIR /var/lib/kourou
# Finish what is under way, record progress, flush, leave the name servers, end with 0.
STOPSIGNAL SIGTERM
ENTRYPOINT ["kourou"]
CMD ["--help"]

FROM service AS spark
RUN apt-get update \
    && apt-get install --yes --no-install-recommends openjdk-17-jre-headless=17.* \
    && rm -rf /var/lib/apt/lists/*
COPY --from=spark-build /opt/kourou /opt/kourou
USER 10001:10001

# The last target is the one that is built when none is named.
FROM service AS runtime
COPY --from=build /opt/kourou /opt/kourou
USER 10001:10001
