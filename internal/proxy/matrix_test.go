package proxy

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/rolewright/rolewright/test/testenv"
)

// The owner marks that an object may have. The tests describe any other mark in words, which equal none of these.
const (
	unmarked  = "no mark"
	reference = "one owner reference"
	annotated = "both annotations"
)

// cell is one request of the matrix. The test sends it twice, directly and through the proxy, each time for another object.
type cell struct {
	name string
	by   asker
	of   resource
	// away puts the object into a namespace other than the owner's.
	away bool
	// before is the metadata of the object that exists before the request; empty if there is none.
	before string
	method string
	// sub is appended to the object's path, query to the URL.
	sub, query string
	// media is the Content-Type; empty if the request has none.
	media  string
	accept string
	// body is JSON. The test sends it in the encoding of media, or unchanged if asIs is set.
	body string
	asIs bool
	// packed compresses the body, chunked sends it without its length, broken leaves out its last bytes.
	packed, chunked, broken bool
	// code is the status code of the answer. refused is set if the proxy itself refuses the request, which the API server would
	// accept.
	code, refused int
	want          string
	// blind does not compare the answers' bodies, because no two are alike.
	blind bool
}

// asker is the grant of the client that sends a request.
type asker struct{ global, adopt, silent bool }

// resource is a kind of the matrix. $GROUP stands for the group of the custom kinds.
type resource struct {
	apiVersion, kind, plural string
	global                   bool
	// custom kinds have no protobuf encoding.
	custom bool
	// byPut means that a PUT can create objects of the kind.
	byPut   bool
	content string
}

// object returns the JSON of an object with additional metadata.
func (r resource) object(metadata string) string {
	return r.with(`"name":"$NAME"` + metadata)
}

func (r resource) with(metadata string) string {
	return `{"apiVersion":"` + r.apiVersion + `","kind":"` + r.kind + `","metadata":{` + metadata + `}` + r.content + `}`
}

// path returns the path of the kind's objects in a namespace.
func (r resource) path(namespace string) string {
	prefix := "/apis/" + r.apiVersion
	if r.apiVersion == "v1" {
		prefix = "/api/v1"
	}
	if !r.global {
		prefix += "/namespaces/" + namespace
	}
	return prefix + "/" + r.plural
}

// matrix is the state that all cells share.
type matrix struct {
	// apiServer is the URL for direct requests, proxy the other way to the same API server.
	apiServer          string
	direct             *http.Client
	proxy              *Proxy
	clients            map[asker]*http.Client
	home, away         string
	group              string
	namespaced, global Owner
	// others are other owners, one for each namespace and one that is cluster-scoped.
	others map[string]Owner
}

// askers returns all clients that send requests.
func askers() []asker {
	return []asker{{}, {adopt: true}, {silent: true}, {global: true}, {global: true, adopt: true}}
}

func newMatrix(t *testing.T) *matrix {
	t.Helper()
	cfg := testenv.Config(t)
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		t.Fatalf("make a client: %v", err)
	}
	m := &matrix{
		apiServer: cfg.Host, direct: client, proxy: startProxy(t, cfg), clients: map[asker]*http.Client{},
		home: testenv.Namespace(t, cfg), away: testenv.Namespace(t, cfg),
	}
	thing := testenv.CRD(t, cfg, testenv.WithKind("Thing"), scalable)
	m.group = thing.Group
	world := testenv.CRD(t, cfg, testenv.WithKind("World"), testenv.WithGroup(m.group), testenv.ClusterScoped())
	m.namespaced, m.global = newOwner(t, cfg, thing, m.home), newOwner(t, cfg, world, "")
	m.others = map[string]Owner{
		m.home: newOwner(t, cfg, thing, m.home), m.away: newOwner(t, cfg, thing, m.away), "": newOwner(t, cfg, world, ""),
	}
	account := `{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"runner"}}` // for the Pods
	for _, namespace := range []string{m.home, m.away} {
		url := m.apiServer + "/api/v1/namespaces/" + namespace + "/serviceaccounts"
		if a := roundTrip(t, m.direct, http.MethodPost, url, http.Header{"Content-Type": {mediaJSON}}, strings.NewReader(account)); a.Code != http.StatusCreated {
			t.Fatalf("create a service account: %d %s", a.Code, a.Text)
		}
	}
	for _, by := range askers() {
		_, m.clients[by], _ = admit(t, m.proxy, Grant{
			RunID: fmt.Sprintf("%+v", by), Owner: m.owner(by), Inject: !by.silent, AdoptUnowned: by.adopt,
		})
	}
	return m
}

