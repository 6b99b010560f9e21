package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/pflag"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"

	"github.com/rolewright/rolewright/internal/api"
)

// readerOptions say how commands that show runs find the operator, and whose runs they show.
type readerOptions struct {
	server            string
	operatorNamespace string
	operatorPod       string
	serviceAccount    string
	namespace         string
	allNamespaces     bool
	// several is true for commands that ask all replicas if several have the API's port.
	several bool
}

func (o *readerOptions) bind(fs *pflag.FlagSet) {
	o.bindOperator(fs)
	fs.StringVarP(&o.namespace, "namespace", "n", "", "The namespace of the objects. The default is that of the kubeconfig.")
	fs.BoolVarP(&o.allNamespaces, "all-namespaces", "A", false, "Show the objects of all namespaces.")
}

// bindOperator adds the flags that say where the operator is.
func (o *readerOptions) bindOperator(fs *pflag.FlagSet) {
	fs.StringVar(&o.server, "server", "", "The address of an operator's --api-port on this machine, such as http://127.0.0.1:6791. By default, the command finds the operator's Pod and forwards its port.")
	fs.StringVar(&o.operatorNamespace, "operator-namespace", "", "The namespace of the operator's Pods, which get your token. Needed without --server.")
	fs.StringVar(&o.operatorPod, "operator-pod", "", "The operator's Pod, if several Pods in --operator-namespace have the API port. Without it, commands that show runs, logs or the queue ask all replicas; get runs -w, top, ui and support-bundle need it.")
	fs.StringVar(&o.serviceAccount, "service-account", "", "Read with a token of this service account, NAMESPACE/NAME: for kubeconfigs with a client certificate and no token.")
}

// reader asks an operator's API.
type reader struct {
	client *http.Client
	base   string
	// namespace is the namespace of the objects; empty for all.
	namespace string
	close     func()
	// pod is the name of the operator's Pod if it was looked up; others read from the Pods of the other replicas.
	pod    string
	others []*reader
	// failed says why the Pod cannot be reached; nil if it can.
	failed error
}

// connect finds the operator. The caller closes the reader.
func (o *readerOptions) connect(ctx context.Context) (*reader, error) {
	found, err := findCluster(os.LookupEnv)
	if err != nil {
		return nil, unreachable(err)
	}
	r := &reader{base: strings.TrimSuffix(o.server, "/"), close: func() {}}
	if !o.allNamespaces {
		r.namespace = cmp.Or(o.namespace, found.namespace, metav1.NamespaceDefault)
	}
	client, err := kubernetes.NewForConfig(found.config)
	if err != nil {
		return nil, unreachable(err)
	}
	config, err := o.credentials(ctx, found.config, client)
	if err != nil {
		return nil, err
	}
	if r.client, err = rest.HTTPClientFor(config); err != nil {
		return nil, unreachable(err)
	}
	if r.base != "" {
		return r, nil
	}
	pods, err := operatorPods(ctx, client, o.operatorNamespace, o.operatorPod, o.several)
	if err != nil {
		return nil, err
	}
	var ends []func()
	r.close = func() {
		for _, end := range ends {
			end()
		}
	}
	for i, pod := range pods {
		one := r
		if i > 0 {
			one = &reader{client: r.client, namespace: r.namespace, close: func() {}}
			r.others = append(r.others, one)
		}
		one.pod = pod.Name
		var end func()
		if one.base, end, one.failed = forward(ctx, found.config, client, pod); one.failed == nil {
			ends = append(ends, end)
		}
	}
	if len(ends) == 0 {
		return nil, r.failed
	}
	return r, nil
}

// ask connects, and returns the query for the objects that the arguments name, if any. The
// caller closes the reader.
func (o *readerOptions) ask(ctx context.Context, args []string) (*reader, url.Values, error) {
	query := url.Values{}
	if len(args) > 0 {
		if err := objectQuery(query, args[0]); err != nil {
			return nil, nil, err
		}
	}
	r, err := o.connect(ctx)
	if err != nil {
		return nil, nil, err
	}
	setQuery(query, "namespace", r.namespace)
	return r, query, nil
}

