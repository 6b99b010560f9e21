#!/usr/bin/env python3
"""Makes the manifests of a Microservice, and has kubectl apply them."""
# rolewright:rbac core configmaps,resourcequotas,serviceaccounts,services get,list,watch,create,patch
# rolewright:rbac apps deployments get,list,watch,create,patch
# rolewright:rbac autoscaling horizontalpodautoscalers get,list,watch,create,patch,delete
import hashlib
import json
import os
import subprocess
import sys


def report(**fields):
    with open(os.environ["ROLEWRIGHT_EVENTS"], "a", encoding="utf-8") as events:
        print(json.dumps(fields), file=events)


def manifests(name, namespace, spec):
    labels = {"app": name}
    port, replicas, most = spec.get("port", 8080), spec.get("replicas", 2), spec.get("maxReplicas")
    settings, quota = spec.get("settings", {}), spec.get("quota", {})

    def made(api, kind, **fields):
        return {"apiVersion": api, "kind": kind, "metadata": {"name": name, "namespace": namespace, "labels": labels}, **fields}

    yield made("v1", "ServiceAccount", automountServiceAccountToken=False)
    yield made("v1", "ConfigMap", **({"data": settings} if settings else {}))
    yield made("v1", "ResourceQuota", spec={"hard": {
        "requests.cpu": quota.get("cpu", "4"), "requests.memory": quota.get("memory", "4Gi")}})
    yield made("v1", "Service", spec={"selector": labels, "ports": [{"port": 80, "targetPort": port}]})
    yield made("apps/v1", "Deployment", spec={
        **({} if most else {"replicas": replicas}),
        "selector": {"matchLabels": labels},
        "template": {
            # A change of the settings starts new Pods.
            "metadata": {"labels": labels, "annotations": {
                "settings": hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()}},
            "spec": {"serviceAccountName": name, "containers": [{
                "name": "service", "image": spec["image"], "ports": [{"containerPort": port}],
                "envFrom": [{"configMapRef": {"name": name}}],
                "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}}}]}}})
    if most:
        yield made("autoscaling/v2", "HorizontalPodAutoscaler", spec={
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            "minReplicas": replicas, "maxReplicas": most,
            "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}}]})


def kubectl(*args, **options):
    """Runs kubectl, and returns the lines of its output about objects that it has changed."""
    said = subprocess.run(["kubectl", *args], check=True, text=True, stdout=subprocess.PIPE, **options).stdout
    return [line for line in said.splitlines() if not line.endswith(" unchanged")]


def main():
    microservice = json.load(sys.stdin)["object"]
    name, namespace = microservice["metadata"]["name"], microservice["metadata"]["namespace"]
    report(type="progress", step="Apply the manifests")
    items = list(manifests(name, namespace, microservice["spec"]))
    changes = kubectl("apply", "-f", "-", input=json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    if "maxReplicas" not in microservice["spec"]:
        report(type="progress", step="Remove an autoscaler that is not wanted")
        changes += kubectl("delete", "horizontalpodautoscaler", name, "--namespace=" + namespace, "--ignore-not-found")
    report(type="result", verdict="ok", changed=bool(changes), message=", ".join(changes))


main()
