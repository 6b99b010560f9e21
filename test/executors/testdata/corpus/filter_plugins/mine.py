import os


class FilterModule:
    def filters(self):
        return {"shout": lambda text: text.upper() + "!", "parent": lambda _: os.path.basename(__file__)}
