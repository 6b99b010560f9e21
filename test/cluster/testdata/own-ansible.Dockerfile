# An image that has Ansible already, and a role: an Execution Environment.
FROM debian:trixie-slim AS environment
RUN apt-get update -q && apt-get install -q --yes --no-install-recommends ansible-core python3-ansible-runner && rm -rf /var/lib/apt/lists/*
ENV LANG=C.UTF-8
RUN echo 'made here' >/etc/own-ansible
COPY jobs/roles/water /var/tmp/rolewright-e2e/roles/water

# It is given the program alone.
FROM environment
COPY --from=rolewright/binary:e2e /rolewright /usr/local/bin/ansible-operator
RUN ansible-operator version >/version && ansible-operator doctor --offline --executor=warm --watches-file=/dev/null >/doctor || { cat /doctor; exit 1; }
