#!/usr/bin/python
"""Says what the interpreter and a library have read of the environment when they started."""
import sys

from ansible.module_utils.basic import AnsibleModule
from kubernetes.config import kube_config


def main():
    path = [p for p in vars(sys)["path"] if "_payload" not in p]
    AnsibleModule(argument_spec={}).exit_json(path=path, kubeconfig=kube_config.KUBE_CONFIG_DEFAULT_LOCATION)


if __name__ == "__main__":
    main()
