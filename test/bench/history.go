package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/rolewright/rolewright/controller/runstore"
	"github.com/rolewright/rolewright/internal/api"
	"github.com/rolewright/rolewright/internal/history"
	"github.com/rolewright/rolewright/internal/page"
	"github.com/rolewright/rolewright/test/runs"
)

const (
	// recordedEach is how many runs of each object the history has.
	recordedEach = 10
	// asked is how often each view, and each request of the API, is requested.
	asked = 20
	// memoryPairs is how often the operator's memory is measured with and without a history.
	memoryPairs = 3
	// recordedAtOnce is how many objects are created to measure the CPU of their runs.
	recordedAtOnce = 10
	// reader is the service account that reads the history.
	reader = "bench-reader"
)

// history measures what a full history costs: views and requests of the API, the operator's
// memory, and the CPU of runs that are recorded, compared with runs that are not.
func (b *bench) history(ctx context.Context) error {
	if err := b.removeThings(ctx); err != nil {
		return err
	}
	first, last, err := b.record(ctx)
	if err != nil {
		return fmt.Errorf("make the history: %w", err)
	}
	if err := b.historyMemory(ctx, first, last); err != nil {
		return err
	}
	return b.historyCPU(ctx)
}

// record writes a history of runs, and returns two runs of one object.
func (b *bench) record(ctx context.Context) (first, last history.Run, err error) {
	objects := b.opts.recorded / recordedEach
	all := runs.Many(objects, recordedEach)
	for i := range all {
		all[i].Group, all[i].Version, all[i].Kind = thing().Group, thing().Version, thing().Kind
	}
	first, last = all[len(all)-1-objects], all[len(all)-1]
	root := filepath.Join(b.dir, "runner")
	if err := os.MkdirAll(root, 0o700); err != nil {
		return first, last, err
	}
	dir, err := runstore.Dir(root, ".history")
	if err != nil {
		return first, last, err
	}
	ended, end := context.WithCancel(ctx)
	end()
	path := filepath.Join(dir, "runs.db")
	for part := range slices.Chunk(all, 1000) { // so many can wait to be written
		store, err := history.Open(history.Options{Path: path, MaxRuns: len(all), MaxBytes: 1 << 30, Log: logr.Discard()})
		if err != nil {
			return first, last, err
		}
		for _, r := range part {
			store.Add(r)
		}
		if err := store.Serve(ended); err != nil {
			return first, last, err
		}
	}
	info, err := os.Stat(path)
	if err == nil {
		fmt.Printf("\nhistory of %d runs of %d objects: %d MiB on the disk\n", len(all), objects, info.Size()>>20)
	}
	return first, last, err
}

// historyMemory starts operators with and without the history, in turn. With the history,
// everything is read.
func (b *bench) historyMemory(ctx context.Context, first, last history.Run) (err error) {
	clients, err := kubernetes.NewForConfig(b.config)
	if err != nil {
		return err
	}
	token, err := b.readerToken(ctx, clients)
	if err != nil {
		return fmt.Errorf("token of a reader: %w", err)
	}
	defer func() {
		rbac := clients.RbacV1()
		err = errors.Join(err, rbac.ClusterRoles().Delete(ctx, reader, metav1.DeleteOptions{}), rbac.ClusterRoleBindings().Delete(ctx, reader, metav1.DeleteOptions{}))
	}()
	var without, withoutAnon, idle, read, peak, anon series
	for i := range min(memoryPairs, b.opts.historyPairs) {
		for _, with := range []bool{i%2 == 0, i%2 != 0} {
			was, is, err := b.recordedMemory(ctx, with, func(operator string) error {
				return b.readAll(ctx, operator, token, first, last, i == 0)
			})
			if err != nil {
				return err
			}
			if with {
				idle, read, peak, anon = append(idle, was.residentMiB), append(read, is.residentMiB), append(peak, is.peakMiB), append(anon, is.anonMiB)
			} else {
				without, withoutAnon = append(without, was.residentMiB), append(withoutAnon, was.anonMiB)
			}
		}
	}
	header("resident memory of the operator, MiB")
	without.row("no history", "")
	idle.row("with the history", "")
	read.row("after all views were read", "")
	peak.row("the most while they were read", "")
	read.less(without).row("added by the history, within a pair", "at most 40")
	peak.less(without).row("the same, at the peak", "at most 40")
	anon.less(withoutAnon).row("the same without mapped files, which is the heap", "")
	return nil
}

