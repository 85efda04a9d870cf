# SPDX-License-Identifier: Apache-2.0
# Workers of TokenMill for a cluster: the pool beside each task manager of Flink or worker of Spark. From the root of
# the repository:
#
#   docker build -f containers/worker.Dockerfile -t tokenmill-worker .
#   docker run --network=container:TASK_MANAGER tokenmill-worker          # beside a task manager
#
# The version of Python must be that of the machine that submits jobs: functions travel pickled.
ARG PYTHON=3.11
FROM python:${PYTHON}-slim

# aws, gcp or azure: the object store that the input or output is in; empty for none.
ARG EXTRAS=aws
WORKDIR /opt/tokenmill
COPY pyproject.toml README.md LICENSE ./
COPY tokenizer tokenizer
COPY pipeline pipeline
COPY tokenmill tokenmill
RUN pip install --no-cache-dir ".[${EXTRAS}]"

# Compiled kernels are kept here. They are for the processor of the machine that builds this: on another kind a container
# compiles its own, once, which a volume spares the next.
ENV TOKENMILL_CACHE_DIR=/var/cache/tokenmill
RUN useradd --create-home tokenmill && mkdir -p "$TOKENMILL_CACHE_DIR" && chown tokenmill "$TOKENMILL_CACHE_DIR"
USER tokenmill
RUN tokenmill warm
EXPOSE 50000
ENTRYPOINT ["tokenmill", "workers"]
CMD ["--host", "localhost", "--port", "50000"]
