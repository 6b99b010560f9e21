package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// cluster is a control plane that is starting or up. Its maker calls stop exactly once.
type cluster struct {
	dir       stateDir
	layout    layout
	client    apiClient
	janitor   janitor
	spawner   spawner
	running   []*component
	forwarder *forwarder      // with a real node
	ended     chan *component // components, as they end
	report    func(format string, args ...any)
}

// open claims the state directory and everything else that is needed before the first process. The directory is removed
// if open fails, and when this process dies.
func open(opts options, progress io.Writer) (*cluster, error) {
	dir, err := claimDir(opts.Dir)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	c := &cluster{
		dir:     dir,
		spawner: newSpawner(),
		ended:   make(chan *component, 8), // more than there are components: none ever blocks
		report: func(format string, args ...any) {
			// If progress can no longer be written, the control plane goes on.
			_, _ = fmt.Fprintf(progress, "control plane %5.1fs  %s\n", time.Since(began).Seconds(), fmt.Sprintf(format, args...))
		},
	}
	if c.janitor, err = hireJanitor(dir); err != nil {
		return nil, errors.Join(err, dir.remove())
	}
	return c, nil
}

// kubeconfig returns the path of the administrator's kubeconfig.
func (c *cluster) kubeconfig() string { return c.dir.join("kubeconfig") }

// start brings everything up and returns when the cluster can be used: the API server answers, and the controllers that
// make namespaces usable have done so for the namespace default.
func (c *cluster) start(ctx context.Context, opts options) error {
	ctx, cancel := context.WithTimeoutCause(ctx, opts.Timeout, fmt.Errorf("not ready within %s", opts.Timeout))
	defer cancel()
	if err := c.prepare(opts); err != nil {
		return err
	}
	c.report("starting etcd and kube-apiserver at %s", c.layout.api.url())
	if err := c.launch(c.layout.newEtcd, c.layout.newAPIServer); err != nil {
		return err
	}
	if err := c.await(ctx, "kube-apiserver", c.client.ready); err != nil {
		return err
	}
	c.report("kube-apiserver is ready; starting kube-controller-manager")
	if err := c.launch(c.layout.newControllerManager); err != nil {
		return err
	}
	if opts.Kwok {
		if err := c.startNode(ctx); err != nil {
			return err
		}
	}
	if opts.Node {
		if err := c.startRealNode(ctx, opts.Images); err != nil {
			return err
		}
	}
	// The namespace comes from the API server, its service account from the controllers.
	if err := c.await(ctx, "the namespace default and its service account", c.client.defaultsExist); err != nil {
		return err
	}
	c.report("ready")
	return nil
}

// prepare reserves the ports and writes the files that the components read.
func (c *cluster) prepare(opts options) error {
	etcd, err := reservePort()
	if err != nil {
		return err
	}
	api, err := reservePort()
	if err != nil {
		return err
	}
	c.layout = layout{dir: c.dir, assets: opts.Assets, etcd: etcd, api: api, podsExec: opts.PodsExec, node: opts.Node}
	if opts.PodsExec {
		if err := c.preparePods(); err != nil {
			return err
		}
	}
	if opts.AuditLog != "" {
		c.layout.auditLog = opts.AuditLog
		if !filepath.IsAbs(opts.AuditLog) {
			c.layout.auditLog = c.dir.join(opts.AuditLog)
		}
		if err := os.WriteFile(c.dir.join("audit-policy.yaml"), []byte(auditPolicy), 0o600); err != nil {
			return fmt.Errorf("write the audit policy: %w", err)
		}
	}
	if err := c.writeIdentities(); err != nil {
		return err
	}
	if opts.Node {
		return c.prepareNode()
	}
	return nil
}

func (c *cluster) writeIdentities() error {
	if err := os.Mkdir(c.layout.pki(""), 0o700); err != nil {
		return fmt.Errorf("make the directory of the certificates: %w", err)
	}
	ca, err := newAuthority(c.layout.pki(""))
	if err != nil {
		return err
	}
	for file, name := range map[string]string{
		"server": "localhost", "etcd-client": "kube-apiserver", "service-account": "service-account",
	} {
		if err := ca.save(file, name); err != nil {
			return err
		}
	}
	for file, user := range map[string]string{
		"controller-manager": "system:kube-controller-manager", "scheduler": "system:kube-scheduler", "kwok": "system:kwok",
		"kubelet": "system:node:" + nodeName,
	} {
		if _, err := ca.kubeconfig(c.layout.pki(file+".kubeconfig"), c.layout.api.url(), user); err != nil {
			return err
		}
	}
	admin, err := ca.kubeconfig(c.kubeconfig(), c.layout.api.url(), "rolewright-admin")
	if err != nil {
		return err
	}
	c.client, err = newAPIClient(c.layout.api.url(), ca.pem, admin)
	return err
}

// launch starts components. They stop with the cluster, even if a later one cannot be started.
func (c *cluster) launch(makers ...func() (*component, error)) error {
	for _, maker := range makers {
		part, err := maker()
		if err != nil {
			return err
		}
		if err := part.start(c.spawner, c.dir, c.ended); err != nil {
			return err
		}
		c.running = append(c.running, part)
	}
	return nil
}

// pollInterval is short compared to the second or two that each component takes.
const pollInterval = 50 * time.Millisecond

// await calls ask until it returns nil, a component ends, or the context does. Then the error says what was missing.
func (c *cluster) await(ctx context.Context, what string, ask func(context.Context) error) error {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		err := ask(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			if !errors.Is(ctx.Err(), context.DeadlineExceeded) { // someone who interrupts wants no details
				return fmt.Errorf("wait for %s: %w", what, context.Cause(ctx))
			}
			return fmt.Errorf("wait for %s: %w (last answer: %w)%s", what, context.Cause(ctx), err, c.logs())
		case part := <-c.ended:
			return part.failure()
		case <-ticker.C:
		}
	}
}

// logs returns the ends of all logs, for a start that took too long.
func (c *cluster) logs() string {
	var text strings.Builder
	for _, part := range c.running {
		fmt.Fprintf(&text, "\n--- %s:\n%s", part.name, tail(part.log))
	}
	return text.String()
}

// stop ends every component, last first, and removes the state directory.
func (c *cluster) stop() error {
	for i := len(c.running) - 1; i >= 0; i-- {
		c.running[i].kill()
	}
	c.forwarder.close()
	close(c.spawner.calls)
	c.layout.etcd.release()
	c.layout.api.release()
	var err error
	if c.layout.node { // what the kubelet has mounted there goes with the namespaces, and the directory after it
		c.dir.release()
	} else {
		err = c.dir.remove()
	}
	return errors.Join(err, c.janitor.dismiss())
}
