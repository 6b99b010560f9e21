package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// apiClient sends the few requests of the launcher itself to the API server, as the administrator.
type apiClient struct {
	server string
	http   *http.Client
}

func newAPIClient(server string, authority []byte, admin identity) (apiClient, error) {
	cert, err := tls.X509KeyPair(admin.cert, admin.key)
	if err != nil {
		return apiClient{}, fmt.Errorf("read the administrator's certificate: %w", err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(authority)
	return apiClient{
		server: server,
		http: &http.Client{
			// For each of many requests: a server that accepts a connection but does not answer is asked again.
			Timeout:   5 * time.Second,
			Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{cert}}},
		},
	}, nil
}

// ready returns nil when the API server says that it is ready.
func (a apiClient) ready(ctx context.Context) error {
	_, err := a.do(ctx, http.MethodGet, "/readyz", nil)
	return err
}

// defaultsExist returns nil when the namespace default can be used: Pods are refused without the service account.
func (a apiClient) defaultsExist(ctx context.Context) error {
	_, err := a.do(ctx, http.MethodGet, "/api/v1/namespaces/default/serviceaccounts/default", nil)
	return err
}

// createNode makes a node that kwok takes care of. It is as large as a node may be, because nothing ever runs on it.
func (a apiClient) createNode(ctx context.Context, name string) error {
	resources := map[string]string{"cpu": "1k", "memory": "1Ti", "pods": "10k"}
	_, err := a.do(ctx, http.MethodPost, "/api/v1/nodes", map[string]any{
		"apiVersion": "v1",
		"kind":       "Node",
		"metadata": map[string]any{
			"name":        name,
			"annotations": map[string]string{nodeAnnotation: "fake"},
			"labels":      map[string]string{"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "type": "kwok"},
		},
		"status": map[string]any{"allocatable": resources, "capacity": resources},
	})
	return err
}

// errNotReady says that a node exists but is not ready yet.
var errNotReady = errors.New("the node is not ready yet")

// nodeReady returns nil when the node's condition Ready is true.
func (a apiClient) nodeReady(ctx context.Context, name string) error {
	data, err := a.do(ctx, http.MethodGet, "/api/v1/nodes/"+name, nil)
	if err != nil {
		return err
	}
	var node struct {
		Status struct {
			Conditions []struct{ Type, Status string }
		}
	}
	if err := json.Unmarshal(data, &node); err != nil {
		return fmt.Errorf("read node %s: %w", name, err)
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == "Ready" && condition.Status == "True" {
			return nil
		}
	}
	return errNotReady
}

// do sends one request and returns the body of a successful answer.
func (a apiClient) do(ctx context.Context, method, path string, body any) ([]byte, error) {
	var payload bytes.Buffer
	if body != nil {
		if err := json.NewEncoder(&payload).Encode(body); err != nil {
			return nil, fmt.Errorf("encode the body for %s: %w", path, err)
		}
	}
	request, err := http.NewRequestWithContext(ctx, method, a.server+path, &payload)
	if err != nil {
		return nil, fmt.Errorf("make a request for %s: %w", path, err)
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := a.http.Do(request)
	if err != nil {
		return nil, err // names method and address already
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, fmt.Errorf("read the answer for %s: %w", path, err)
	}
	if response.StatusCode/100 != 2 {
		return nil, fmt.Errorf("%s %s: %s: %s", method, path, response.Status, bytes.TrimSpace(data))
	}
	return data, nil
}
