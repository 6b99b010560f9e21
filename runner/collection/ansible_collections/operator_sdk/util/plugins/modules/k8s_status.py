"""k8s_status of operator_sdk.util, for projects that have not installed that collection."""

from __future__ import annotations

DOCUMENTATION = r"""
module: k8s_status
short_description: Write into the status of an object
description:
  - Rolewright's version of this module of operator_sdk.util 0.5.0. It is used if that collection is not installed.
  - In new roles, use M(rolewright.operator.status), which needs no name of the object.
options:
  api_version:
    description: The API version of the object.
    type: str
    required: true
    aliases: [api, version]
  kind:
    description: The kind of the object.
    type: str
    required: true
  name:
    description: The name of the object.
    type: str
    required: true
  namespace:
    description: The namespace of the object. Leave it out for a cluster-scoped object.
    type: str
  status:
    description: Fields of the status, which are merged into the existing status.
    type: dict
  conditions:
    description: Conditions. Each replaces the condition of the same type.
    type: list
    elements: dict
  replace:
    description: Replace the status instead of merging it.
    type: bool
    default: false
    aliases: [force]
  replace_lists:
    description: Replace lists in I(status), instead of adding the elements that they lack.
    type: bool
    default: false
  kubeconfig:
    description: The kubeconfig to use instead of the run's.
    type: path
author: The Rolewright authors
"""

EXAMPLES = r"""
- operator_sdk.util.k8s_status:
    api_version: cache.example.com/v1
    kind: Memcached
    name: "{{ ansible_operator_meta.name }}"
    namespace: "{{ ansible_operator_meta.namespace }}"
    status:
      nodes: 3
"""

RETURN = r"""
result:
  description: The object as the API server has it after the task.
  returned: success
  type: dict
"""

import copy  # noqa: E402, its documentation stands first
import datetime  # noqa: E402
import re  # noqa: E402
import urllib.parse  # noqa: E402

from ansible.module_utils.basic import AnsibleModule  # noqa: E402

from ansible_collections.rolewright.operator.plugins.module_utils.run import Refused, Run  # noqa: E402

CONDITION = {
    "type": {"type": "str", "required": True},
    "status": {"type": "str", "required": True, "choices": ["True", "False", "Unknown"]},
    "reason": {"type": "str"},
    "message": {"type": "str"},
    "lastHeartbeatTime": {"type": "str"},
    "lastTransitionTime": {"type": "str"},
}

#: How often a write is tried if other clients, such as the operator itself, change the object at the same time.
TRIES = 5

REASON = re.compile(r"[A-Za-z][A-Za-z0-9]*")
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d)?(\.\d+)?(Z|[+-]\d\d:\d\d)")


def check_condition(condition: dict) -> None:
    """Raise ValueError if the API conventions do not allow a condition."""
    reason = condition.get("reason")
    if reason and not REASON.fullmatch(reason):
        raise ValueError(f"reason: {reason!r} is not one word in CamelCase")
    for name in ("lastHeartbeatTime", "lastTransitionTime"):
        if condition.get(name) and not TIME.fullmatch(condition[name]):
            raise ValueError(f"{name}: {condition[name]!r} is no time of RFC 3339, as 2026-01-31T12:00:00Z is")


def merged_conditions(there: list, wished: list[dict], now: str) -> list:
    """Return the conditions, with each wished one in the place of the one with the same type. Of the latter, only the
    transition time is kept, and only if the status stays the same."""
    result = copy.deepcopy(there)
    for wish in wished:
        new = {name: value for name, value in wish.items() if value is not None}
        at = next((i for i, c in enumerate(result) if isinstance(c, dict) and c.get("type") == new["type"]), None)
        if at is None:
            result.append({"lastTransitionTime": now, **new})
            continue
        old = result[at]
        since = old.get("lastTransitionTime", now) if old.get("status") == new["status"] else now
        result[at] = {"lastTransitionTime": since, **new}
    return result


