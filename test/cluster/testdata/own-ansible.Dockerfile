# An image that has Ansible already, and is given the program alone.
FROM debian:trixie-slim
RUN apt-get update -q && apt-get install -q --yes --no-install-recommends ansible-core python3-ansible-runner && rm -rf /var/lib/apt/lists/*
COPY --from=rolewright/binary:e2e /rolewright /usr/local/bin/ansible-operator
ENV LANG=C.UTF-8
RUN ansible-operator version >/version && ansible-operator doctor --offline --executor=warm --watches-file=/dev/null >/doctor || { cat /doctor; exit 1; }
