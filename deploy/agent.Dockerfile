# The agent's image. Build it from the root of the repository:
#   docker build -f deploy/agent.Dockerfile -t bridgehead-agent .
# Configure it by environment (BH_GATEWAY, BH_TOKEN_FILE or BH_TOKEN, BH_APP, BH_CA) or mount a
# file and set BH_CONFIG. The file system may be read-only: the agent writes nothing to disk.

FROM rust:1.95-slim-bookworm AS build
RUN apt-get update && apt-get install -y --no-install-recommends make && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY . .
RUN cargo build --locked --profile dist --features jemalloc -p bridgehead-agent --bin bh-agent

FROM debian:bookworm-slim
RUN useradd --system --no-create-home --shell /usr/sbin/nologin --uid 10001 bridgehead
# The public authorities, for a gateway (or an https app) whose certificate one of them signed.
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /src/target/dist/bh-agent /usr/local/bin/bh-agent
COPY LICENSE /usr/share/doc/bridgehead/
USER 10001:10001
# Health, if BH_HEALTH asks for it.
EXPOSE 9091
ENTRYPOINT ["/usr/local/bin/bh-agent"]
CMD ["run"]
