package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// work does what a role would do: it brings the ConfigMap with the object's name to
// what the spec says, through the run's own access. The data also counts how
// often a value has run. Objects without a value have nothing to do.
func (p *play) work() error {
	if p.object.Spec.Value == "" {
		return nil
	}
	c, err := connect(filepath.Join(p.dir, "kubeconfig"))
	if err != nil {
		return err
	}
	c.agent = "fakerunner/" + p.ident // tells the runs apart in the audit log
	name := p.object.Metadata.Name
	if p.object.deleting() {
		name += "-final"
	}
	if p.does.Steal {
		if err := p.steal(*c); err != nil {
			return err
		}
	}
	path := "/api/v1/namespaces/" + p.object.Metadata.Namespace + "/configmaps/" + name
	runs := 0
	if p.does.FailFirst > 0 || p.does.RequeueOnce != "" {
		if runs, err = c.runs(path, p.object.Spec.Value); err != nil {
			return err
		}
	}
	if runs < p.does.FailFirst {
		p.does.Outcome = outcomeFailed
	}
	if runs == 0 {
		p.does.requeue = p.does.RequeueOnce
	}
	body := map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name},
		"data": map[string]string{"spec": p.object.Spec.Value, "runs": strconv.Itoa(runs + 1)},
	}
	_, err = c.do(http.MethodPatch, path+"?fieldManager=fakerunner&force=true", body)
	return err
}

// steal makes a request with the token of an earlier run, in that run's name, and
// stores this run's token for the next. The answer is for the checker to see.
func (p *play) steal(c cluster) error {
	path := os.Getenv(truthEnv) + "." + p.object.Metadata.UID + ".stolen"
	token, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := os.WriteFile(path, []byte(c.agent+" "+c.token), 0o600); err != nil {
		return err
	}
	var stolen bool
	if c.agent, c.token, stolen = strings.Cut(string(token), " "); stolen {
		_, _ = c.do(http.MethodGet, "/api/v1/namespaces/"+p.object.Metadata.Namespace+"/configmaps/stolen", nil)
	}
	return nil
}

// runs returns how often the value has run.
func (c *cluster) runs(path, value string) (int, error) {
	data, err := c.do(http.MethodGet, path, nil)
	if errors.Is(err, errNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	var found struct{ Data map[string]string }
	if err := json.Unmarshal(data, &found); err != nil {
		return 0, err
	}
	if found.Data["spec"] != value {
		return 0, nil
	}
	return strconv.Atoi(found.Data["runs"])
}

// cluster is the run's access to the API server.
type cluster struct {
	server, token, agent string
	http                 *http.Client
}

// connect reads the run's kubeconfig, which has one cluster and one user. It uses no
// library, so that the program starts fast.
func connect(kubeconfig string) (*cluster, error) {
	text, err := os.ReadFile(kubeconfig)
	if err != nil {
		return nil, err
	}
	fields := map[string]string{}
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		fields[key] = value
	}
	c := &cluster{server: fields["server"], token: fields["token"], http: &http.Client{Timeout: 30 * time.Second}}
	ca, err := base64.StdEncoding.DecodeString(fields["certificate-authority-data"])
	if err != nil {
		return nil, fmt.Errorf("%s: certificate-authority-data: %w", kubeconfig, err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	c.http.Transport = &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}
	return c, nil
}

// errNotFound is the answer 404.
var errNotFound = errors.New("not found")

// do makes a request. If there is a body, it is applied.
func (c *cluster) do(method, path string, body any) ([]byte, error) {
	var content io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		content = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(context.Background(), method, c.server+path, content)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+c.token)
	req.Header.Set("User-Agent", c.agent)
	req.Header.Set("Content-Type", "application/apply-patch+yaml") // JSON is YAML
	res, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(res.Body, 1<<20))
	switch {
	case err != nil:
		return nil, err
	case res.StatusCode == http.StatusNotFound:
		return nil, errNotFound
	case res.StatusCode >= http.StatusBadRequest:
		return nil, fmt.Errorf("%s %s: %s: %.200s", method, path, res.Status, answer)
	}
	return answer, nil
}
