# The control plane's etcd, for the members of a store.
FROM debian:trixie-slim
COPY etcd /usr/local/bin/
