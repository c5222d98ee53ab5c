# kin in a container. Models come in by a volume:
#   docker build -t kin .
#   docker run --rm -it -v "$PWD/models:/models" kin run -m /models/some.gguf -p "Once upon a time"
#
# tools/check-image does the same without Docker.

FROM debian:13-slim AS build
RUN apt-get update && apt-get install -y --no-install-recommends make dpkg-dev file
WORKDIR /src
# Only what the set-up reads, so that a change of the code does not install everything anew.
COPY tools/setup tools/
RUN tools/setup
COPY . .
RUN tools/deb

FROM debian:13-slim
# The apt source that tools/setup derived; it holds ggml.
COPY --from=build /etc/apt/sources.list.d/kin-* /etc/apt/sources.list.d/
# The package names the libraries that the program was linked with.
COPY --from=build /src/build-deb/kin_*.deb /tmp/
RUN apt-get update \
    && apt-get install -y --no-install-recommends /tmp/kin_*.deb libggml0-backend-vulkan mesa-vulkan-drivers ca-certificates \
    && rm -rf /var/lib/apt/lists/* /tmp/kin_*.deb
ENTRYPOINT ["kin"]
CMD ["--help"]
