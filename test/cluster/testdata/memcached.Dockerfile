# What the example operator's role runs, where there is no registry to pull it from.
FROM debian:trixie-slim
RUN apt-get update -q && apt-get install -q --yes --no-install-recommends memcached && rm -rf /var/lib/apt/lists/*
USER 11211
ENTRYPOINT ["memcached"]
