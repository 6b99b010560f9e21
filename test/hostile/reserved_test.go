package hostile

import (
	"fmt"
	"strings"
)

// ansibleNames are names after ansible_ that Ansible and its plugins read (connection, shell, become and module plugins),
// and those that Ansible sets. They are in groups for the reader.
const ansibleNames = `
connection host port user password pass private_key_file pipelining timeout command_timeout connect_timeout
ssh_host ssh_port ssh_user ssh_pass ssh_password ssh_private_key_file ssh_common_args ssh_extra_args ssh_executable ssh_args ssh_pipelining
ssh_transfer_method ssh_timeout ssh_retries sftp_extra_args sftp_executable scp_extra_args scp_executable sftp_batch_mode control_path
control_path_dir host_key_checking paramiko_proxy_command paramiko_pass paramiko_host_key_checking
python_interpreter perl_interpreter ruby_interpreter node_interpreter playbook_python discovered_interpreter_python interpreter_python
interpreter_python_fallback
shell_type shell_executable remote_tmp system_tmpdirs async_dir admin_users remote_temp common_remote_group shell_allow_world_readable_temp
become become_user become_method become_exe become_flags become_pass become_password sudo_exe sudo_flags sudo_pass sudo_user su_exe su_flags
su_pass runas_user doas_exe pbrun_user dzdo_pass ksu_exe machinectl_exe
kubectl_host kubectl_kubeconfig kubectl_pod kubectl_extra_args kubectl_token docker_extra_args docker_host podman_executable lxc_executable
chroot_exe jail_name winrm_transport winrm_kinit_cmd winrm_server_cert_validation psrp_path psrp_auth httpapi_use_ssl network_os network_cli_ssh_type
netconf_ssh_config persistent_command_timeout aws_ssm_bucket_name
facts local check_mode diff_mode verbosity version play_name play_hosts play_batch play_hosts_all play_role_names run_tags skip_tags limit loop
loop_var index_var search_path role_name role_names parent_role_names parent_role_paths dependent_role_names collection_name config_file forks
inventory_sources delegated_vars failed_task failed_result module_compression keep_remote_files no_target_syslog target_log_info tmpdir
remote_user action_plugins date_time env distribution all_ipv4_addresses user_dir user_id pkg_mgr service_mgr system machine
`

// reservedNames are the names of section 7.2 of the threat model as they may be in a spec: each in every spelling that
// Ansible, or the conversion of keys, turns into the same name.
func reservedNames() []hostile {
	var cases []hostile
	add := func(name, value string) {
		cases = append(cases, hostile{row: "H.2", name: printable(name), object: `{"spec": {` + quoted(name) + `: ` + value + `}}`, reserved: true})
	}
	for i, base := range strings.Fields(ansibleNames) {
		name := "ansible_" + base
		add(name, dangerous(name))
		if i%2 == 0 {
			add(camel(name), dangerous(name))
		}
	}
	for _, name := range strings.Fields(`vars hostvars groups group_names omit environment playbook_dir role_path role_uuid play_hosts item
		delegated_vars lookup query q sops_binary inventory_hostname inventory_hostname_short inventory_dir inventory_file inventory_sources
		role_name role_names become become_user become_method become_exe become_flags become_pass
		__ansible_vault_x _ansible_loop_cache __ansible_x _ansible_no_log _ansible_check_mode`) {
		add(name, dangerous(name))
	}
	// Look-alikes, each of a name that would be executed.
	for _, name := range []string{
		"ansible-shell-executable", "ansible-python-interpreter", "Ansible_Connection", "AnsibleRemoteTmp", "ANSIBLE_SSH_ARGS", "ansible.become.exe",
		" ansible_shell_type", "ansible_port ", "\tansible_user", "ansible host", "ａnsible_ssh_executable", "ａｎｓｉｂｌｅ＿pipelining",
		"ansible\u200b_become_flags", "\ufeffansible_become_method", "ansi\u00adble_ssh_common_args", "_ansible_python_interpreter",
		"__ansiblePassword", "AnsibleFacts", "ansible-Check-Mode", "inventoryHostname", "inventory-file", "becomeUser", "groupNames",
		"playbookDir", "rolePath", "playHosts", " vars", "lookup ", "ｑuery",
	} {
		add(name, dangerous("ansible_shell_executable"))
	}
	return cases
}

// dangerous returns the value with which a name would do the most damage.
func dangerous(name string) string {
	last := name[strings.LastIndex(name, "_")+1:]
	switch {
	case strings.HasSuffix(name, "interpreter"):
		return `"/usr/bin/env BAIT /usr/bin/python3"`
	case last == "tmp" || last == "dir" || last == "tmpdirs" || last == "tmpdir" || last == "temp":
		return `"$(BAIT)/x"`
	case last == "connection":
		return `"ssh"`
	case last == "become" || last == "pipelining" || last == "mode":
		return `true`
	case last == "args" || last == "flags":
		return `"-o ProxyCommand=BAIT; BAIT #"`
	case last == "port" || last == "forks" || last == "timeout":
		return `1`
	case last == "groups" || last == "names" || last == "hosts":
		return `["BAIT"]`
	case last == "facts" || last == "hostvars" || last == "vars" || last == "local" || last == "env":
		return `{"ansible_python_interpreter": "BAIT", "localhost": {"ansible_shell_executable": "BAIT"}}`
	}
	return `"BAIT"`
}

// camel returns a name as a spec would spell it: ansible_ssh_host → ansibleSshHost.
func camel(name string) string {
	words := strings.Split(name, "_")
	for i, word := range words[1:] {
		if word != "" {
			words[i+1] = strings.ToUpper(word[:1]) + word[1:]
		}
	}
	return strings.Join(words, "")
}

// printable returns a text that can be part of a test's name.
func printable(text string) string { return strings.Trim(fmt.Sprintf("%+q", text), `"`) }
