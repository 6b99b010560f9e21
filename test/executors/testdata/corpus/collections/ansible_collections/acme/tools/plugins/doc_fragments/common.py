class ModuleDocFragment:
    DOCUMENTATION = """
options:
  value: {description: a value, type: int}
"""
