DOCUMENTATION = """
module: shouted
short_description: an action
description: an action
"""
