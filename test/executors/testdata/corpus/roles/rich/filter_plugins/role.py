class FilterModule:
    def filters(self):
        return {"rolefilter": lambda text: text * 3}
