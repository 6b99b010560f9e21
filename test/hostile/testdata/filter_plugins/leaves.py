"""What a role of the corpus needs to get at the data wherever it stands."""


def leaves(value):
    """Every string of a value, the keys of its maps included, as the same objects."""
    if isinstance(value, dict):
        found = []
        for key, item in value.items():
            found.append(key)
            found.extend(leaves(item))
        return found
    if isinstance(value, (list, tuple)):
        return [leaf for item in value for leaf in leaves(item)]
    return [value] if isinstance(value, str) else []


class FilterModule:
    def filters(self):
        return {"leaves": leaves}
