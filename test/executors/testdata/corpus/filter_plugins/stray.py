import os
import time


def stray(value):
    if os.fork() == 0:
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in range(3):
            os.dup2(null, descriptor)
        time.sleep(86400)
        os._exit(0)
    return value


class FilterModule:
    def filters(self):
        return {"stray": stray}
