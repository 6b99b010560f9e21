package controller

import (
	"fmt"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// kubeconfig renders cfg as the file that a run finds under KUBECONFIG and
// K8S_AUTH_KUBECONFIG: the operator's own way to the API server.
func kubeconfig(cfg *rest.Config) ([]byte, error) {
	const name = "rolewright"
	out := clientcmdapi.NewConfig()
	cluster := clientcmdapi.NewCluster()
	cluster.Server = cfg.Host + cfg.APIPath
	cluster.TLSServerName = cfg.ServerName
	cluster.InsecureSkipTLSVerify = cfg.Insecure
	cluster.CertificateAuthorityData = cfg.CAData
	if len(cfg.CAData) == 0 {
		cluster.CertificateAuthority = cfg.CAFile
	}
	user := clientcmdapi.NewAuthInfo()
	user.ClientCertificateData, user.ClientKeyData = cfg.CertData, cfg.KeyData
	if len(cfg.CertData) == 0 {
		user.ClientCertificate, user.ClientKey = cfg.CertFile, cfg.KeyFile
	}
	if user.TokenFile = cfg.BearerTokenFile; user.TokenFile == "" {
		// Clients prefer a token to a file with one; that of a Pod expires.
		user.Token = cfg.BearerToken
	}
	user.Impersonate, user.ImpersonateUID = cfg.Impersonate.UserName, cfg.Impersonate.UID
	user.ImpersonateGroups, user.ImpersonateUserExtra = cfg.Impersonate.Groups, cfg.Impersonate.Extra
	user.Username, user.Password = cfg.Username, cfg.Password
	user.Exec = cfg.ExecProvider
	context := clientcmdapi.NewContext()
	context.Cluster, context.AuthInfo = name, name
	out.Clusters[name], out.AuthInfos[name], out.Contexts[name] = cluster, user, context
	out.CurrentContext = name
	data, err := clientcmd.Write(*out)
	if err != nil {
		return nil, fmt.Errorf("render the kubeconfig of a run: %w", err)
	}
	return data, nil
}