// recordedMemory returns the operator's usage at rest and, with the history, after everything was read.
func (b *bench) recordedMemory(ctx context.Context, with bool, read func(operator string) error) (was, is usage, err error) {
	address, err := freeAddress()
	if err != nil {
		return was, is, err
	}
	_, port, _ := net.SplitHostPort(address)
	args := []string{"--history-max-runs", "0"}
	if with {
		args = []string{"--history-max-runs", strconv.Itoa(b.opts.recorded), "--history-max-age", "0", "--history-max-bytes", "1Gi", "--api-port", port}
	}
	if err := b.startRecorded(ctx, args); err != nil {
		return was, is, err
	}
	time.Sleep(b.opts.settling / 15)
	if was, err = b.operator.usage(); err != nil {
		return was, is, err
	}
	if with {
		if err := errors.Join(b.operator.resetPeak(), read("http://localhost:"+port)); err != nil {
			return was, is, err
		}
		time.Sleep(b.opts.settling / 15)
		if is, err = b.operator.usage(); err != nil {
			return was, is, err
		}
	}
	return was, is, b.removeThings(ctx)
}

// startRecorded starts an operator with the stub.
func (b *bench) startRecorded(ctx context.Context, args []string) error {
	env := []string{"PATH=" + filepath.Join(b.dir, "bin") + ":" + os.Getenv("PATH"), timesEnv + "=" + b.times()}
	return b.startProcess(ctx, append([]string{"--executor", "runner", "--proxy-port", "0"}, args...), env)
}

// readerToken returns the token of a service account that may get the objects.
func (b *bench) readerToken(ctx context.Context, clients kubernetes.Interface) (string, error) {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: reader}}
	if err := b.client.Create(ctx, ns); err != nil {
		return "", err
	}
	b.namespaces = append(b.namespaces, ns)
	named := metav1.ObjectMeta{Name: reader}
	if _, err := clients.CoreV1().ServiceAccounts(reader).Create(ctx, &corev1.ServiceAccount{ObjectMeta: named}, metav1.CreateOptions{}); err != nil {
		return "", err
	}
	role := &rbacv1.ClusterRole{ObjectMeta: named, Rules: []rbacv1.PolicyRule{{APIGroups: []string{thing().Group}, Resources: []string{"things"}, Verbs: []string{"get"}}}}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: named, Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: reader, Name: reader}},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: reader},
	}
	_, roleErr := clients.RbacV1().ClusterRoles().Create(ctx, role, metav1.CreateOptions{})
	_, bindingErr := clients.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{})
	if err := errors.Join(roleErr, bindingErr); err != nil {
		return "", err
	}
	token, err := clients.CoreV1().ServiceAccounts(reader).CreateToken(ctx, reader, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	return token.Status.Token, nil
}

// asker requests what is at a path.
type asker = func(ctx context.Context, path string, query url.Values) (*http.Response, error)

// succeeded sends a request, and fails if the answer is not a success.
func succeeded(r *http.Request) (*http.Response, error) {
	resp, err := http.DefaultClient.Do(r)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = errors.Join(fmt.Errorf("%s: %s", r.URL.Path, resp.Status), resp.Body.Close())
	}
	return resp, err
}

// readAll requests everything from the operator's API, and from a page that reads it, and prints
// how long each takes.
func (b *bench) readAll(ctx context.Context, operator, token string, first, last history.Run, print bool) error {
	source, began := &page.Remote{Ask: askAPI(operator, token, false), Get: runs.Object}, time.Now()
	if _, _, err := source.Runs(ctx); err != nil { // as rolewright ui does before it prints its address
		return err
	}
	if print {
		fmt.Printf("\nall runs are read by the page once, in requests of 1,000: in %.0f ms\n", ms(time.Since(began)))
	}
	server := httptest.NewUnstartedServer(nil)
	server.Config.Handler = page.New(page.Options{
		Source: source, Base: runs.Base, Hosts: []string{server.Listener.Addr().String()},
	})
	server.Start()
	defer server.Close()
	if print {
		fmt.Printf("\n%-50s %9s %9s %9s %9s   at most 200 ms, 150 kB\n", "ms of a request", "first", "median", "max", "kB")
	}
	for _, is := range requests(askAPI(operator, token, true), askPage(server.URL+runs.Base), first, last) {
		var took series
		size := int64(0)
		for range asked {
			began := time.Now()
			n, err := sizeOf(ctx, func(ctx context.Context) (*http.Response, error) { return is.how(ctx, is.path, is.query) }, is.path == "/events")
			if err != nil {
				return fmt.Errorf("%s: %w", is.name, err)
			}
			took, size = append(took, ms(time.Since(began))), n
		}
		if print {
			later := slices.Sorted(slices.Values(took[1:]))
			fmt.Printf("%-50s %9.1f %9.1f %9.1f %9.1f\n", is.name, took[0], later[len(later)/2], later[len(later)-1], float64(size)/1000)
		}
	}
	return nil
}

// askAPI asks an operator. With packed, answers are compressed and stay so.
func askAPI(operator, token string, packed bool) asker {
	return func(ctx context.Context, path string, query url.Values) (*http.Response, error) {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, operator+api.Root+path+"?"+query.Encode(), nil)
		if err != nil {
			return nil, err
		}
		r.Header.Set("Authorization", "Bearer "+token)
		if packed {
			r.Header.Set("Accept-Encoding", "gzip")
		}
		return succeeded(r)
	}
}

