# Rolewright's images, by target:
#   binary    the program alone, to copy into any image that has Ansible:
#             COPY --from=rolewright/binary /rolewright /usr/local/bin/ansible-operator
#   operator  the program with Ansible: the base of your own operator's image
#   charts    the program for operators of Helm charts, without Ansible
#   example   the example operator, and the default
#
# docs/image.md says what is in them and how to use them.

# Debian trixie or later, or an image based on it.
ARG BASE=debian:trixie-slim

FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY cmd cmd
COPY config config
COPY controller controller
COPY internal internal
COPY runner runner
ARG VERSION=unknown GIT_VERSION=unknown COMMIT=unknown
# v1.0.0 is the validated FIPS module, see docs/security.md.
ARG GOFIPS140=off
RUN CGO_ENABLED=0 go build -trimpath -o /rolewright -ldflags="-s -w \
      -X github.com/rolewright/rolewright/internal/version.Version=${VERSION} \
      -X github.com/rolewright/rolewright/internal/version.GitVersion=${GIT_VERSION} \
      -X github.com/rolewright/rolewright/internal/version.Commit=${COMMIT}" ./cmd/rolewright \
 && go version -m /rolewright >/rolewright.modules

# The program for charts is the only one with Helm's libraries.
FROM golang:1.26 AS build-charts
WORKDIR /src/cmd/rolewright-helm
COPY cmd/rolewright-helm/go.mod cmd/rolewright-helm/go.sum ./
RUN go mod download
COPY cmd/rolewright-helm ./
ARG GOFIPS140=off
RUN CGO_ENABLED=0 go build -trimpath -o /rolewright-helm -ldflags="-s -w" .

FROM scratch AS binary
COPY --from=build /rolewright /rolewright
USER 1001:0
ENTRYPOINT ["/rolewright"]

FROM ${BASE} AS ansible
# Debian has kubernetes.core only in its package of all collections, so it is
# extracted from there. The image needs no network, compiler or pip later on.
# All Python files get the same time and are compiled here, so that the same
# packages make the same image and no start compiles them again. Some files are
# for other versions of Python and do not compile: TestImage checks those that
# matter.
ARG SOURCE_DATE_EPOCH=1767225600
RUN set -eu; export DEBIAN_FRONTEND=noninteractive; \
    apt-get update -q; \
    apt-get install -q --yes --no-install-recommends \
      ansible-core ca-certificates python3-ansible-runner python3-jsonpatch python3-kubernetes tini; \
    collections=/usr/share/ansible/collections/ansible_collections; \
    mkdir -p "$collections/kubernetes" /usr/share/ansible/openshift; \
    cd /tmp; apt-get download -q ansible; \
    dpkg-deb --fsys-tarfile ansible_*.deb >ansible.tar; \
    tar -x -f ansible.tar --no-same-owner -C "$collections/kubernetes" --strip-components=7 \
      ./usr/lib/python3/dist-packages/ansible_collections/kubernetes/core; \
    rm -rf ansible_*.deb ansible.tar "$collections/kubernetes/core/tests" /var/lib/apt/lists/* /var/cache/apt/* /var/cache/debconf/*-old \
      /var/cache/ldconfig/aux-cache /var/log/apt /var/log/*.log /usr/share/doc-base /usr/share/man/* /usr/share/pixmaps \
      /usr/share/ieee-data/*.csv; \
    for dir in /usr/lib/python3 /usr/lib/python3.1* "$collections"; do \
      find "$dir" -name __pycache__ -prune -exec rm -rf {} +; \
      find "$dir" -name '*.py' -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +; \
      python3 -m compileall -q -j 0 --invalidation-mode timestamp "$dir" >/dev/null || true; \
    done; \
    chmod go-w /run/lock /var/mail /var/tmp; chmod g-w /var/log/lastlog /var/log/btmp /var/log/wtmp; \
    echo 'ansible:x:1001:0::/opt/ansible:/usr/sbin/nologin' >>/etc/passwd; \
    mkdir -p /etc/ansible; \
    printf '[defaults]\nroles_path = /opt/ansible/roles\nlibrary = /usr/share/ansible/openshift\n' >/etc/ansible/ansible.cfg; \
    printf 'localhost ansible_connection=local\n' >/etc/ansible/hosts; \
    install -d -o 1001 -g 0 -m 0755 /opt/ansible /opt/ansible/.ansible /opt/ansible/.ansible/tmp; \
    ln -s rolewright /usr/local/bin/ansible-operator; ln -s usr/bin/tini /tini
COPY --from=build /rolewright /usr/local/bin/rolewright

# The image's contents in CycloneDX format: Debian packages, Go modules, collections.
FROM ansible AS contents
COPY --from=build /rolewright.modules /rolewright.modules
COPY tools/image/sbom.py /sbom.py
ARG VERSION=unknown
RUN python3 /sbom.py /rolewright.modules "${VERSION}" >/rolewright.cdx.json

FROM ansible AS operator
COPY --from=contents /rolewright.cdx.json /usr/share/sbom/rolewright.cdx.json
ENV HOME=/opt/ansible USER_NAME=ansible USER_UID=1001 LANG=C.UTF-8
WORKDIR /opt/ansible
USER 1001:0
ENTRYPOINT ["/usr/local/bin/ansible-operator", "run", "--watches-file=./watches.yaml"]
ARG VERSION=unknown COMMIT=unknown
LABEL org.opencontainers.image.title="Rolewright" \
      org.opencontainers.image.description="Operators written in Ansible" \
      org.opencontainers.image.source="https://github.com/rolewright/rolewright" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${COMMIT}"

# The base of an operator of charts: COPY watches.yaml ./ and COPY helm-charts helm-charts after FROM.
FROM ${BASE} AS charts
RUN echo 'helm:x:1001:0::/opt/helm:/usr/sbin/nologin' >>/etc/passwd; install -d -o 1001 -g 0 -m 0755 /opt/helm; \
    ln -s rolewright /usr/local/bin/helm-operator
COPY --from=build /rolewright /usr/local/bin/rolewright
COPY --from=build-charts /rolewright-helm /usr/local/bin/rolewright-helm
ENV HOME=/opt/helm LANG=C.UTF-8
WORKDIR /opt/helm
USER 1001:0
ENTRYPOINT ["/usr/local/bin/helm-operator", "run", "--watches-file=./watches.yaml"]

# Your own operator has these lines after FROM, and whatever else its content needs.
FROM operator AS example
COPY watches.yaml ./
COPY playbooks playbooks
COPY roles roles
