class FilterModule:
    def filters(self):
        return {"backwards": lambda text: text[::-1]}
