package proxy

import (
	"fmt"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Kubeconfig returns the file with which a client presents the token. As in
// ansible-operator, whose names it uses, it has no default namespace. Its server is
// the same for all runs, because clients cache discovery per server.
func (a *Access) Kubeconfig() ([]byte, error) {
	const cluster, user = "proxy-server", "admin/proxy-server"
	context := a.session.Owner.Namespace + "/" + cluster
	out := clientcmdapi.NewConfig()
	out.Clusters[cluster] = &clientcmdapi.Cluster{Server: a.p.URL(), CertificateAuthorityData: a.p.ca}
	out.AuthInfos[user] = &clientcmdapi.AuthInfo{Token: a.token}
	out.Contexts[context] = &clientcmdapi.Context{Cluster: cluster, AuthInfo: user}
	out.CurrentContext = context
	data, err := clientcmd.Write(*out)
	if err != nil {
		return nil, fmt.Errorf("render the kubeconfig of a run: %w", err)
	}
	return data, nil
}
