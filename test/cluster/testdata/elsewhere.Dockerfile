# An operator's image, with the program where a test on the node has it.
FROM scratch
COPY --from=rolewright/binary:e2e /rolewright /var/tmp/rolewright-e2e/rolewright