// credentials returns the user's token for the operator's API, without the certificates of the
// cluster, and without the proxy on the way to it.
func (o *readerOptions) credentials(ctx context.Context, config *rest.Config, client kubernetes.Interface) (*rest.Config, error) {
	c := rest.CopyConfig(config)
	c.Host, c.TLSClientConfig, c.Timeout, c.Proxy = "", rest.TLSClientConfig{}, 0, nil
	if o.serviceAccount == "" {
		if c.BearerToken == "" && c.BearerTokenFile == "" && c.ExecProvider == nil && c.AuthProvider == nil {
			return nil, usage(errors.New(`the kubeconfig has no token that authenticates you to the operator: set --service-account NAMESPACE/NAME to a service account that may get the objects and for which you may create tokens. To create one, with RESOURCE.GROUP as in memcacheds.cache.example.com:
  kubectl create serviceaccount runs-reader -n default
  kubectl create clusterrole runs-reader --verb=get --resource=RESOURCE.GROUP
  kubectl create clusterrolebinding runs-reader --clusterrole=runs-reader --serviceaccount=default:runs-reader
and then --service-account default/runs-reader, or for a kubeconfig: kubectl create token runs-reader -n default`))
		}
		return c, nil
	}
	namespace, name, ok := strings.Cut(o.serviceAccount, "/")
	if !ok {
		return nil, usage(fmt.Errorf("--service-account %q: give NAMESPACE/NAME", o.serviceAccount))
	}
	const lasts = int64(600) // seconds; the API server gives no less
	seconds := lasts
	token, err := client.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, name, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds},
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, unreachable(fmt.Errorf("token of service account %s: %w", o.serviceAccount, err))
	}
	return &rest.Config{BearerToken: token.Status.Token}, nil
}

// apiPortName is the container port's name, by which the operator's Pod is found.
const apiPortName = "rolewright-api"

// forward forwards a port of this machine to the port of the operator's API in a Pod, like
// kubectl port-forward.
func forward(ctx context.Context, config *rest.Config, client kubernetes.Interface, pod corev1.Pod) (base string, end func(), err error) {
	_, port := apiPort(pod)
	transport, upgrader, err := spdy.RoundTripperFor(config)
	if err != nil {
		return "", nil, unreachable(err)
	}
	address := client.CoreV1().RESTClient().Post().Resource("pods").Namespace(pod.Namespace).Name(pod.Name).SubResource("portforward").URL()
	dialer := spdy.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost, address)
	stop, ready, said := make(chan struct{}), make(chan struct{}), &bytes.Buffer{}
	forwarder, err := portforward.NewOnAddresses(dialer, []string{"127.0.0.1"}, []string{fmt.Sprintf("0:%d", port)}, stop, ready, io.Discard, said)
	if err != nil {
		return "", nil, unreachable(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- forwarder.ForwardPorts() }()
	end = func() {
		close(stop)
		_ = <-ended // forwarding has served its purpose
	}
	select {
	case <-ctx.Done():
		end()
		return "", nil, ctx.Err()
	case err := <-ended:
		return "", nil, unreachable(fmt.Errorf("forward a port to Pod %s/%s: %w %s", pod.Namespace, pod.Name, err, said))
	case <-ready:
	}
	ports, err := forwarder.GetPorts()
	if err != nil {
		end()
		return "", nil, unreachable(err)
	}
	return fmt.Sprintf("http://127.0.0.1:%d", ports[0].Local), end, nil
}

// operatorPods finds the Pod of an operator that has the API's port: the one with the given
// name, or with several the Pods of all its replicas. It only looks in the namespace that the
// user gives: the Pods get the user's token, and anyone who may create a Pod can give it such a port.
func operatorPods(ctx context.Context, client kubernetes.Interface, namespace, name string, several bool) (found []corev1.Pod, err error) {
	if namespace == "" {
		return nil, usage(errors.New("set --operator-namespace to the namespace of the operator's Pods, which get your token"))
	}
	pods, err := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{FieldSelector: "status.phase=Running"})
	if err != nil {
		return nil, unreachable(fmt.Errorf("look for the operator's Pod: %w", err))
	}
	var names []string
	for _, p := range pods.Items {
		if _, port := apiPort(p); port == 0 {
			continue
		}
		names = append(names, p.Name)
		if name == "" || name == p.Name {
			found = append(found, p)
		}
	}
	switch there := strings.Join(names, ", "); {
	case len(pods.Items) == 0:
		return nil, unreachable(fmt.Errorf("no Pod is running in namespace %s: is this the operator's namespace, and is the operator running?", namespace))
	case len(names) == 0:
		return nil, unreachable(fmt.Errorf("no running Pod in namespace %s has a container port with the name %s: start the operator with --api-port, and add the port to its container", namespace, apiPortName))
	case len(found) > 1 && !(several && areReplicas(found)):
		return nil, usage(fmt.Errorf("there are several Pods of operators in namespace %s: %s; name one with --operator-pod", namespace, there))
	case len(found) == 0:
		return nil, usage(fmt.Errorf("--operator-pod %q: the running Pods of operators in namespace %s are %s", name, namespace, there))
	}
	return found, nil
}

