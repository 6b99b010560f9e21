#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Ansible module: sets fields in the status of a Kubernetes object."""

from __future__ import annotations

import json
import traceback
from typing import Any

from ansible.module_utils.basic import AnsibleModule, env_fallback, missing_required_lib

try:
    from kubernetes import config, dynamic
    from kubernetes.client.exceptions import ApiException
    from urllib3.exceptions import HTTPError

    IMPORT_ERROR = None
except ImportError:
    IMPORT_ERROR = traceback.format_exc()

DOCUMENTATION = r"""
module: object_status
short_description: Sets fields in the status of a Kubernetes object
description:
  - Merges O(status) into the object's status through the status subresource,
    which kubernetes.core.k8s does not write.
  - Fields that are not named stay as they are, conditions in particular. A
    list is replaced as a whole; a field that is null is removed.
  - Sends nothing if the object has these values already.
options:
  api_version: {type: str, required: true, description: The object's apiVersion.}
  kind: {type: str, required: true, description: The object's kind.}
  name: {type: str, required: true, description: The object's name.}
  namespace: {type: str, description: The object's namespace; none for a cluster-scoped object.}
  status: {type: dict, required: true, description: The fields to set.}
  kubeconfig:
    type: path
    description: The kubeconfig; by default that of the operator.
requirements: ["kubernetes >= 22"]
"""

EXAMPLES = r"""
- name: Tell where the cache is
  object_status:
    api_version: cache.example.com/v1alpha1
    kind: Memcached
    name: "{{ ansible_operator_meta.name }}"
    namespace: "{{ ansible_operator_meta.namespace }}"
    status:
      endpoint: cache.default.svc:11211
"""

RETURN = r"""
status:
  description: The object's status afterwards.
  type: dict
  returned: success
"""


def merged(current: Any, patch: Any) -> Any:
    """Return current with a JSON merge patch (RFC 7396) applied; neither argument is changed."""
    if not isinstance(patch, dict):
        return patch
    result = dict(current) if isinstance(current, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result


def explain(err: Exception) -> str:
    """Return the API server's message, or the error's text if the error has none."""
    try:
        return json.loads(err.body)["message"]
    except (AttributeError, KeyError, TypeError, ValueError):
        return str(err)


def set_status(params: dict[str, Any], dry: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    """Set the status unless dry, and return it before and after."""
    client = dynamic.DynamicClient(config.new_client_from_config(params["kubeconfig"]))
    resource = client.resources.get(api_version=params["api_version"], kind=params["kind"])
    if "status" not in resource.subresources:
        raise ValueError("the kind has no status subresource")
    target = {"name": params["name"], "namespace": params["namespace"] or None}
    before = resource.get(**target).to_dict().get("status") or {}
    after = merged(before, params["status"])
    if after == before or dry:
        return before, after
    answer = resource.status.patch(
        body={"status": params["status"]}, content_type="application/merge-patch+json", **target
    )
    return before, answer.to_dict().get("status") or {}


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "api_version": {"type": "str", "required": True},
            "kind": {"type": "str", "required": True},
            "name": {"type": "str", "required": True},
            "namespace": {"type": "str"},
            "status": {"type": "dict", "required": True},
            "kubeconfig": {"type": "path", "fallback": (env_fallback, ["K8S_AUTH_KUBECONFIG"])},
        },
        supports_check_mode=True,
    )
    if IMPORT_ERROR:
        module.fail_json(msg=missing_required_lib("kubernetes"), exception=IMPORT_ERROR)
    expected = (ApiException, HTTPError, ValueError, config.ConfigException, dynamic.exceptions.ResourceNotFoundError)
    try:
        before, after = set_status(module.params, module.check_mode)
    except expected as err:
        module.fail_json(msg="set the status of %(kind)s %(name)s: " % module.params + explain(err))
    module.exit_json(changed=after != before, status=after, diff={"before": before, "after": after})


if __name__ == "__main__":
    main()
