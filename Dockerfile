# The example operator's image. An operator of your own replaces roles/,
# playbooks/ and watches.yaml in the last lines.

FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY cmd cmd
COPY controller controller
COPY internal internal
COPY runner runner
RUN CGO_ENABLED=0 go build -trimpath -ldflags='-s -w' -o /rolewright ./cmd/rolewright

# Debian has kubernetes.core only in the package of all collections: it is
# installed here, and the one collection is taken over.
FROM debian:trixie-slim AS collections
RUN apt-get update && apt-get install --yes --no-install-recommends ansible \
 && mkdir -p /collections/ansible_collections/kubernetes \
 && cp -r /usr/lib/python3/dist-packages/ansible_collections/kubernetes/core /collections/ansible_collections/kubernetes/

FROM debian:trixie-slim
RUN apt-get update \
 && apt-get install --yes --no-install-recommends \
      ansible-core python3-ansible-runner python3-jsonpatch python3-kubernetes ca-certificates tini \
 && rm -rf /var/lib/apt/lists/*
COPY --from=collections /collections /usr/share/ansible/collections
COPY --from=build /rolewright /usr/local/bin/rolewright

# An arbitrary user of group 0 may run the image: what is written to belongs to
# the group. Nothing else does.
ENV HOME=/opt/ansible LANG=C.UTF-8
RUN ln -s rolewright /usr/local/bin/ansible-operator \
 && mkdir -p /etc/ansible "$HOME/.ansible/tmp" \
 && printf '[defaults]\nroles_path = /opt/ansible/roles\n' > /etc/ansible/ansible.cfg \
 && printf 'localhost ansible_connection=local\n' > /etc/ansible/hosts \
 && chown -R 1001:0 "$HOME" && chmod -R ug+rwX "$HOME"
WORKDIR /opt/ansible
USER 1001:0
ENTRYPOINT ["/usr/bin/tini", "--", "/usr/local/bin/ansible-operator", "run", "--watches-file=./watches.yaml"]

COPY --chown=1001:0 watches.yaml ./
COPY --chown=1001:0 playbooks playbooks
COPY --chown=1001:0 roles roles
