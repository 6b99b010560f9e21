class FilterModule:
    def filters(self):
        return {"of_the_first": lambda value: f"first {value}"}
