# The gateway's image. Build it from the root of the repository:
#   docker build -f deploy/gateway.Dockerfile -t bridgehead-gateway .
# Mount a configuration at /etc/bridgehead/gateway.toml; certificates beside it must be readable
# for user 10001. The file system may be read-only: the gateway writes nothing to disk.

FROM rust:1.95-slim-bookworm AS build
RUN apt-get update && apt-get install -y --no-install-recommends make && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY . .
RUN cargo build --locked --profile dist --features jemalloc -p bridgehead-gateway --bin bh-gateway

FROM debian:bookworm-slim
RUN useradd --system --no-create-home --shell /usr/sbin/nologin --uid 10001 bridgehead
COPY --from=build /src/target/dist/bh-gateway /usr/local/bin/bh-gateway
COPY LICENSE /usr/share/doc/bridgehead/
USER 10001:10001
# Public without and with TLS, tunnel, admin.
EXPOSE 8080 8443 7000 9090
# SIGTERM, Docker's default, drains; give it longer than `grace` before it is killed.
ENTRYPOINT ["/usr/local/bin/bh-gateway"]
CMD ["serve", "--config", "/etc/bridgehead/gateway.toml"]
