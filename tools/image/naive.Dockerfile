# `make image-size` compares our image with this one: the same packages on the same base, installed in the usual way.
# --build-arg ALL=ansible adds kubernetes.core from Debian's package of all collections.
FROM rolewright/operator:size AS ours
FROM debian:trixie-slim
ARG ALL=
RUN apt-get update \
 && apt-get install --yes --no-install-recommends \
      ansible-core ca-certificates python3-ansible-runner python3-jsonpatch python3-kubernetes tini ${ALL}
COPY --from=ours /usr/local/bin/rolewright /usr/local/bin/rolewright
