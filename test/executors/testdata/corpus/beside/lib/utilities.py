"""A library of the project, with the name of a file of the fork server."""


def shout(text):
    return text.upper()