// scalable adds the scale subresource.
func scalable(crd *apiextensionsv1.CustomResourceDefinition) {
	for i := range crd.Spec.Versions {
		crd.Spec.Versions[i].Subresources.Scale = &apiextensionsv1.CustomResourceSubresourceScale{
			SpecReplicasPath: ".spec.replicas", StatusReplicasPath: ".status.replicas",
		}
	}
}

// newOwner creates a custom resource that can own the objects of a run.
func newOwner(t *testing.T, cfg *rest.Config, gvk schema.GroupVersionKind, namespace string) Owner {
	t.Helper()
	objects, err := dynamic.NewForConfig(cfg)
	if err != nil {
		t.Fatalf("make a client: %v", err)
	}
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(gvk)
	object.SetName(testenv.Random("owner-"))
	gvr := resourceOf(gvk)
	made, err := objects.Resource(gvr).Namespace(namespace).Create(t.Context(), object, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("create the owner: %v", err)
	}
	return Owner{GVK: gvk, Namespace: namespace, Name: made.GetName(), UID: made.GetUID()}
}

func (m *matrix) owner(by asker) Owner {
	if by.global {
		return m.global
	}
	return m.namespaced
}

// owned returns the mark that an object gets if the request makes it the owner's.
func (c cell) owned() string {
	if c.by.global || !c.of.global && !c.away {
		return reference
	}
	return annotated
}

// namespace returns the namespace of the cell's object.
func (m *matrix) namespace(c cell) string {
	switch {
	case c.of.global:
		return ""
	case c.away:
		return m.away
	}
	return m.home
}

// fill puts the values of this test into a template. $MARK is metadata that makes an object the owner's. $OWN and $OTHER are
// references to the owner and to another owner.
func (m *matrix) fill(c cell, name, template string) string {
	owner, other := m.owner(c.by), m.others[m.namespace(c)]
	mark := `,"ownerReferences":[$OWN]`
	if c.owned() == annotated {
		mark = `,"annotations":{"` + annotationOwner + `":"` + m.home + `/` + owner.Name + `","` + annotationOwnerType + `":"Thing.` + m.group + `"}`
	}
	return strings.NewReplacer(
		"$NAMESPACE", m.namespace(c), "$NAME", name, // $NAMESPACE before $NAME, which is its beginning
		"$GROUP", m.group,
		"$OWN", referenceTo(owner, ""), "$OTHER", referenceTo(other, `,"controller":true,"blockOwnerDeletion":true`),
	).Replace(strings.ReplaceAll(template, "$MARK", mark))
}

