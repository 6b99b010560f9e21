"""Wait until something is true of an object in the cluster."""

from __future__ import annotations

DOCUMENTATION = r"""
module: wait_for
short_description: Wait for an object, without a process
description:
  - Checks whether something is true of an object in the cluster. If it is, the task ends, and the role continues.
  - If it is not, the task returns I(parked). End the play in this case. The run succeeds, and the operator runs the role
    again as soon as it is true, with the cause C(waited). Meanwhile the run's object is not Ready, and no process waits. The
    operator may restart.
  - The next run begins at the first task, so the tasks before this one must be able to find their work done.
  - When I(timeout) is over, the operator also runs the role. The task then fails, and says what was missing.
options:
  api_version:
    description: The API version of the object.
    type: str
    default: v1
  kind:
    description: The kind of the object.
    type: str
    required: true
  name:
    description: The name of the object. It need not exist yet.
    type: str
    required: true
  namespace:
    description: The namespace of the object; by default that of the run's object. Empty for a cluster-scoped object.
    type: str
  ready:
    description:
      - Wait until the object is ready. A Deployment, StatefulSet or DaemonSet is ready when all Pods are up to date and
        available, a Job when it is complete, a Pod when it is Ready or has succeeded, a PersistentVolumeClaim when it is
        bound, and any other object when its condition Ready is True.
    type: bool
    default: false
  condition:
    description: Wait for a condition, such as C(Ready) or C(Ready=False).
    type: str
  jsonpath:
    description: Wait for a field. Give its path without wildcards, such as C({.status.phase}).
    type: str
  value:
    description: The value that the field must have, as text, a number or a boolean. Without it, the field only has to exist.
    type: raw
  timeout:
    description: The total number of seconds to wait.
    type: int
    default: 600
  mode:
    description:
      - With C(park), the operator waits. With C(block), the task itself waits, in a process.
    type: str
    choices: [park, block]
    default: park
attributes:
  check_mode:
    description: Checks once, and does not wait.
    support: full
author: The Rolewright authors
"""

EXAMPLES = r"""
- name: Wait for the database
  rolewright.operator.wait_for:
    api_version: apps/v1
    kind: StatefulSet
    name: "{{ ansible_operator_meta.name }}-db"
    ready: true
    timeout: 900
  register: database

- name: Go on when it is ready
  ansible.builtin.meta: end_play
  when: database.parked

- name: Wait for a load balancer, here
  rolewright.operator.wait_for:
    kind: Service
    name: web
    jsonpath: "{.status.loadBalancer.ingress[0].ip}"
    mode: block
    timeout: 60
"""

RETURN = r"""
met:
  description: Whether the object already is as the task wants it.
  returned: always
  type: bool
parked:
  description: Whether the operator waits, so that the play has to end.
  returned: always
  type: bool
detail:
  description: What the operator has found instead.
  returned: when it is not met
  type: str
"""

import time  # noqa: E402, its documentation stands first
import typing  # noqa: E402

from ansible.module_utils.basic import AnsibleModule  # noqa: E402

from ansible_collections.rolewright.operator.plugins.module_utils.run import Refused, Run  # noqa: E402

#: The first and the longest pause between two checks with mode=block, in seconds.
PAUSES = (1.0, 10.0)


def goal(params: dict) -> str:
    """Return what to wait for, in the form that the operator expects."""
    if params["ready"]:
        return "ready"
    if params["condition"]:
        return "condition=" + params["condition"]
    path, value = params["jsonpath"], params["value"]
    if not path.startswith("{"):
        path = "{" + path + "}"
    if isinstance(value, bool):
        value = str(value).lower()  # as JSON has it
    return f"jsonpath={path}" + ("" if value in (None, "") else f"={value}")


def wanted(params: dict, namespace: str, park: bool) -> dict:
    """Return the request to the operator."""
    return {"apiVersion": params["api_version"], "kind": params["kind"], "namespace": namespace, "name": params["name"],
            "for": goal(params), "timeout": params["timeout"], "park": park}


def wait(run: Run, request: dict, timeout: float, sleep: typing.Callable[[float], None] = time.sleep) -> dict:
    """Send the request until it is met or the time is over. Return the last answer, with timedOut.

    A failed check is repeated if it may pass, as while the API server restarts.
    """
    end, pause = time.monotonic() + timeout, PAUSES[0]
    while True:
        try:
            answer = run.call("wait", request)
        except Refused as error:
            if 0 < error.code < 500 and error.code != 429 or time.monotonic() >= end:
                raise
            answer = {}
        left = end - time.monotonic()
        if answer.get("met") or left <= 0:
            return {**answer, "timedOut": not answer.get("met")}
        sleep(min(pause, left))
        pause = min(pause * 1.5, PAUSES[1])


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "api_version": {"type": "str", "default": "v1"},
            "kind": {"type": "str", "required": True},
            "name": {"type": "str", "required": True},
            "namespace": {"type": "str"},
            "ready": {"type": "bool", "default": False},
            "condition": {"type": "str"},
            "jsonpath": {"type": "str"},
            "value": {"type": "raw"},
            "timeout": {"type": "int", "default": 600},
            "mode": {"type": "str", "default": "park", "choices": ["park", "block"]},
        },
        required_by={"value": ("jsonpath",)},
        supports_check_mode=True)
    params = module.params
    if sum(1 for name in ("ready", "condition", "jsonpath") if params[name]) != 1:
        module.fail_json(msg="give one of ready, condition and jsonpath")
    try:
        run = Run()
        namespace = params["namespace"]
        if namespace is None:
            namespace = run.about()["object"].get("namespace") or ""
        block = params["mode"] == "block"
        request = wanted(params, namespace, not block and not module.check_mode)
        if block and not module.check_mode:
            answer = wait(run, request, params["timeout"])
        else:
            answer = run.call("wait", request)
    except Refused as error:
        module.fail_json(msg=str(error), code=error.code)
    result = {"changed": False, "met": bool(answer.get("met")), "parked": bool(answer.get("parked"))}
    if answer.get("detail"):
        result["detail"] = answer["detail"]
    if answer.get("timedOut"):
        module.fail_json(msg=f"{params['kind']} {params['name']} has not come to {goal(params)} within {params['timeout']} seconds: "
                             f"{answer.get('detail', '')}", **result)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
