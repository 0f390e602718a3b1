# An actor for Gymnasium environments or Unity players: ONNX Runtime, no torch, and only protos/ and actor_client/ of this
# project.
#
#   docker build -f deploy/docker/actor.Dockerfile -t rollcast-actor .
#
# PYTHON_IMAGE  a Debian or Ubuntu image with Python 3.11 or newer and its venv module
# EXTRAS        extras of pyproject.toml; actor,gym,box2d adds LunarLander, actor,gym,video adds what --video needs
# PACKAGES      further packages for your own environments, in pip's form: "ale-py==0.11.2 shimmy"
# APT_PACKAGES  Debian packages for them or for a Unity build: "libgl1 libxrandr2"

ARG PYTHON_IMAGE=python:3.11-slim-bookworm

FROM ${PYTHON_IMAGE} AS build
ARG EXTRAS=actor,gym,unity
ARG PACKAGES=""
WORKDIR /build
COPY deploy/docker/wheels/ wheels/
COPY deploy/docker/install.sh deploy/docker/requirements.py deploy/hashes.py deploy/hashes.txt pyproject.toml constraints.txt ./
RUN sh install.sh dependencies "${EXTRAS}"
COPY README.md LICENSE ./
COPY protos/ protos/
COPY actor_client/ actor_client/
RUN sh install.sh project rollcast-actor
# A new volume gets its owner from the folder on which it is mounted.
RUN mkdir /players && chown 10001:10001 /players

FROM ${PYTHON_IMAGE}
ARG APT_PACKAGES=""
RUN [ -z "${APT_PACKAGES}" ] || { apt-get update && apt-get install -y --no-install-recommends ${APT_PACKAGES} && \
    rm -rf /var/lib/apt/lists/*; }
ARG REVISION=unknown
LABEL org.opencontainers.image.title="rollcast-actor" \
      org.opencontainers.image.description="Steps environments and streams the experience to a Rollcast learner" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=build /opt/rollcast /opt/rollcast
COPY --from=build --chown=10001:10001 /players /players
ENV PATH=/opt/rollcast/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    HOME=/tmp \
    ROLLCAST_REVISION=${REVISION} \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1
# The actor searches your own environments here.
WORKDIR /environments
USER 10001:10001
STOPSIGNAL SIGTERM
EXPOSE 9465
ENTRYPOINT ["rollcast", "act"]
CMD ["gym"]
