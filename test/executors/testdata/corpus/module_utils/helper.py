def helped():
    return "by the utilities beside the playbook"
