DOCUMENTATION = """
name: extra
short_description: a project's own
description: a project's own
options:
  stage: {ini: [{key: stage, section: vars_extra}], env: [{name: ANSIBLE_VARS_PLUGIN_STAGE}]}
extends_documentation_fragment: [vars_plugin_staging]
"""
from ansible.plugins.vars import BaseVarsPlugin


class VarsModule(BaseVarsPlugin):
    def get_vars(self, loader, path, entities, cache=True):
        return {"of_plugin": "vars plugin"}