// areReplicas reports whether Pods belong to one operator, by the labels that tell two operators in a namespace apart.
func areReplicas(pods []corev1.Pod) bool {
	return !slices.ContainsFunc(pods, func(p corev1.Pod) bool {
		return p.Labels["app.kubernetes.io/name"] != pods[0].Labels["app.kubernetes.io/name"] || p.Labels["app.kubernetes.io/instance"] != pods[0].Labels["app.kubernetes.io/instance"]
	})
}

// apiPort returns the port of the operator's API in a Pod, and the container that has it; 0 if there is none.
func apiPort(pod corev1.Pod) (container string, port int32) {
	for _, c := range pod.Spec.Containers {
		for _, is := range c.Ports {
			if is.Name == apiPortName {
				return c.Name, is.ContainerPort
			}
		}
	}
	return "", 0
}

// runID strips the prefix run/ from the ID of a run, as "get runs -o name" prints it.
func runID(given string) string {
	if id, named := strings.CutPrefix(given, "run/"); named && uuid.Validate(id) == nil {
		return id
	}
	return given
}

// answerPatience is how long the operator may take to answer: an operator that hangs still accepts connections.
const answerPatience = 30 * time.Second

// get reads and decodes the answer at a path of the API.
func (r *reader) get(ctx context.Context, path string, query url.Values, into any) error {
	ctx, cancel := context.WithTimeoutCause(ctx, answerPatience, fmt.Errorf("no answer within %s", answerPatience))
	defer cancel()
	resp, err := r.ask(ctx, path, query)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if err := json.NewDecoder(resp.Body).Decode(into); err != nil {
		return unreachable(fmt.Errorf("answer of the operator: %w", err))
	}
	return nil
}

// ask sends a request. The response that it returns has a status of success.
func (r *reader) ask(ctx context.Context, path string, query url.Values) (*http.Response, error) {
	if r.failed != nil {
		return nil, r.failed
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.base+api.Root+path+"?"+query.Encode(), nil)
	if err != nil {
		return nil, usage(err)
	}
	resp, err := r.client.Do(req)
	if err != nil {
		return nil, unreachable(fmt.Errorf("ask the operator: %w; is %s the --api-port of a running operator?", err, r.base))
	}
	if resp.StatusCode == http.StatusOK {
		return resp, nil
	}
	defer func() { _ = resp.Body.Close() }()
	var said metav1.Status
	if json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(&said) != nil || said.Message == "" {
		return nil, unreachable(fmt.Errorf("the operator answers: %s; is %s the --api-port of an operator?", resp.Status, r.base))
	}
	err = fmt.Errorf("the operator answers: %s", said.Message)
	switch resp.StatusCode {
	case http.StatusNotFound:
		return nil, coded(err, exitNothing)
	case http.StatusBadRequest:
		return nil, usage(err)
	}
	return nil, unreachable(err)
}

// errResync is the error if events are missing from the stream: the client starts again with
// a list.
var errResync = errors.New("the operator has restarted, or this client was too slow")

// events reads the stream of events from a cursor on, until handle returns false or the
// connection ends. It moves the cursor forward.
func (r *reader) events(ctx context.Context, query url.Values, cursor *string, handle func(kind string, data []byte) (goOn bool)) error {
	query.Set("cursor", *cursor)
	resp, err := r.ask(ctx, "/events", query)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	var kind, id string
	var data []byte
	for lines.Scan() {
		field, value, _ := strings.Cut(lines.Text(), ":")
		value = strings.TrimPrefix(value, " ")
		switch field {
		case "id":
			id = value
		case "event":
			kind = value
		case "data":
			data = []byte(value)
		}
		if lines.Text() != "" || kind == "" {
			continue
		}
		if kind == "resync" {
			return errResync
		}
		*cursor = id
		if !handle(kind, data) {
			return nil
		}
		kind, data = "", nil
	}
	return cmp.Or(ctx.Err(), unreachable(fmt.Errorf("the connection to the operator has ended: %w", cmp.Or(lines.Err(), io.ErrUnexpectedEOF))))
}
