# A learner. With torch's CPU builds:
#
#   docker build -f deploy/docker/learner.Dockerfile -t rollcast-learner .
#
# with CUDA, from the default package index (several GB):
#
#   docker build -f deploy/docker/learner.Dockerfile --build-arg TORCH_INDEX= -t rollcast-learner:cuda .
#
# PYTHON_IMAGE  a Debian or Ubuntu image with Python 3.11 or newer and its venv module; the NVIDIA driver's libraries
#               come from the host, CUDA's own from torch's wheels
# TORCH_INDEX   the package index for torch; empty is the default one
# EXTRAS        extras of pyproject.toml
# PACKAGES      further packages for your own plug-ins, in pip's form

ARG PYTHON_IMAGE=python:3.11-slim-bookworm

FROM ${PYTHON_IMAGE} AS build
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
ARG EXTRAS=learner,certs,gpu
ARG PACKAGES=""
WORKDIR /build
COPY deploy/docker/wheels/ wheels/
COPY deploy/docker/install.sh deploy/docker/requirements.py deploy/hashes.py deploy/hashes.txt pyproject.toml constraints.txt ./
RUN sh install.sh dependencies "${EXTRAS}"
COPY README.md LICENSE ./
COPY protos/ protos/
COPY learner/ learner/
RUN sh install.sh project rollcast-learner
# A new volume gets its owner from the folder on which it is mounted.
RUN mkdir /results && chown 10001:10001 /results

FROM ${PYTHON_IMAGE}
ARG REVISION=unknown
LABEL org.opencontainers.image.title="rollcast-learner" \
      org.opencontainers.image.description="Trains policies from the experience of Rollcast actors" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=build /opt/rollcast /opt/rollcast
COPY --from=build --chown=10001:10001 /results /results
ENV PATH=/opt/rollcast/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    HOME=/tmp \
    ROLLCAST_REVISION=${REVISION} \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1
WORKDIR /runs
USER 10001:10001
STOPSIGNAL SIGTERM
VOLUME /results
EXPOSE 50051 9464
ENTRYPOINT ["rollcast"]
CMD ["serve", "/runs/run.yaml", "--resume=auto"]
