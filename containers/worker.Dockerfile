# SPDX-License-Identifier: Apache-2.0
# TokenMill for a cluster: the pool of workers beside each task manager of Flink or worker of Spark, or a whole job. From
# the root of the repository:
#
#   docker build -f containers/worker.Dockerfile -t tokenmill-worker .
#   docker run --network=container:TASK_MANAGER tokenmill-worker          # beside a task manager
#   docker run -v "$PWD:/data" -w /data --entrypoint tokenmill tokenmill-worker run job.yaml
#
# The version of Python must be that of the machine that submits jobs: functions travel pickled.
ARG PYTHON=3.11
FROM python:${PYTHON}-slim

WORKDIR /opt/tokenmill
# The versions that are tested. What an extra needs beside them is in no lock: it comes in the newest version that fits.
COPY locks/runtime.lock locks/
RUN pip install --no-cache-dir --no-deps --require-hashes -r locks/runtime.lock && pip freeze > constraints.txt
COPY pyproject.toml README.md LICENSE ./
COPY tokenizer tokenizer
COPY pipeline pipeline
COPY tokenmill tokenmill
# gcp for Dataflow; stores of objects need none.
ARG EXTRAS=gcp
RUN pip install --no-cache-dir --no-build-isolation -c constraints.txt ".[${EXTRAS}]" && pip check

# Compiled kernels are kept here. They are for the processor of the machine that builds this: on another kind a container
# compiles its own, once, which a volume spares the next.
ENV TOKENMILL_CACHE_DIR=/var/cache/tokenmill
RUN useradd --create-home tokenmill && mkdir -p "$TOKENMILL_CACHE_DIR" && chown tokenmill "$TOKENMILL_CACHE_DIR"
USER tokenmill
WORKDIR /home/tokenmill
RUN tokenmill warm
EXPOSE 50000
ENTRYPOINT ["tokenmill", "workers"]
CMD ["--host", "localhost", "--port", "50000"]