// askPage asks the page at an address.
func askPage(address string) asker {
	return func(ctx context.Context, path string, _ url.Values) (*http.Response, error) {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, address+path, nil)
		if err != nil {
			return nil, err
		}
		return succeeded(r)
	}
}

// request is a request that is measured.
type request struct {
	name  string
	how   asker
	path  string
	query url.Values
}

// requests returns one request of each kind, about the object of the two runs.
func requests(ask, show asker, first, last history.Run) []request {
	of := url.Values{"group": {last.Group}, "kind": {last.Kind}, "namespace": {last.Namespace}, "name": {last.Name}}
	return []request{
		{"API: runs", ask, "/runs", nil},
		{"API: runs of an object", ask, "/runs", of},
		{"API: runs that have failed", ask, "/runs", url.Values{"result": {"Failed"}}},
		{"API: a run", ask, "/runs/" + last.ID, nil},
		{"API: the queue", ask, "/queue", nil},
		{"API: events, until they begin", ask, "/events", nil},
		{"API: 1,000 runs, as top and the page ask for them", ask, "/runs", url.Values{"limit": {"1000"}}},
		{"page: objects", show, "", nil},
		{"page: objects that are searched", show, "?q=example-00&state=3", nil},
		{"page: an object", show, "object?" + of.Encode(), nil},
		{"page: a run", show, "run?id=" + last.ID, nil},
		{"page: two runs", show, "compare?a=" + first.ID + "&b=" + last.ID, nil},
		{"page: the queue", show, "queue", nil},
		{"page: trends", show, "trends?days=30", nil},
		{"page: a report", show, "report?id=" + last.ID, nil},
	}
}

// sizeOf sends a request, and returns the size of the answer in bytes; for a stream, up to its first line.
func sizeOf(ctx context.Context, send func(context.Context) (*http.Response, error), stream bool) (int64, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	resp, err := send(ctx)
	if resp != nil {
		defer resp.Body.Close()
	}
	if err != nil {
		return 0, err
	}
	if stream {
		line, err := bufio.NewReader(resp.Body).ReadString('\n')
		return int64(len(line)), err
	}
	return io.Copy(io.Discard, resp.Body)
}

// historyCPU compares the CPU of the operator, and of everything that it has started, for runs of a
// workload with and without a history, in turn.
func (b *bench) historyCPU(ctx context.Context) error {
	const name = "reference"
	var on, off, ratio series
	for i := range b.opts.historyPairs {
		var pair [2]float64
		for k := range pair {
			which := (i + k) % len(pair)
			args := [][]string{{"--history-max-runs", "0"}, {"--history-max-runs", strconv.Itoa(b.opts.recorded)}}[which]
			c, err := b.recordedCrowd(ctx, name, args)
			if err != nil {
				return fmt.Errorf("workload %s, %v: %w", name, args, err)
			}
			pair[which] = c / recordedAtOnce
		}
		off, on, ratio = append(off, pair[0]), append(on, pair[1]), append(ratio, 100*(pair[1]/pair[0]-1))
		fmt.Printf("pair %d: CPU of a run without and with the history: %.3f and %.3f s\n", i+1, pair[0], pair[1])
	}
	fmt.Printf("\n%-50s %9s %9s %9s %9s %9s\n", fmt.Sprintf("CPU of a run, s: %s, %d at once, %d pairs", name, recordedAtOnce, b.opts.historyPairs), "min", "q1", "median", "q3", "max")
	off.quartiles("no history", "")
	on.quartiles("with the history", "")
	ratio.quartiles("added by the history, within a pair, %", "at most 3")
	return nil
}

// recordedCrowd returns the CPU time of an operator, and of everything below it, for forked runs of new objects. The
// first object warms both up.
func (b *bench) recordedCrowd(ctx context.Context, name string, args []string) (cpu float64, err error) {
	if err := b.startWorkload(ctx, name, "warm", args...); err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, b.operator.stop()); b.operator = nil }()
	var before share
	for i := range recordedAtOnce + 1 {
		if err := b.create(ctx, metav1.NamespaceDefault, fmt.Sprintf("recorded-%d", i)); err != nil {
			return 0, err
		}
		if i > 0 {
			continue
		}
		if err := b.awaitReady(ctx); err != nil {
			return 0, err
		}
		if before, err = usedBy(b.operator.cmd.Process.Pid); err != nil {
			return 0, err
		}
	}
	if err := b.awaitReady(ctx); err != nil {
		return 0, err
	}
	after, err := usedBy(b.operator.cmd.Process.Pid)
	if b.logged(plainMessage) {
		err = errors.Join(err, errors.New("the fork server was not there all the time: the machine is too busy to measure"))
	}
	return after.less(before).total(), err
}
