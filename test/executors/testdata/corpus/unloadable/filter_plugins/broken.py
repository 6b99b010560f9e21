import a_library_that_there_is_not


class FilterModule:
    def filters(self):
        return {}
