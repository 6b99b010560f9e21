class FilterModule:
    def filters(self):
        return {"of_the_last": lambda value: f"last {value}"}
