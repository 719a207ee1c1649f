# One image for everything but Spark: the node, the command line, apps, the console, HTTP.
#   docker build -t headrace .
#   docker run -p 127.0.0.1:9092:9092 -v headrace:/data headrace
# docs/guide/deploy.md has the rest.

# ---- the packages, into /opt/headrace ------------------------------------------------------------
FROM python:3.13-slim-bookworm AS packages
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
WORKDIR /source
# What changes seldom comes first, so that most builds begin behind it.
COPY requirements/app.txt requirements/app.txt
RUN python -m venv /opt/headrace \
    && /opt/headrace/bin/python -m pip install --quiet --require-hashes -r requirements/app.txt
COPY pyproject.toml LICENSE NOTICE ./
COPY release/about.md release/about.md
COPY src src
RUN /opt/headrace/bin/python -m pip install --quiet --no-deps --no-build-isolation --no-index . \
    && /opt/headrace/bin/python -m pip check \
    && /opt/headrace/bin/python -m compileall -q /opt/headrace/lib

# ---- what runs -----------------------------------------------------------------------------------
FROM python:3.13-slim-bookworm
COPY --from=packages /opt/headrace /opt/headrace
# A number, so that Kubernetes can see that it is not root. The folder is its owner's alone.
RUN useradd --uid 10001 --no-create-home --home-dir /data --shell /usr/sbin/nologin headrace \
    && install --directory --owner=headrace --group=headrace --mode=0700 /data
ENV PATH=/opt/headrace/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1
USER 10001
WORKDIR /data
VOLUME /data
EXPOSE 9092 9100
# The node flushes its logs, writes the sign of a clean end, and ends with 0.
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=10s --start-period=60s --retries=3 \
    CMD ["headrace", "brokers", "list", "--bootstrap", "localhost:9092", "--timeout", "5"]
ENTRYPOINT ["headrace"]
# Whoever reaches the port gets in: publish it on loopback, or say `start --secure` (the guide).
CMD ["start", "--data", "/data/node", "--listen", "0.0.0.0:9092", "--insecure", "--no-console", \
     "--metrics", "0.0.0.0:9100", "--set", "advertised.listeners=PLAINTEXT://localhost:9092"]