func referenceTo(o Owner, more string) string {
	return fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"name":%q,"uid":%q%s}`, o.GVK.GroupVersion(), o.GVK.Kind, o.Name, o.UID, more)
}

// answer is an answer as a client receives it, with its body decoded.
type answer struct {
	Code     int
	Type     string
	Warnings []string
	Text     string
}

// request sends the cell's request for the object with that name.
func (m *matrix) request(t *testing.T, client *http.Client, server string, c cell, name string) answer {
	t.Helper()
	path := c.of.path(m.namespace(c))
	if c.method != http.MethodPost || c.sub != "" {
		path += "/" + name
	}
	var body io.Reader = bytes.NewReader(c.encoded(t, m.fill(c, name, c.body)))
	if c.chunked {
		body = io.MultiReader(body) // hides the length from net/http
	}
	header := http.Header{"Content-Type": {c.media}, "Accept": {c.accept}}
	if server == m.apiServer && strings.Contains(c.accept, mediaProtobuf) {
		header.Set("Accept", mediaJSON) // the only encoding in which runs get answers
	}
	if c.packed {
		header.Set("Content-Encoding", "gzip")
	}
	return roundTrip(t, client, c.method, server+m.fill(c, name, path+c.sub)+m.fill(c, name, c.query), header, body)
}

func roundTrip(t *testing.T, client *http.Client, method, url string, header http.Header, body io.Reader) answer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, body)
	if err != nil {
		t.Fatalf("make a request: %v", err)
	}
	for key, values := range header {
		if values[0] != "" {
			req.Header[key] = values
		}
	}
	req.Header.Set("User-Agent", "matrix/1") // becomes the name of the field manager
	resp, err := client.Do(req)
	if err != nil {
		t.Fatalf("%s %s: %v", method, url, err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("read the answer of %s %s: %v", method, url, err)
	}
	return answer{resp.StatusCode, resp.Header.Get("Content-Type"), resp.Header["Warning"], string(text)}
}

// stored reads the object as it is now.
func (m *matrix) stored(t *testing.T, c cell, name string) answer {
	t.Helper()
	url := m.apiServer + m.fill(c, name, c.of.path(m.namespace(c))) + "/" + name
	return roundTrip(t, m.direct, http.MethodGet, url, http.Header{"Accept": {"application/json"}}, http.NoBody)
}

// prepare creates the object that exists before the request.
func (m *matrix) prepare(t *testing.T, c cell, name string) {
	t.Helper()
	url := m.apiServer + m.fill(c, name, c.of.path(m.namespace(c))) + "/" + name
	if c.of.global {
		ctx := context.WithoutCancel(t.Context())
		t.Cleanup(func() {
			req, err := http.NewRequestWithContext(ctx, http.MethodDelete, url, http.NoBody)
			if err != nil {
				t.Fatalf("make a request: %v", err)
			}
			if resp, err := m.direct.Do(req); err == nil {
				_ = resp.Body.Close()
			}
		})
	}
	if c.before == "" {
		return
	}
	body := m.fill(c, name, c.of.object(c.before))
	header := http.Header{"Content-Type": {mediaApply}}
	if a := roundTrip(t, m.direct, http.MethodPatch, url+"?fieldManager=matrix", header, strings.NewReader(body)); a.Code != http.StatusCreated {
		t.Fatalf("create what is there before: %d %s", a.Code, a.Text)
	}
}

// encoded returns the body in the encoding in which it is sent.
func (c cell) encoded(t *testing.T, text string) []byte {
	t.Helper()
	body := []byte(text)
	if !c.asIs {
		body = encode(t, mediaType(c.media), body)
	}
	if c.broken {
		body = body[:len(body)/2]
	}
	if c.packed {
		body = packed(body)
	}
	return body
}

func encode(t *testing.T, media string, text []byte) []byte {
	t.Helper()
	var tree any
	var body []byte
	err := kjson.UnmarshalCaseSensitivePreserveInts(text, &tree)
	if err != nil {
		t.Fatalf("the cell's body is not JSON: %v", err)
	}
	switch media {
	case mediaYAML, mediaApply:
		body, err = yaml.JSONToYAML(text)
	case mediaCBOR, mediaApplyCBOR:
		body, err = direct.Marshal(tree)
	case mediaProtobuf:
		object, _, err := scheme.Codecs.UniversalDeserializer().Decode(text, nil, nil)
		if err != nil {
			t.Fatalf("the cell's body is of no known kind: %v", err)
		}
		var out bytes.Buffer
		if err := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Encode(object, &out); err != nil {
			t.Fatalf("encode as protobuf: %v", err)
		}
		return out.Bytes()
	default:
		body = text
	}
	if err != nil {
		t.Fatalf("encode as %s: %v", media, err)
	}
	return body
}

func TestMatrix_AProxiedWriteStoresWhatADirectOneDoesAndTheOwner(t *testing.T) {
	t.Parallel()
	m := newMatrix(t)
	for _, c := range cells() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			m.compare(t, c)
		})
	}
}

// compare sends the cell's request directly and through the proxy, and compares the results.
func (m *matrix) compare(t *testing.T, c cell) {
	t.Helper()
	// Names have the same length, because encodings contain lengths.
	names := []string{testenv.Random("d"), testenv.Random("p")}
	for _, name := range names {
		m.prepare(t, c, name)
	}
	answers := []answer{
		m.request(t, m.direct, m.apiServer, c, names[0]),
		m.request(t, m.clients[c.by], m.proxy.URL(), c, names[1]),
	}
	for i, want := range []int{c.code, cmp.Or(c.refused, c.code)} {
		if answers[i].Code != want {
			t.Fatalf("answer %d = %d, want %d: %s", i, answers[i].Code, want, answers[i].Text)
		}
	}
	var outcomes []outcome
	for i, name := range names {
		outcomes = append(outcomes, m.outcome(t, c, name, answers[i]))
	}
	if diff := gocmp.Diff(outcomes[0], outcomes[1], cmpopts.IgnoreUnexported(outcome{})); diff != "" && c.refused == 0 {
		t.Errorf("outcome (-direct +proxied):\n%s", diff)
	}
	if got := outcomes[1].mark; got != c.want {
		t.Errorf("mark = %s, want %s", got, c.want)
	}
}

// packed compresses a body.
func packed(plain []byte) []byte {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, _ = w.Write(plain) // a buffer takes everything
	_ = w.Close()
	return out.Bytes()
}
