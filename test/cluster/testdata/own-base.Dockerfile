# A base of somebody's own, made of Debian's.
FROM debian:trixie-slim
RUN echo 'made here' >/etc/own-base
