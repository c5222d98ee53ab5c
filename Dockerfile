# kin in a container. Models come in by a volume:
#   docker build -t kin .
#   docker run --rm -it -v "$PWD/models:/models" kin run -m /models/some.gguf -p "Once upon a time"

FROM debian:13-slim AS build
RUN apt-get update && apt-get install -y --no-install-recommends make
WORKDIR /src
# Only what the set-up reads, so that a change of the code does not install everything anew.
COPY tools/setup tools/
RUN tools/setup
COPY . .
RUN make all && cmake --install build --prefix /usr/local

FROM debian:13-slim
# The apt source that tools/setup derived; it holds ggml.
COPY --from=build /etc/apt/sources.list.d/kin-* /etc/apt/sources.list.d/
RUN apt-get update \
    && apt-get install -y --no-install-recommends libggml0 libggml0-backend-vulkan mesa-vulkan-drivers libpcre2-8-0 libjansson4 \
        libuv1t64 libssl3t64 libllhttp9.2 libwslay1 libcurl4t64 ca-certificates \
    && rm -rf /var/lib/apt/lists/*
COPY --from=build /usr/local/bin/kin /usr/local/bin/
ENTRYPOINT ["kin"]
CMD ["--help"]
