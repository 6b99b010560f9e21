#!/usr/bin/python3
"""Makes a ConfigMap for a Cup, and reports while it does."""

import json
import os
import sys
import time

from kubernetes import client, config
from kubernetes.client.rest import ApiException


def report(**fields):
    """Reports a line."""
    with open(os.environ["ROLEWRIGHT_EVENTS"], "a", encoding="utf-8") as events:
        print(json.dumps(fields), file=events)


spec = json.load(sys.stdin)["object"].get("spec", {})
name, namespace = os.environ["ROLEWRIGHT_NAME"], os.environ["ROLEWRIGHT_NAMESPACE"]
report(type="progress", step="Pour")
report(type="condition", conditionType="Warm", status="True", reason="Poured")
if spec.get("spill"):
    report(type="result", verdict="failed", message="spilled")
    sys.exit(1)
config.load_kube_config()
api = client.CoreV1Api()
while spec.get("wait"):
    try:
        api.read_namespaced_config_map("drink", namespace)
        break
    except ApiException as problem:
        if problem.status != 404:
            raise
        time.sleep(0.5)
secret = os.path.join(os.environ["ROLEWRIGHT_SECRETS_DIR"], "lumps")
mode = os.stat(secret).st_mode & 0o777
data = {"state": f"{os.path.getsize(secret)} bytes, mode {mode:o}"}
api.create_namespaced_config_map(namespace, {"metadata": {"name": name}, "data": data})
report(type="condition", conditionType="Full", status="True", reason="Poured")
report(type="result", verdict="ok", changed=True)
