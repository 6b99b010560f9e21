# What our image is measured against (`make image-size`): the same packages on the same base, the way they are usually
# installed. --build-arg ALL=ansible takes kubernetes.core from the package that has it, with all collections.
FROM rolewright/operator:size AS ours
FROM debian:trixie-slim
ARG ALL=
RUN apt-get update \
 && apt-get install --yes --no-install-recommends \
      ansible-core ca-certificates python3-ansible-runner python3-jsonpatch python3-kubernetes tini ${ALL}
COPY --from=ours /usr/local/bin/rolewright /usr/local/bin/rolewright
