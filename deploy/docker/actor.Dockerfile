# An actor, of Gymnasium environments or Unity players: ONNX Runtime, no torch, and of this project only protos/ and
# actor_client/.
#
#   docker build -f deploy/docker/actor.Dockerfile -t rollcast-actor .
#
# PYTHON_IMAGE  a Debian or Ubuntu image with Python 3.11 or newer and its venv module
# EXTRAS        extras of pyproject.toml; actor,gym,box2d adds LunarLander
# PACKAGES      what your own environments need besides, as pip takes it: "ale-py==0.11.2 shimmy"
# APT_PACKAGES  what they, or a Unity build, need of Debian: "libgl1 libxrandr2"

ARG PYTHON_IMAGE=python:3.11-slim-bookworm

FROM ${PYTHON_IMAGE} AS build
ARG EXTRAS=actor,gym,unity
ARG PACKAGES=""
WORKDIR /build
COPY deploy/docker/wheels/ wheels/
COPY deploy/docker/install.sh deploy/docker/requirements.py pyproject.toml constraints.txt ./
RUN sh install.sh dependencies "${EXTRAS}"
COPY README.md LICENSE ./
COPY protos/ protos/
COPY actor_client/ actor_client/
RUN sh install.sh project rollcast-actor
# A new volume takes its owner from the folder it is mounted on.
RUN mkdir /players && chown 10001:10001 /players

FROM ${PYTHON_IMAGE}
ARG APT_PACKAGES=""
RUN [ -z "${APT_PACKAGES}" ] || { apt-get update && apt-get install -y --no-install-recommends ${APT_PACKAGES} && \
    rm -rf /var/lib/apt/lists/*; }
ARG REVISION=unknown
LABEL org.opencontainers.image.title="rollcast-actor" \
      org.opencontainers.image.description="Steps environments and streams what happens to a Rollcast learner" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=build /opt/rollcast /opt/rollcast
COPY --from=build --chown=10001:10001 /players /players
ENV PATH=/opt/rollcast/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    HOME=/tmp \
    ROLLCAST_REVISION=${REVISION} \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1
# Environments of your own are looked for here.
WORKDIR /environments
USER 10001:10001
STOPSIGNAL SIGTERM
EXPOSE 9465
ENTRYPOINT ["rollcast-actor"]
CMD ["gym"]
