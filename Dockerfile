# One image for every process of ours: `muster serve …`, `muster agent`, the founding of a cell.

FROM python:3.12-slim AS build

# Wheels of the lock, checked by their hashes; from here on nothing is fetched.
WORKDIR /build
COPY requirements.lock .
RUN python -I -m pip download --quiet --no-cache-dir --disable-pip-version-check --only-binary :all: \
        --require-hashes --requirement requirements.lock --dest /wheels

# Of these only what the distribution needs is installed, not what its tests and checks need.
COPY . .
RUN python -I -m venv /opt/muster \
    && /opt/muster/bin/python -I -m pip install --quiet --no-cache-dir --disable-pip-version-check \
        --no-index --find-links /wheels .

FROM python:3.12-slim

COPY --from=build /opt/muster /opt/muster
ENV PATH=/opt/muster/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    MUSTER_DATA_DIR=/var/lib/muster

RUN useradd --system --uid 10001 --create-home --home-dir /var/lib/muster --shell /usr/sbin/nologin muster
USER muster
WORKDIR /var/lib/muster
EXPOSE 8080

# That of the API. Parts that listen nowhere end when they cannot work, and are started again: they need none.
HEALTHCHECK --interval=5s --timeout=3s --start-period=20s --retries=5 \
    CMD ["python", "-I", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:8080/readyz', timeout=2)"]

CMD ["muster", "serve", "api"]
