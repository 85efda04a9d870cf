# SPDX-License-Identifier: Apache-2.0
# The workers of Dataflow, which start with Beam's own program. From the root of the repository:
#
#   docker build -f containers/worker.Dockerfile --build-arg EXTRAS=gcp -t tokenmill-worker .
#   docker build -f containers/dataflow.Dockerfile -t tokenmill-dataflow .
ARG BEAM=apache/beam_python3.11_sdk:2.77.0
FROM ${BEAM} AS beam
FROM tokenmill-worker

COPY --from=beam /opt/apache/beam/boot /opt/apache/beam/
# That program makes an environment for what a job brings along. TokenMill's bring nothing: all is in this one.
ENV RUN_PYTHON_SDK_IN_DEFAULT_ENVIRONMENT=1
# As Beam's own images; whether Dataflow starts others was not tried. Kernels are read by whom their folder belongs to.
USER root
RUN chown -R root "$TOKENMILL_CACHE_DIR"
ENTRYPOINT ["/opt/apache/beam/boot"]
CMD []
