"""Times what a module of Ansible does once per task: a new client of a
kubeconfig, and one request.

Arguments: how often, namespace and name of a ConfigMap, kubeconfigs, which are
used in turn. Prints the times in milliseconds, by kubeconfig."""

import json
import sys
import time

from kubernetes import client, config


def once(kubeconfig, namespace, name):
    began = time.perf_counter()
    api = client.CoreV1Api(config.new_client_from_config(config_file=kubeconfig))
    api.read_namespaced_config_map(name, namespace)
    return (time.perf_counter() - began) * 1000


times, (namespace, name), kubeconfigs = int(sys.argv[1]), sys.argv[2:4], sys.argv[4:]
for kubeconfig in kubeconfigs:  # what is loaded late
    once(kubeconfig, namespace, name)
series = {kubeconfig: [] for kubeconfig in kubeconfigs}
for i in range(times):
    for k in range(len(kubeconfigs)):
        kubeconfig = kubeconfigs[(i + k) % len(kubeconfigs)]
        series[kubeconfig].append(once(kubeconfig, namespace, name))
json.dump(series, sys.stdout)