def merged(there: object, wished: object, replace_lists: bool) -> object:
    """Return a value with another one merged into it."""
    if isinstance(there, dict) and isinstance(wished, dict):
        result = dict(there)
        for name, value in wished.items():
            result[name] = merged(there.get(name), value, replace_lists)
        return result
    if isinstance(there, list) and isinstance(wished, list) and not replace_lists:
        return there + [value for value in wished if value not in there]
    return wished


def path_of(run: Run, api_version: str, kind: str, namespace: str | None, name: str) -> str:
    """Return the API path of an object. Raise Refused if its kind is not served, or has no status subresource."""
    root = "/apis/" + api_version if "/" in api_version else "/api/" + api_version
    if not re.fullmatch(r"/apis?(/[A-Za-z0-9.-]+){1,2}", root):
        raise Refused(0, f"api_version: {api_version!r} is none")
    resources = run.request("GET", root).get("resources") or []
    names = {r["name"] for r in resources}
    for r in resources:
        if r["kind"] == kind and "/" not in r["name"]:
            if r["name"] + "/status" not in names:
                raise Refused(0, f"{kind} of {api_version} has no status subresource")
            where = "/namespaces/" + urllib.parse.quote(namespace, safe="") if r.get("namespaced") and namespace else ""
            return f"{root}{where}/{r['name']}/{urllib.parse.quote(name, safe='')}"
    raise Refused(404, f"the API server does not serve {kind} of {api_version}")


def write(run: Run, params: dict, check: bool) -> dict:
    """Write what the task says into the status of the object, and return the result of the module."""
    path = path_of(run, params["api_version"], params["kind"], params["namespace"], params["name"])
    for tried in range(1, TRIES + 1):
        try:
            return write_once(run, path, params, check)
        except Refused as error:
            if error.code != 409 or tried == TRIES:
                raise
    raise AssertionError("not reached")


def write_once(run: Run, path: str, params: dict, check: bool) -> dict:
    """Read the object, and write its status. Raise Refused with the code 409 if another client has written meanwhile."""
    is_now = run.request("GET", path)
    wished = copy.deepcopy(is_now)
    before = is_now.get("status") or {}
    if params["conditions"]:
        now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        wished["status"] = {**before, "conditions": merged_conditions(before.get("conditions") or [], params["conditions"], now)}
    elif params["replace"]:
        wished["status"] = params["status"] or {}
    else:
        wished["status"] = merged(before, params["status"] or {}, params["replace_lists"])
    if wished["status"] == before:
        return {"changed": False, "result": is_now}
    if check:
        return {"changed": True, "result": wished}
    # The resource version in the object lets the API server refuse the write if another client has written meanwhile.
    if params["replace"]:
        return {"changed": True, "result": run.request("PUT", path + "/status", wished)}
    return {"changed": True, "result": run.request("PATCH", path + "/status", wished, "application/merge-patch+json")}


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "api_version": {"type": "str", "required": True, "aliases": ["api", "version"]},
            "kind": {"type": "str", "required": True},
            "name": {"type": "str", "required": True},
            "namespace": {"type": "str"},
            "status": {"type": "dict"},
            "conditions": {"type": "list", "elements": "dict", "options": CONDITION},
            "replace": {"type": "bool", "default": False, "aliases": ["force"]},
            "replace_lists": {"type": "bool", "default": False},
            "kubeconfig": {"type": "path"},
        },
        mutually_exclusive=[["status", "conditions"]],
        required_one_of=[["status", "conditions"]],
        supports_check_mode=True)
    try:
        for condition in module.params["conditions"] or []:
            check_condition(condition)
        result = write(Run(module.params["kubeconfig"] or ""), module.params, module.check_mode)
    except ValueError as error:
        module.fail_json(msg="conditions: " + str(error))
    except Refused as error:
        module.fail_json(msg=str(error), error=error.code, status=error.code)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
